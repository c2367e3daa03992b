# SPDX-License-Identifier: Apache-2.0
"""A processor that does not run is known by its tick; no test can stop one, so each tick's delay is told here."""

from __future__ import annotations

import ctypes
import os
import time
from statistics import median

import pytest

from trainprobe.bpf import abi
from trainprobe.bpf.compile import child, kernel_types, translate
from trainprobe.bpf.compile.cache import Cache
from trainprobe.bpf.load import install, maps
from trainprobe.bpf.read import decode
from trainprobe.model.event import HostStoodStill
from trainprobe.model.moment import NS

LIMIT = f"-DSTOOD_STILL_NS={abi.STOOD_STILL_NS}"


@pytest.mark.timeout(120)
@pytest.mark.parametrize("ticks", [True, False], ids=["ticks", "timers"])
def test_a_tick_tells_by_how_much_it_ended_late(monkeypatch: pytest.MonkeyPatch, ticks: bool) -> None:
    """A sleep until a time that has passed, as one goes on behind a stop, ends late by seconds, and says nothing."""
    monkeypatch.setattr(install, "has_hypervisor", lambda: True)
    tracefs = child.prepared()
    flags = child.compiler_flags(tracefs, Cache(""), auto=True)
    assert LIMIT in flags
    assert "-DTICK=0ull" not in flags
    lateness = [f"-DSTOOD_STILL_NS={1 if ticks else NS}" if flag == LIMIT else flag for flag in flags]
    image = translate.Compiler().compiled(translate.programs(), lateness)
    installed = install.Installer(maps.library(), tracefs, kernel_types.tracepoint_types(flags)).events(image)
    try:
        assert "raw:hrtimer_expire_entry on_timer" in installed.attached
        ring = maps.Ring(maps.library(), installed.maps["ring"])
        ring.drain()
        began = time.monotonic_ns()
        if ticks:
            while time.monotonic_ns() < began + NS // 2:
                pass
        else:
            for _ in range(50):
                sleep_until(began - 3 * NS)
        messages = [raw for raw in ring.drain() if raw[0] == abi.RingMessage.STANDSTILL]
        ended = time.monotonic_ns()
        told = [one for one in map(decode.message, messages) if isinstance(one, HostStoodStill)]
        if ticks:
            assert len(told) >= 30
            assert all(began - NS // 100 <= one.at_ns <= ended for one in told)
            assert {one.cpu for one in told} <= set(range(os.cpu_count() or 1))
            assert 0 < median(one.ns for one in told) < NS // 1000
        else:
            assert told == []
        ring.close()
    finally:
        for descriptors in (installed.attached, installed.programs, installed.maps):
            for descriptor in descriptors.values():
                os.close(descriptor)


class Timespec(ctypes.Structure):
    _fields_ = [("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long)]


def sleep_until(at_ns: int) -> None:
    """clock_nanosleep(2) of CLOCK_MONOTONIC with TIMER_ABSTIME."""
    ctypes.CDLL(None).clock_nanosleep(1, 1, ctypes.byref(Timespec(at_ns // NS, at_ns % NS)), None)
