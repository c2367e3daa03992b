from __future__ import annotations

import io
from pathlib import Path

import pytest

from tests.unit.runtime.fakes import FakeCore
from trainprobe.model.frame import Frame
from trainprobe.model.moment import NS, Moment
from trainprobe.model.report import Host
from trainprobe.runtime.publishing.recorder import Recorder, to_file
from trainprobe.runtime.publishing.replay import replay
from trainprobe.wire.codec import WireError
from trainprobe.wire.recording import Header

HEADER = Header(Host("gpu-7"), {"x": 1}, "0.1.0")
FRAMES = [Frame(Moment(n * NS, n * NS), events_lost={"r": n}) for n in range(1, 6)]


def recorded(limit: int | None = None) -> bytes:
    lines: list[str] = []
    recorder = Recorder(lines.append, HEADER, limit)
    for frame in FRAMES:
        recorder(frame)
    return "".join(line + "\n" for line in lines).encode("ascii")


def test_a_replay_shows_the_core_the_same_frames() -> None:
    core, headers = FakeCore(), []

    def make(header: Header) -> FakeCore:
        headers.append(header)
        return core

    report, _ = replay(io.BytesIO(recorded()), make)
    assert core.frames == FRAMES
    assert headers == [HEADER]
    assert report.generated == 5.0


def test_a_recording_ends_at_its_limit() -> None:
    whole = recorded()
    cut = recorded(len(whole) // 2)
    assert whole.startswith(cut)
    assert len(whole) // 2 <= len(cut) < len(whole)


def test_a_recording_without_frames_is_no_report() -> None:
    with pytest.raises(WireError, match="without a frame"):
        replay(io.BytesIO(recorded().split(b"\n")[0] + b"\n"), lambda _header: FakeCore())


def test_every_line_is_in_the_file_at_once(tmp_path: Path) -> None:
    with (tmp_path / "r.jsonl").open("w") as file:
        Recorder(to_file(file), HEADER)
        assert (tmp_path / "r.jsonl").read_text().count("\n") == 1
