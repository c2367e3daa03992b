from __future__ import annotations

import threading
import time

from trainprobe.collect.patience import LEFT_BEHIND, Patience


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


def test_there_is_an_end_to_threads_that_hang() -> None:
    patience, free = Patience(0.01), threading.Event()
    before = set(threading.enumerate())
    for pid in range(20):
        assert patience.read(pid, lambda: b"" if free.wait(10) else None) is None
    assert len(set(threading.enumerate()) - before) == LEFT_BEHIND
    free.set()


def test_one_thread_serves_all_ordinary_reads() -> None:
    patience = Patience()
    before = set(threading.enumerate())
    for pid in range(100):
        patience.read(pid, lambda: b"")
    assert len(set(threading.enumerate()) - before) == 1
