# SPDX-License-Identifier: Apache-2.0
"""A processor that does not run is known by its timers; no test can stop one, so each timer's delay is told here."""

from __future__ import annotations

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
def test_a_timer_tells_by_how_much_it_ended_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(install, "has_hypervisor", lambda: True)
    tracefs = child.prepared()
    flags = child.compiler_flags(tracefs, Cache(""), auto=True)
    assert LIMIT in flags
    any_delay = ["-DSTOOD_STILL_NS=1" if flag == LIMIT else flag for flag in flags]
    image = translate.Compiler().compiled(translate.programs(), any_delay)
    installed = install.Installer(maps.library(), tracefs, kernel_types.tracepoint_types(flags)).events(image)
    try:
        assert "raw:hrtimer_expire_entry on_timer" in installed.attached
        ring = maps.Ring(maps.library(), installed.maps["ring"])
        ring.drain()
        began = time.monotonic_ns()
        for _ in range(100):
            time.sleep(0.001)
        messages = [raw for raw in ring.drain() if raw[0] == abi.RingMessage.STANDSTILL]
        ended = time.monotonic_ns()
        told = [one for one in map(decode.message, messages) if isinstance(one, HostStoodStill)]
        assert len(told) >= 50
        assert all(began - NS // 100 <= one.at_ns <= ended for one in told)
        assert 0 < median(one.ns for one in told) < NS // 1000, "a timer of another clock is late by years"
        ring.close()
    finally:
        for descriptors in (installed.attached, installed.programs, installed.maps):
            for descriptor in descriptors.values():
                os.close(descriptor)
