from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from trainprobe.collect.patience import (
    LEFT_BEHIND,
    OF_ONE_USER,
    OF_ROOT,
    ROOT,
    SLOW_ROOM_SECONDS,
    SLOW_SHARE,
    Patience,
)


def test_answers_come_through() -> None:
    patience = Patience()
    assert [patience.read(1, lambda: b"x"), patience.read(1, lambda: None)] == [b"x", None]
    assert patience.hanging() == ()


def test_a_read_that_hangs_is_left_behind_and_asked_again_when_it_has_returned() -> None:
    patience, free = Patience(0.02), threading.Event()

    def hang() -> bytes:
        free.wait(10)
        return b"late"

    began = time.monotonic()
    assert patience.read(1, hang) is None
    assert patience.read(1, lambda: b"never asked") is None
    assert time.monotonic() - began < 1
    assert patience.hanging() == (1,)
    assert patience.read(2, lambda: b"other") == b"other"
    free.set()
    deadline = time.monotonic() + 5
    while patience.hanging() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert patience.read(1, lambda: b"again") == b"again"


def hang_on(free: threading.Event) -> Callable[[], bytes]:
    def hang() -> bytes:
        free.wait(10)
        return b"late"

    return hang


def test_there_is_an_end_to_threads_that_hang() -> None:
    patience, free = Patience(0.001, uid_of=lambda pid: 1000 + pid), threading.Event()
    before = set(threading.enumerate())
    for pid in range(2 * LEFT_BEHIND):
        assert patience.read(pid, hang_on(free)) is None
    assert len(set(threading.enumerate()) - before) == LEFT_BEHIND
    free.set()


@pytest.mark.parametrize(("uid", "most"), [(1000, OF_ONE_USER), (ROOT, OF_ROOT)])
def test_reads_of_one_user_that_hang_stop_no_others(uid: int, most: int) -> None:
    patience, free = Patience(0.01, uid_of=lambda pid: uid if pid < 100 else 1001), threading.Event()
    for pid in range(40):
        assert patience.read(pid, hang_on(free)) is None
    assert len(patience.hanging()) == most
    assert patience.read(99, lambda: b"x") is None
    assert patience.read(100, lambda: b"x") == b"x"
    free.set()


def test_of_many_those_that_hang_are_left_out() -> None:
    patience, free = Patience(0.02), threading.Event()
    hang = hang_on(free)
    asked = []

    def job(pid: int) -> bytes | None:
        asked.append(pid)
        return hang() if pid in (3, 7) else None if pid == 5 else b"%d" % pid

    before = set(threading.enumerate())
    assert patience.each(range(10), job) == {pid: b"%d" % pid for pid in (0, 1, 2, 4, 6, 8, 9)}
    assert asked == list(range(10)), "each is asked once"
    assert patience.hanging() == (3, 7)
    assert patience.each((3, 4), job) == {4: b"4"}
    free.set()
    deadline = time.monotonic() + 5
    while len(set(threading.enumerate()) - before) > 1 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert len(set(threading.enumerate()) - before) == 1, "those that were left behind end"
    assert patience.each((3, 4), job) == {3: b"late", 4: b"4"}
    assert patience.each((), job) == {}


def test_slow_reads_of_one_user_take_a_share_of_the_time_and_no_more() -> None:
    now = 100.0
    patience = Patience(clock=lambda: now, uid_of=lambda pid: {1: 1000, 2: 1001, 3: ROOT}[pid])
    read = 0

    def slow() -> bytes:
        nonlocal now, read
        now, read = now + 0.2, read + 1
        return b"x"

    began = now
    while now < began + 100:
        patience.read(1, slow)
        assert patience.read(2, lambda: b"other") == b"other"
        assert patience.read(3, lambda: b"root's") == b"root's"
        now += 0.1
    assert 0.2 * read <= SLOW_ROOM_SECONDS + SLOW_SHARE * 100 + 0.2
    assert read >= 20


def test_one_thread_serves_all_ordinary_reads() -> None:
    patience = Patience()
    before = set(threading.enumerate())
    for pid in range(100):
        patience.read(pid, lambda: b"")
    assert len(set(threading.enumerate()) - before) == 1


def test_many_reads_of_a_user_that_hang_hold_up_the_loop_little_longer_than_one() -> None:
    patience, free = Patience(0.25, uid_of=lambda pid: ROOT if pid < 100 else 1000), threading.Event()
    began = time.monotonic()
    for pid in range(OF_ROOT):
        assert patience.read(pid, hang_on(free)) is None
    assert time.monotonic() - began < 0.25 + 1.2
    assert len(patience.hanging()) == OF_ROOT
    assert patience.read(100, lambda: time.sleep(0.1) or b"slow") == b"slow", "another user's is waited for as ever"
    free.set()
