# SPDX-License-Identifier: Apache-2.0
"""Where the marks on CUDA go, and what becomes of the places that its calls return to."""

from __future__ import annotations

import os
import threading
import time
from ctypes import c_uint8
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from tests.builders.waiting import wait_until
from trainprobe.bpf import abi
from trainprobe.bpf.abi import SiteState
from trainprobe.bpf.attach import cuda
from trainprobe.bpf.attach.gpu_clocks import GpuClocks
from trainprobe.bpf.attach.mapped_files import MappedCode, executable_maps
from trainprobe.bpf.attach.mark_table import Mark
from trainprobe.bpf.load.kernel_calls import UprobeRefused
from trainprobe.collect.procfs import Proc

ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="not root")


@dataclass
class Sites:
    """The kernel's table."""

    states: dict[tuple[int, int], int | None] = field(default_factory=dict)

    def put(self, key: abi.GpuSite, value: c_uint8) -> bool:
        self.states[key.tgid, key.address] = value.value
        return True

    def delete(self, key: abi.GpuSite) -> bool:
        self.states[key.tgid, key.address] = None
        return True


class Empty:
    """A table of the kernel in which nothing is kept."""

    def put(self, key: object, value: object) -> bool:
        return True

    def delete(self, key: object) -> bool:
        return True

    def entries(self) -> list[Any]:
        return []


@dataclass
class Kernel:
    """Takes every probe, or none, and remembers where it was to go."""

    refuses: bool = False
    marked: list[tuple[bytes, tuple[Mark, ...]]] = field(default_factory=list)
    armed: list[tuple[int, int]] = field(default_factory=list)
    alone: list[tuple[bytes, tuple[Mark, ...]]] = field(default_factory=list)  # for one process

    def attach_at(self, pid: int, place: MappedCode, marks: tuple[Mark, ...]) -> dict[str, bool]:
        self.marked.append((os.path.basename(place.path), marks))
        return {mark.name: True for mark in marks}

    def attach_for(self, pid: int, place: MappedCode, marks: tuple[Mark, ...]) -> list[int]:
        self.alone.append((os.path.basename(place.path), marks))
        return [] if self.refuses else [os.open("/dev/null", os.O_RDONLY)]

    def attach_site(self, program: int, path: str, offset: int, counter: int, pid: int) -> int:
        if self.refuses:
            raise UprobeRefused("no")
        self.armed.append((offset, pid))
        return os.open("/dev/null", os.O_RDONLY)


def made(kernel: Kernel) -> tuple[cuda.Cuda, Sites]:
    sites = Sites()
    clocks = GpuClocks(cast(Any, Empty()), cast(Any, Empty()), kernel.attach_for)
    return cuda.Cuda(kernel.attach_at, kernel.attach_site, {cuda.RETURN: 7}, cast(Any, sites), clocks, Proc()), sites


def settled(sites: Sites, address: int) -> int | None:
    until = time.monotonic() + 30
    while (os.getpid(), address) not in sites.states:
        assert time.monotonic() < until
        time.sleep(0.002)
    return sites.states[os.getpid(), address]


def code() -> MappedCode:
    """Some code of a file that this very process maps."""
    return next(place for place in executable_maps(os.getpid(), Proc()) if b"libc.so" in place.path)


@ROOT_ONLY
def test_a_place_is_watched_in_its_file_and_for_its_process_alone() -> None:
    kernel = Kernel()
    marks, sites = made(kernel)
    place, pid = code(), os.getpid()
    marks.arm(pid, place.start + 64)
    assert settled(sites, place.start + 64) == SiteState.ARMED
    assert kernel.armed == [(place.offset + 64, pid)]
    sites.states.clear()
    marks.arm(pid, place.start + 64)  # the kernel's entry made room for another one
    assert settled(sites, place.start + 64) == SiteState.ARMED
    assert len(kernel.armed) == 1
    marks.forget(pid)
    assert sites.states == {(pid, place.start + 64): None}
    marks.close()


@ROOT_ONLY
@pytest.mark.parametrize("refuses", [True, False])
def test_a_place_that_cannot_be_watched_is_let_be(refuses: bool) -> None:
    """No file is mapped there, as where a compiler made code at run time, or the kernel says no."""
    marks, sites = made(Kernel(refuses))
    address = code().start if refuses else 16
    marks.arm(os.getpid(), address)
    assert settled(sites, address) == SiteState.REFUSED
    marks.close()


