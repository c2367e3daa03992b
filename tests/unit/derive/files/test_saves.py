"""Files that are open: so many are followed at a time, the written ones first, and all count when they are closed."""

from __future__ import annotations

import pytest

from trainprobe.derive.files import purpose, save
from trainprobe.derive.files.renames import MOVES
from trainprobe.derive.files.saves import KEEP, NAMES, OPEN, Saves
from trainprobe.model.event import FileEvent, FileEventKind
from trainprobe.model.moment import NS
from trainprobe.model.text import LONGEST_PATH

OPENED, PROGRESS, CLOSED = FileEventKind.OPENED, FileEventKind.PROGRESS, FileEventKind.CLOSED


def event(kind: FileEventKind, at: int, path: str, ino: int, *, opened: int = 0, size: int = 0) -> FileEvent:
    calls = int(size > 0)
    return FileEvent(kind, at, 1, 1, 1, ino, path, opened_ns=opened or at, bytes=size, calls=calls, created=True)


def add_events(saves: Saves, *events: FileEvent) -> None:
    for one in events:
        saves.add_event(one)


def following(*events: FileEvent) -> Saves:
    saves = Saves()
    saves.begin_steps(0)
    add_events(saves, *events)
    return saves


def test_files_that_are_never_written_nor_closed_do_not_stay() -> None:
    model = event(OPENED, 1, "/out/model.pt", 1), event(PROGRESS, 2, "/out/model.pt", 1, opened=1, size=9)
    saves = following(*model, *(event(OPENED, 10 + n, f"/out/lock{n}", 10 + n) for n in range(3 * OPEN)))
    assert len(saves.open) == OPEN
    assert [one.path for one in saves.checkpoints()] == ["/out/model.pt"]


def test_beyond_the_bound_a_file_counts_when_it_is_closed() -> None:
    """Those that are followed stay, so that no figure of an open file falls."""
    names = [(f"/out/{n}.csv", n) for n in range(1, OPEN + 100)]
    saves = following(*(event(PROGRESS, 5, path, ino, opened=ino, size=10) for path, ino in names))
    before = {use.path for use in saves.all_logs()}
    add_events(saves, *(event(PROGRESS, 6, path, ino, opened=ino, size=10) for path, ino in reversed(names)))
    assert {use.path for use in saves.all_logs()} == before
    add_events(saves, *(event(kind, 9, "/out/model.pt", 5000, opened=8, size=7) for kind in (OPENED, PROGRESS, CLOSED)))
    assert [(one.path, one.bytes) for one in saves.checkpoints()] == [("/out/model.pt", 7)]


def test_a_file_whose_close_was_lost_gives_its_place_and_keeps_its_bytes() -> None:
    names = [(f"/out/{n}.pt", n) for n in range(1, OPEN + 1)]
    saves = following(*(event(PROGRESS, ino, path, ino, opened=ino, size=10) for path, ino in names))
    add_events(saves, event(OPENED, 100 * NS, "/out/new.pt", 5000))
    assert len(saves.open) == OPEN
    assert [(one.path, one.bytes) for one in saves.closed] == [("/out/1.pt", 10)]


def test_directories_that_are_renamed_again_and_again_do_not_lengthen_a_path() -> None:
    saves = following(event(PROGRESS, 5, "/s/model.pt", 7, size=10))
    for at in range(200):
        saves.add_event(FileEvent(FileEventKind.RENAMED, 10 + at, 1, 1, 0, 0, "/s", "/s" * 40))
    (path,) = [one.path for one in saves.checkpoints()]
    assert path.endswith("/s/model.pt")
    assert len(path) <= LONGEST_PATH


