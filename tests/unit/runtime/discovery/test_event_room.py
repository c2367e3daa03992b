"""Events of processes without a run: the latest of each, and of too many those of whoever has most go."""

from __future__ import annotations

import random
import sys
from collections import Counter
from types import FrameType

import pytest

from trainprobe.model.event import CallFailed, FileEvent, FileEventKind
from trainprobe.runtime.discovery.event_room import BUFFER, PART, EventRoom
from trainprobe.runtime.discovery.user_shares import ROOT

USER, OTHER = 1000, 1001


def opened(at: int, pid: int = 1, path: str = "/x") -> FileEvent:
    return FileEvent(FileEventKind.OPENED, at, pid, pid, 1, at, path)


def progress(at: int, ino: int) -> FileEvent:
    return FileEvent(FileEventKind.PROGRESS, at, 1, 1, 1, ino, "/log", bytes=at)


def fill(room: EventRoom, user: int, pid: int, events: int) -> None:
    for at in range(events):
        room.keep_event(user, pid, opened(at, pid))


def kept(room: EventRoom, user: int, *pids: int) -> list[int]:
    return [len(room.take_events(user, pid)) for pid in pids]


def test_of_totals_of_an_open_file_the_latest_are_kept_in_order() -> None:
    room = EventRoom(100, 10)
    room.keep_event(USER, 1, opened(0))
    for at in range(1, 40):
        room.keep_event(USER, 1, progress(at, 5))
        room.keep_event(USER, 1, progress(at, 6))
    room.keep_event(USER, 1, opened(40))
    room.keep_event(USER, 1, progress(41, 5))
    assert [event.at_ns for event in room.take_events(USER, 1)] == [0, 39, 40, 41]
    assert room.take_events(USER, 1) == []


def test_a_process_keeps_its_latest() -> None:
    room = EventRoom(10 * BUFFER, 10 * BUFFER)
    fill(room, USER, 1, BUFFER + 7)
    assert [event.at_ns for event in room.take_events(USER, 1)] == [*range(7, BUFFER + 7)]


def test_the_fullest_process_makes_room() -> None:
    room = EventRoom(1000, 100)
    for pid, events in ((1, 60), (2, 30), (3, 10), (4, 20)):
        fill(room, USER, pid, events)
    assert kept(room, USER, 1, 2, 3, 4) == [40, 30, 10, 20]
    fill(room, USER, 1, 100)
    assert kept(room, USER, 1) == [100], "there is room again"


def test_a_user_has_so_much_and_root_as_much_as_the_host() -> None:
    room = EventRoom(200, 50)
    fill(room, USER, 1, 60)
    fill(room, ROOT, 2, 120)
    fill(room, OTHER, 3, 50)
    fill(room, OTHER, 4, 10)
    assert kept(room, USER, 1) + kept(room, ROOT, 2) + kept(room, OTHER, 3, 4) == [50, 100, 40, 10]


def test_long_texts_take_more_and_what_is_larger_than_all_room_takes_nothing_away() -> None:
    room = EventRoom(100, 10)
    fill(room, USER, 1, 10)
    room.keep_event(USER, 1, opened(50, path="/" + "x" * 11 * PART))
    assert kept(room, USER, 1) == [10]
    fill(room, USER, 1, 10)
    room.keep_event(USER, 1, opened(50, path="/" + "x" * 3 * PART))
    assert [event.at_ns for event in room.take_events(USER, 1)] == [*range(4, 10), 50]


def test_nothing_of_a_full_buffer_goes_for_an_event_that_is_not_kept(rng: random.Random) -> None:
    room, everything = EventRoom(60, 30), Counter[tuple[int, int]]()
    for at in range(2000):
        user, pid = rng.choice((USER, OTHER, ROOT)), rng.randrange(8)
        event = rng.choice((opened(at, pid, "/" + "x" * rng.randrange(4 * PART)), CallFailed(at, pid, pid, "open", 24)))
        room.keep_event(user, pid, event)
        everything[user, pid] += 1
        if rng.random() < 0.05:
            taken = room.take_events(user, pid)
            assert taken[-1] is event
            everything[user, pid] = 0
    taken_of = {owner: room.take_events(*owner) for owner in everything}
    assert all(len(taken) <= everything[owner] for owner, taken in taken_of.items())
    assert room._parts == 0
    assert not room._users


@pytest.mark.parametrize("bound", ["user", "host"])
def test_at_the_bound_an_event_costs_the_same_beside_many_processes(bound: str) -> None:
    few, many = lines_run(64, bound), lines_run(2048, bound)
    assert many <= 1.2 * few


def lines_run(processes: int, bound: str) -> int:
    """Lines that so many events at the bound take: of one process, and of each in turn."""
    room = EventRoom(2 * processes, 2 * processes) if bound == "user" else EventRoom(2 * processes, 1 << 30)
    user = USER if bound == "user" else ROOT
    for pid in range(processes):
        fill(room, user, pid, 2)
    lines = 0

    def trace(frame: FrameType, event: str, arg: object) -> object:
        nonlocal lines
        lines += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        for at in range(500):
            room.keep_event(user, 0, opened(at))
            room.keep_event(user, at % processes, opened(at, at % processes))
    finally:
        sys.settrace(before)
    return lines
