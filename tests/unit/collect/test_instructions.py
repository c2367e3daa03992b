"""The processor's counter of instructions: a thread's, only while it is asked for; nothing is left open."""

from __future__ import annotations

import errno
import os
import threading
import time
from functools import partial
from types import SimpleNamespace

import pytest

from trainprobe.collect import instructions
from trainprobe.collect.instructions import Instructions
from trainprobe.collect.procfs import Proc


def spun(times: int) -> int:
    total = 0
    for number in range(times):
        total += number & 7
    return total


def counted(work: int) -> int:
    """Of so much work in this thread; skips the test where nothing counts."""
    counters, me = Instructions(Proc()), (os.getpid(), threading.get_native_id())
    counters.count([me])
    spun(work)
    read = counters.read()
    counters.close()
    if not read:
        pytest.skip("this machine counts no instructions")
    (sample,) = read
    assert (sample.pid, sample.tid) == me
    assert sample.at_ns - sample.since_ns > 0
    assert sample.switches is None or sample.switches >= 0
    return sample.instructions


def test_twice_the_work_is_twice_the_instructions() -> None:
    once, twice = (min(counted(work) for _ in range(3)) for work in (200_000, 400_000))
    assert twice / once == pytest.approx(2.0, rel=0.05)


def descriptors() -> set[str]:
    return {name for name in os.listdir("/proc/self/fd") if "perf_event" in _target(name)}


def _target(name: str) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{name}")
    except OSError:
        return ""


def test_nothing_is_left_open() -> None:
    counters, before = Instructions(Proc()), descriptors()
    end = threading.Event()
    thread = threading.Thread(target=end.wait)
    thread.start()
    counters.count([(os.getpid(), thread.native_id or 0), (os.getpid(), threading.get_native_id())])
    counters.count([(os.getpid(), thread.native_id or 0)])
    end.set()
    thread.join()
    counters.read()
    counters.close()
    assert descriptors() == before
    assert counters.read() == ()


def test_a_thread_that_is_gone_is_no_machine_without_counters() -> None:
    thread = threading.Thread(target=lambda: None)
    thread.start()
    thread.join()
    while os.path.exists(f"/proc/self/task/{thread.native_id}"):  # join() is for Python's part of it
        time.sleep(0.001)
    counters = Instructions(Proc())
    counters.count([(os.getpid(), thread.native_id or 0)])
    assert counters.read() == ()
    assert counted(1000) > 1000


def test_a_machine_that_refuses_is_left_alone_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    proc, me, asked = Proc(), (os.getpid(), threading.get_native_id()), []
    counters = Instructions(proc)

    def refuse(*arguments: int) -> bytes:
        asked.append(arguments)
        return b"%d" % errno.ENOENT

    monkeypatch.setattr(proc, "counter", refuse)
    for now in (0, 1, instructions.REFUSED_NS - 1, instructions.REFUSED_NS):
        monkeypatch.setattr(instructions, "time", SimpleNamespace(monotonic_ns=partial(int, now)))
        counters.count([me])
        assert counters.read() == ()
    assert len(asked) == 2