def test_the_runtime_goes_before_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both would see each call, one inside the other. Each library is marked once."""
    folder = b"/nonesuch/"
    here = Path("/proc/self/map_files")
    if not os.access(here, os.R_OK):
        pytest.skip("/proc/PID/map_files cannot be read")
    real = code()
    names = [b"libcuda.so.1", b"libcudart-a7b20f20.so.11.0", b"libcudart_static.so", b"libcudadebugger.so.1"]
    monkeypatch.setattr(cuda, "executable_maps", lambda *_: [real._replace(path=folder + name) for name in names])
    kernel = Kernel()
    marks, _ = made(kernel)
    marks._attach_missing(os.getpid())
    marks._attach_missing(os.getpid())
    assert kernel.marked == [(names[1], cuda.IN_RUNTIME), (names[0], cuda.IN_DRIVER)]
    names.remove(b"libcudart-a7b20f20.so.11.0")
    marks._attach_missing(os.getpid())
    assert kernel.marked[2:] == [(names[0], cuda.IN_DRIVER_ALONE)]
    assert kernel.alone == []
    marks.close()


@ROOT_ONLY
def test_a_process_whose_calls_are_its_clock_has_probes_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """On both libraries, as XLA calls past the runtime; none once it has better marks."""
    real, names = code(), [b"libcuda.so.1", b"libcudart.so.12"]
    monkeypatch.setattr(cuda, "executable_maps", lambda *_: [real._replace(path=b"/x/" + name) for name in names])
    kernel = Kernel()
    marks, _ = made(kernel)
    marks._unmarked.add(os.getpid())
    for _ in range(2):
        marks._attach_missing(os.getpid())
    assert kernel.alone == [(name, cuda.RARE) for name in names]
    assert kernel.marked == [(names[1], cuda.IN_RUNTIME), (names[0], cuda.IN_DRIVER_ALONE)]
    marks.take_clock(os.getpid())
    marks._attach_missing(os.getpid())
    assert len(kernel.alone) == 2
    marks.close()


class TwoUsers(Proc):
    """Processes below 1000 are one user's, the others another one's; each maps one library."""

    def __init__(self) -> None:
        super().__init__()
        self.hangs = threading.Event()
        self.looked: list[int] = []
        self.owner = lambda pid: 1001 if pid < 1000 else 1002
        self.apart = lambda: self

    def maps(self, pid: int) -> bytes:
        self.looked.append(pid)
        if pid < 1000:
            self.hangs.wait(30)
        return b"7f0000000000-7f0000400000 r-xp 00000000 fd:01 12 /opt/program\n"


def of_two_users(kernel: Kernel) -> tuple[cuda.Cuda, Sites, TwoUsers]:
    sites, proc = Sites(), TwoUsers()
    clocks = GpuClocks(cast(Any, Empty()), cast(Any, Empty()), kernel.attach_for)
    made_of = (kernel.attach_at, kernel.attach_site, {cuda.RETURN: 7}, cast(Any, sites), clocks, proc)
    return cuda.Cuda(*made_of), sites, proc


def test_processes_of_one_user_that_hang_take_no_place_of_anothers() -> None:
    marks, _, proc = of_two_users(Kernel())
    for pid in (*range(100, 150), 2000):
        marks.attach_marks(pid)
    wait_until(lambda: 2000 in proc.looked)
    assert sum(pid < 1000 for pid in proc.looked) == 4
    proc.hangs.set()
    wait_until(lambda: not marks._waiting)
    marks.close()


def test_places_of_one_users_processes_leave_room_for_anothers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "MAX_SITES", 8)
    monkeypatch.setattr(cuda, "MAX_IN_ALL", 32)
    monkeypatch.setattr(cuda, "open_mapping", lambda pid, start, end: os.open("/dev/null", os.O_RDONLY))
    marks, sites, proc = of_two_users(Kernel())
    proc.hangs.set()
    for pid in (*range(100, 110), 2000):
        for number in range(8):
            marks.arm(pid, 0x7F0000000000 + number)
        wait_until(lambda: not marks._waiting)
    armed = [pid for (pid, _), state in sites.states.items() if state == SiteState.ARMED]
    assert sum(pid < 1000 for pid in armed) == 16
    assert armed.count(2000) == 8
    marks.close()
