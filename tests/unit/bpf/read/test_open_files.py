"""Files of processes that end: found without a search, however many end."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from trainprobe.bpf import abi
from trainprobe.bpf.read.open_files import OpenFiles
from trainprobe.model.event import FileEvent, FileEventKind

NOW = 10**12


class Map:
    def __init__(self) -> None:
        self.kept: dict[tuple[int, int, int], abi.FileUse] = {}
        self.searched = 0

    def entries(self) -> list[tuple[abi.FileKey, abi.FileUse]]:
        self.searched += 1
        return [(abi.FileKey(tgid=pid, dev=dev, ino=ino), use) for (pid, dev, ino), use in self.kept.items()]

    def pop(self, key: abi.FileKey) -> abi.FileUse | None:
        return self.kept.pop((key.tgid, key.dev, key.ino), None)

    def delete(self, key: abi.FileKey) -> bool:
        return self.pop(key) is not None


class World:
    def __init__(self) -> None:
        self.map, nothing = Map(), SimpleNamespace(entries=list)
        loaded = SimpleNamespace(map=lambda name, key, value: self.map if name == "files" else nothing)
        parts = cast(Any, (loaded, nothing, SimpleNamespace(complete=lambda event: event)))
        self.files = OpenFiles(*parts)

    def open(self, pid: int, ino: int, *, lost: bool = False) -> None:
        """``lost``: the event does not reach us."""
        self.map.kept[pid, 1, ino] = abi.FileUse(descriptors=1, calls=3, bytes=100, told=NOW)
        if not lost:
            self.files.opened(FileEvent(FileEventKind.OPENED, NOW, pid, pid, 1, ino, "", ""))


def test_the_files_of_a_process_that_ends_are_closed() -> None:
    world = World()
    for pid, ino in ((10, 1), (10, 2), (11, 1)):
        world.open(pid, ino)
    closed = world.files.end_of(10, NOW)
    assert [(event.kind, event.pid, event.ino, event.bytes) for event in closed] == [
        (FileEventKind.CLOSED, 10, 1, 100), (FileEventKind.CLOSED, 10, 2, 100),
    ]  # fmt: skip
    assert list(world.map.kept) == [(11, 1, 1)]


def test_the_map_is_not_searched_for_each_process_that_ends() -> None:
    world = World()
    for ino in range(500):
        world.open(10, ino)
    for pid in range(1000, 2000):
        assert world.files.end_of(pid, NOW) == []
    assert world.map.searched == 0


def test_files_that_a_pass_met_are_known_whether_their_opening_reached_us_or_not() -> None:
    world = World()
    world.open(10, 1, lost=True)
    world.files.read(NOW)
    assert [event.ino for event in world.files.end_of(10, NOW)] == [1]


def test_a_file_whose_opening_was_lost_is_closed_at_the_next_pass() -> None:
    world = World()
    world.open(10, 1, lost=True)
    assert world.files.end_of(10, NOW) == []
    assert world.files.read(NOW) == []
    assert [(event.kind, event.pid) for event in world.files.take_late()] == [(FileEventKind.CLOSED, 10)]
    assert world.map.kept == {}


def test_files_of_a_process_that_is_watched_no_longer_are_forgotten() -> None:
    """Their descriptors would be counted to those of the next time, and their ends be missed."""
    world = World()
    for pid, ino in ((10, 1), (10, 2), (11, 1)):
        world.open(pid, ino)
    world.files.forget(10)
    assert list(world.map.kept) == [(11, 1, 1)]
    assert [event.pid for event in world.files.read(NOW)] == [11]
    assert world.files.take_late() == []
    world.open(10, 3)
    assert [event.ino for event in world.files.read(NOW) if event.pid == 10] == [3]


def test_the_end_of_a_file_that_was_never_written_is_told_where_the_kernel_did_not() -> None:
    world, late = World(), NOW + 12 * 10**9
    world.map.kept[10, 1, 1] = abi.FileUse(opened=NOW, told=NOW, closed=NOW + 5)
    world.map.kept[10, 1, 2] = abi.FileUse(opened=NOW, told=NOW + 10**9, closed=NOW + 10**9)  # told with its close
    world.files.read(late)
    assert [(event.kind, event.at_ns, event.ino) for event in world.files.take_late()] == [
        (FileEventKind.CLOSED, NOW + 5, 1)
    ]
    assert world.map.kept == {}