def test_a_directory_that_is_renamed_to_and_fro_is_not_followed_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    saves, classed = following(*(event(PROGRESS, 5, f"/a/data{n}", n, size=10) for n in range(1, 100))), [0]

    def counted(*_: object, **__: object) -> purpose.FileKind:
        classed[0] += 1
        return purpose.FileKind(purpose.FileClass.OTHER)

    monkeypatch.setattr(save, "classify", counted)
    for at in range(200):
        path, other = ("/a", "/b") if at % 2 == 0 else ("/b", "/a")
        saves.add_event(FileEvent(FileEventKind.RENAMED, 10 + at, 1, 1, 0, 0, path, other))
    assert classed[0] <= 99 * (MOVES + 1)
    assert {one.moves for one in saves.open.values()} == {MOVES}


def test_the_end_of_an_empty_file_is_no_save() -> None:
    saves = following(*(event(kind, 5, "/out/model.pt", 7, size=10) for kind in (OPENED, CLOSED)))
    add_events(saves, event(CLOSED, 6, "/out/model.pt", 7), event(CLOSED, 6, "/out/other.pt", 8))
    assert (len(saves.closed), saves.closed[0].end_ns, saves.open) == (1, 5, {})


def test_open_files_are_classed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    saves = following(*(event(PROGRESS, 5, f"/out/data{n}", n, size=10) for n in range(1, 9)))
    monkeypatch.setattr(save, "classify", lambda *_, **__: purpose.FileKind(purpose.FileClass.OTHER))
    assert saves.checkpoints() == []
    monkeypatch.setattr(save, "classify", None)
    add_events(saves, *(event(PROGRESS, 6, f"/out/data{n}", n, size=20) for n in range(1, 9)))
    assert saves.checkpoints() == []
    monkeypatch.undo()
    add_events(saves, event(PROGRESS, 7, "/out/data1", 1, size=purpose.LARGE))
    assert [one.path for one in saves.checkpoints()] == ["/out/data1"]


def test_the_late_end_of_an_empty_file_does_not_hide_who_used_it_since() -> None:
    other = FileEvent(OPENED, 8, 2, 2, 1, 7, "/out/lock")
    saves = following(event(OPENED, 4, "/out/lock", 7), other, event(CLOSED, 5, "/out/lock", 7, opened=4))
    assert saves.touched(2, 7, 9) == [other]
    assert {one.key[0] for one in saves.open.values()} == {2}


def test_a_file_that_goes_on_without_a_name_keeps_its_class() -> None:
    """Its totals name it no longer; other files are opened meanwhile."""
    saves = following(event(OPENED, 1, "/out/train.log", 7))
    for number in range(2 * NAMES):
        add_events(saves, event(OPENED, 10 + number, "/out/lock", 1000 + number))
        if number % 100 == 0:
            add_events(saves, event(PROGRESS, 10 + number, "", 7, opened=1, size=number))
    assert saves.class_of(1, 7, 0) == (purpose.FileClass.LOG, "/out/train.log")


def test_totals_of_another_process_do_not_get_the_name_of_a_file_before() -> None:
    saves = following(event(OPENED, 1, "/out/train.log", 7))
    add_events(saves, FileEvent(PROGRESS, 5, 2, 2, 1, 7, "", bytes=10, calls=1, opened_ns=4))
    assert saves.touched(2, 0, 9) == []


@pytest.mark.parametrize("folder", ["tmp-", "tmp-checkpoint-", "all/staging/"])
def test_a_save_of_more_files_than_are_kept_is_one_when_its_directory_gets_its_name(folder: str) -> None:
    saves, ino = following(), 0
    for number in range(1, 5):
        begin, path = number * 300 * NS, f"/out/{folder}{number}"
        for place in range(KEEP + 100):
            ino, at = ino + 1, begin + place * NS // 100
            file = f"{path}/d/shard_{place}.bin"
            add_events(
                saves, event(OPENED, at, file, ino), event(CLOSED, at + NS // 200, file, ino, opened=at, size=9**9)
            )
            if place % 50 == 0:
                assert max(saves.numbers(), default=number) == number
        renamed = begin + (KEEP + 100) * NS // 100
        saves.add_event(FileEvent(FileEventKind.RENAMED, renamed, 1, 1, 0, 0, path, f"/out/checkpoint-{number}"))
        assert max(saves.numbers()) == number
