# SPDX-License-Identifier: Apache-2.0
"""A step that takes longer than it may wakes whoever waits on the ring, while it goes on or as it ends."""

from __future__ import annotations

import os
import random
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from benchmarks import pace
from tests.kernel.observing import Observed, await_true
from tests.kernel.test_training import start
from trainprobe.bpf.probes import Probes
from trainprobe.collect.procfs import Proc
from trainprobe.model.cells import RowKind
from trainprobe.model.step_deadline import Armed

MS = 1_000_000


@pytest.fixture(scope="module")
def training(probes: Probes, torch_python: str) -> Iterator[Observed]:
    """Steps of some 50 ms."""
    program = start(probes, torch_python, "--steps", "100000", "--workers", "0", "--sample-seconds", "0.006")
    program.attach_marks()
    program.go()
    try:
        await_true(lambda: program.collect() is not None and len(program.told.rows(RowKind.OPTIMIZER)) > 5, "steps")
        yield program
    finally:
        program.process.kill()
        program.finish()


def allow(probes: Probes, training: Observed, limit_ns: int, *, ended: bool = True) -> None:
    """Steps of so long."""
    assert probes.alarm([Armed(training.pid, 0, 0, 0, limit_ns)], ended=ended, together=random.random() < 0.5)


def woken(probes: Probes, seconds: float, *, enough: int = 1 << 30) -> int:
    """How often the ring wakes its reader."""
    times, until = 0, time.monotonic() + seconds
    with select.epoll() as epoll:
        epoll.register(probes.fileno(), select.EPOLLIN | select.EPOLLET)
        epoll.poll(0)  # that there is something is told once
        while times < enough and (left := until - time.monotonic()) > 0:
            times += len(epoll.poll(left))
    return times


def test_a_step_that_ends_late_wakes_and_others_do_not(probes: Probes, training: Observed) -> None:
    allow(probes, training, 3600 * 1000 * MS)
    training.collect()
    assert woken(probes, 1.0) <= 1, "what is told quietly wakes once for a half of the ring"
    allow(probes, training, random.randrange(1, 1000))
    assert woken(probes, 10.0, enough=5) == 5
    allow(probes, training, random.randrange(1, 1000), ended=False)
    training.collect()
    assert woken(probes, 1.0) <= 1, "nor does one that was late where nobody asked for it"


def test_a_step_that_goes_on_wakes_once(probes: Probes, training: Observed) -> None:
    allow(probes, training, limit := random.randrange(150, 400) * MS, ended=random.random() < 0.5)
    os.kill(training.pid, signal.SIGSTOP)
    try:
        time.sleep(0.05)
        training.collect()
        began = time.monotonic()
        assert woken(probes, 5.0, enough=1) == 1
        assert pace.within(time.monotonic() - began, limit / 1e9 + 1.0)
        training.collect()
        assert woken(probes, 1.0) == 0, "it is told once"
    finally:
        os.kill(training.pid, signal.SIGCONT)


def test_nobody_is_woken_who_asks_for_nothing(probes: Probes, training: Observed) -> None:
    allow(probes, training, 100 * MS)
    assert probes.alarm([], ended=True, together=True)
    os.kill(training.pid, signal.SIGSTOP)
    try:
        time.sleep(0.05)
        training.collect()
        assert woken(probes, 1.0) == 0
    finally:
        os.kill(training.pid, signal.SIGCONT)


def test_more_drivers_than_there_is_room_for_are_refused(probes: Probes) -> None:
    assert not probes.alarm([Armed(tid, 0, 0, 0, 100 * MS) for tid in range(1, 66)], ended=True, together=True)


def test_a_python_that_begins_is_looked_at_soon(probes: Probes) -> None:
    """It may be a training that none of our marks sees."""
    finding = Probes.start(Proc(), auto=True)
    try:
        assert finding.alarm([Armed(os.getpid(), 0, 0, 0, 3600 * 1000 * MS)], ended=True, together=True)
        subprocess.run([sys.executable, "-c", "pass"], check=True)
        assert woken(finding, 8.0, enough=1) == 1
    finally:
        finding.close()
