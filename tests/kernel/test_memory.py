# SPDX-License-Identifier: Apache-2.0
"""Faults, the out-of-memory killer, and what watching costs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.limits import groups
from benchmarks.stalls.host import CannotHere
from tests.kernel.observing import Observed, observe
from trainprobe.bpf.probes import Probes
from trainprobe.model.cells import Leaf
from trainprobe.model.event import ProcessEventKind

MAPPED = """
import mmap, os, sys
fd = os.open(sys.argv[1], os.O_RDONLY)
size = os.fstat(fd).st_size
os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
with mmap.mmap(fd, size, prot=mmap.PROT_READ) as m:
    m.madvise(mmap.MADV_RANDOM)
    for at in range(0, size, 1 << 16): m[at]
"""


@pytest.fixture
def file_on_disk(tmp_path: Path) -> Path:
    path = tmp_path / "data.bin"
    with path.open("wb") as file:
        file.write(os.urandom(8 << 20))
        os.fsync(file.fileno())
    return path


@pytest.mark.parametrize("tracing", [False, True], ids=["usual", "every fault traced"])
def test_major_faults_on_a_mapped_file(probes: Probes, file_on_disk: Path, tracing: bool) -> None:
    probes.fault_tracing(tracing)
    try:
        told = observe(probes, MAPPED, str(file_on_disk))
    finally:
        probes.fault_tracing(False)
    row = told.last_row
    assert row.major_faults >= 100
    assert row.swap_faults is None or row.swap_faults < 20, "they are on a file"
    assert told.seconds(Leaf.FAULT) > 0.0005
    assert told.seconds(Leaf.SWAP) < 0.005
    assert sum(row.cells) == row.at_ns - row.opened_ns


COLD = """
import mmap, os, sys, time
fd = os.open(sys.argv[1], os.O_RDONLY)
size = os.fstat(fd).st_size
os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
with mmap.mmap(fd, size, prot=mmap.PROT_READ) as m:
    m.madvise(mmap.MADV_RANDOM)
    kept = bytearray(b"x") * (1 << 20)
    print("faulted", flush=True)
    sys.stdin.readline()
    end = time.thread_time() + 0.5
    while time.thread_time() < end: pass
    m[size // 2]
"""


def test_what_is_computed_after_faults_were_traced_is_no_fault(probes: Probes, file_on_disk: Path) -> None:
    """The last fault that was traced is long over when the next one waits."""
    probes.fault_tracing(True)
    try:
        program = Observed.python(probes, COLD, str(file_on_disk)).go()
        assert program.process.stdin
        assert program.process.stdout
        assert program.process.stdout.readline() == "faulted\n"
    finally:
        probes.fault_tracing(False)
    program.process.stdin.write("\n")
    program.process.stdin.flush()
    told = program.finish()
    assert told.last_row.major_faults >= 1
    assert told.seconds(Leaf.FAULT) + told.seconds(Leaf.SWAP) < 0.05
    assert told.seconds(Leaf.CPU) > 0.49


def test_fault_tracing_can_be_switched_again_and_again(probes: Probes) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        probes.fault_tracing(True)
        probes.fault_tracing(True)
        probes.fault_tracing(False)
        probes.fault_tracing(False)
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.fixture
def small_memory() -> Iterator[Path]:
    """A memory cgroup of 64 MB; yields its cgroup.procs."""
    try:
        with groups.memory(f"trainprobe-test-{os.getpid()}", 64 << 20) as made:
            yield made / "cgroup.procs"
    except CannotHere as reason:
        pytest.skip(str(reason))


def test_a_victim_of_the_oom_killer(probes: Probes, small_memory: Path) -> None:
    body = "open(__import__('sys').argv[1], 'w').write('0')\nx = bytearray(256 << 20)"
    program = Observed.python(probes, body, str(small_memory)).go()
    told = program.finish()
    assert told.status == -9
    (victim,) = told.processes(ProcessEventKind.OOM)
    assert victim.pid == program.pid
    (end,) = told.processes(ProcessEventKind.EXIT)
    assert end.signal == 9
    assert all(not sent.by_user for sent in told.processes(ProcessEventKind.SIGNAL))


def test_cost_is_told_only_while_the_kernel_counts_it(probes: Probes) -> None:
    switch = Path("/proc/sys/kernel/bpf_stats_enabled")
    before = switch.read_text()
    try:
        switch.write_text("0")
        assert probes.cost() == (None, {})
        switch.write_text("1")
        observe(probes, "import time\nfor _ in range(200): time.sleep(0.001)")
        seconds, runs = probes.cost()
        assert seconds is not None
        assert 0 < seconds < 1
        assert runs["on_switch"] >= 400
    finally:
        switch.write_text(before)
