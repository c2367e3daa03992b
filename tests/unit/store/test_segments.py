from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

import pytest

from trainprobe.store import segments as store_segments
from trainprobe.store.segments import Segments

HEADER = '{"h":1}\n'


def lines(directory: Path) -> list[str]:
    paths = sorted(directory.rglob("*.jsonl"), key=lambda path: int(path.stem.rpartition("_")[2]))
    return [line for path in paths for line in path.read_text().splitlines(keepends=True)]


def test_lines_are_appended_and_a_full_segment_is_followed_by_another(tmp_path: Path) -> None:
    segments = Segments(tmp_path, -1, 100)
    for number in range(20):
        segments.append("steps/run/0_step_", f"{number:019}\n", header=HEADER, number=7)
    assert [line for line in lines(tmp_path) if line != HEADER] == [f"{number:019}\n" for number in range(20)]
    sizes = [path.stat().st_size for path in tmp_path.rglob("*.jsonl")]
    assert len(sizes) > 3
    assert max(sizes) <= 100


def test_others_may_read_as_a_group_only(tmp_path: Path) -> None:
    gid = 4242 if os.geteuid() == 0 else os.getegid()
    Segments(tmp_path, gid, 100).append("stalls/", "x\n", header=HEADER, number=1)
    status = (tmp_path / "stalls" / "1.jsonl").stat()
    assert (stat.S_IMODE(status.st_mode), status.st_gid) == (0o640, gid)
    assert stat.S_IMODE((tmp_path / "stalls").stat().st_mode) == 0o750


def test_a_new_process_leaves_the_last_lines_of_a_killed_one_alone(tmp_path: Path) -> None:
    Segments(tmp_path, -1, 100).append("stalls/", "whole\n", header=HEADER, number=5)
    with (tmp_path / "stalls" / "5.jsonl").open("a") as file:
        file.write("ha")
    Segments(tmp_path, -1, 100).append("stalls/", "next\n", header=HEADER, number=5)
    assert (tmp_path / "stalls" / "5.jsonl").read_text() == HEADER + "whole\nha"
    assert (tmp_path / "stalls" / "6.jsonl").read_text() == HEADER + "next\n"


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    segments = Segments(tmp_path, -1, 100)
    segments.append("stalls/", "a\n", header=HEADER, number=1)
    path = tmp_path / "stalls" / "1.jsonl"
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic links"):
        segments.append("stalls/", "b\n", header=HEADER, number=1)
    segments.append("stalls/", "c\n", header=HEADER, number=1)
    assert (tmp_path / "elsewhere").read_text() == HEADER + "a\n"
    assert (tmp_path / "stalls" / "2.jsonl").read_text() == HEADER + "c\n"


def test_where_somebody_deleted_the_files_the_next_lines_begin_another_segment(tmp_path: Path) -> None:
    segments = Segments(tmp_path, -1, 100)
    for text in ("a\n", "b\n"):
        segments.append("steps/run/0_1s_", text, header=HEADER, number=1)
    (tmp_path / "steps" / "run" / "0_1s_1.jsonl").unlink()
    segments.append("steps/run/0_1s_", "c\n", header=HEADER, number=1)
    assert (tmp_path / "steps" / "run" / "0_1s_2.jsonl").read_text() == HEADER + "c\n"
    shutil.rmtree(tmp_path / "steps")
    for text in ("d\n", "e\n"):
        segments.append("steps/run/0_1s_", text, header=HEADER, number=1)
    assert lines(tmp_path) == [HEADER, "d\n", "e\n"]


def test_old_segments_go_and_the_current_one_stays(tmp_path: Path) -> None:
    segments = Segments(tmp_path, -1, 20)
    for _ in range(4):
        segments.append("steps/r/0_step_", "123456789\n", header=HEADER, number=1)
    for path in tmp_path.rglob("*.jsonl"):
        os.utime(path, (1000, 1000))
    segments.forget("steps/r", 999)
    assert len(list(tmp_path.rglob("*.jsonl"))) == 4
    segments.forget("steps/r", 1001, infix="_10s_")
    assert len(list(tmp_path.rglob("*.jsonl"))) == 4
    segments.forget("steps/r", 1001, infix="_step_")
    assert [path.name for path in tmp_path.rglob("*.jsonl")] == ["0_step_4.jsonl"]
    segments.forget_folder("steps/r")
    assert segments.folders("steps") == []
    segments.append("steps/r/0_step_", "1\n", header=HEADER, number=1)
    assert segments.bytes > 0


def test_what_else_is_open_costs_nothing_when_segments_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    segments = Segments(tmp_path, -1, 100)
    for run in range(200):
        segments.append(f"steps/{run}/0_step_", "1\n", header=HEADER, number=1)
    asked: list[str] = []
    path = Segments._path
    monkeypatch.setattr(Segments, "_path", lambda self, stem, number: asked.append(stem) or path(self, stem, number))
    segments.forget("steps/1", 1e12)
    assert (tmp_path / "steps/1/0_step_1.jsonl").exists()
    assert asked == ["steps/1/0_step_"]
    segments.forget_folder("steps/1")
    assert len(segments._open) == 199


def test_of_runs_that_are_over_nothing_stays_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that goes on after all begins another segment."""
    monkeypatch.setattr(store_segments, "MOST_OPEN", 4)
    segments = Segments(tmp_path, -1, 100)
    for run in (*range(10), 9, 0):
        segments.append(f"steps/{run}/0_step_", f"{run}\n", header=HEADER, number=1)
    assert len(segments._open) == 4
    assert (tmp_path / "steps/9/0_step_1.jsonl").read_text() == HEADER + "9\n9\n"
    assert (tmp_path / "steps/0/0_step_2.jsonl").read_text() == HEADER + "0\n"
