from __future__ import annotations

import gzip
import io

import pytest

from trainprobe.model.frame import Frame
from trainprobe.model.moment import Moment
from trainprobe.model.report import Host
from trainprobe.wire import frame, recording
from trainprobe.wire.codec import WireError

FRAMES = [Frame(Moment(n * 10**9, 10**18 + n * 10**9), events_lost={"ring": n}) for n in range(1, 4)]
HEADER = recording.Header(Host(name="gpu-7", cpus=8), {"limit": 1.5}, "0.1.0")


def recorded() -> bytes:
    lines = [recording.encode_header(HEADER), *(frame.encode(one) for one in FRAMES)]
    return "".join(line + "\n" for line in lines).encode()


def test_header_and_frames_come_back() -> None:
    lines = io.BytesIO(recorded())
    assert recording.read_header(lines) == HEADER
    assert list(recording.read_frames(lines)) == FRAMES


def test_the_first_line_names_the_format() -> None:
    assert recorded().startswith(b'{"trainprobe_recording":1,')


def test_a_last_line_that_was_cut_short_ends_the_recording() -> None:
    """That is what kill -9 or a full disk leaves behind."""
    lines = io.BytesIO(recorded()[:-20])
    recording.read_header(lines)
    assert list(recording.read_frames(lines)) == FRAMES[:2]


def test_a_compressed_recording_without_its_end_is_read_as_far_as_it_goes() -> None:
    whole = io.BytesIO()
    with gzip.GzipFile(fileobj=whole, mode="wb") as file:
        file.write(recorded())
        file.flush()
        left = len(whole.getvalue())
    lines = gzip.GzipFile(fileobj=io.BytesIO(whole.getvalue()[:left]))
    recording.read_header(lines)
    assert list(recording.read_frames(lines)) == FRAMES


def test_a_line_that_is_older_than_the_one_before_it_is_an_error_with_its_number() -> None:
    header, *lines = recorded().splitlines(keepends=True)
    again = io.BytesIO(b"".join((header, lines[0], lines[1], lines[1], lines[0], lines[2])))
    recording.read_header(again)
    with pytest.raises(WireError, match=r"^line 5: it is older than the line before it$"):
        list(recording.read_frames(again))


def test_a_bad_line_in_the_middle_is_an_error_with_its_number() -> None:
    lines = io.BytesIO(recorded().replace(b'"at"', b'"ta"', 1))
    recording.read_header(lines)
    with pytest.raises(WireError, match="line 2"):
        list(recording.read_frames(lines))


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "not a trainprobe recording"),
        (b'{"version": 1}\n', "not a trainprobe recording"),
        (b"\x7fELF\n", "not JSON"),
        (b'{"trainprobe_recording": 2}\n', "version 2; this program reads up to version 1"),
        (b'{"trainprobe_recording": true}\n', "not a trainprobe recording"),
    ],
)
def test_what_is_no_recording_is_refused(data: bytes, why: str) -> None:
    with pytest.raises(WireError, match=why):
        recording.read_header(io.BytesIO(data))


def test_an_endless_line_is_not_read_into_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "LINE_LIMIT", 1000)
    with pytest.raises(WireError, match="more than 1000 bytes"):
        recording.read_header(io.BytesIO(b" " * 5000))
