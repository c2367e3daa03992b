# SPDX-License-Identifier: Apache-2.0
"""Requests of a real block device, beside the kernel's own account of them."""

from __future__ import annotations

import mmap
import os
import random
import statistics
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainprobe.bpf.probes import Probes

BLOCK = 4096
ROUNDS = 5


@pytest.fixture
def file(tmp_path: Path) -> Iterator[int]:
    """A file past the page cache, on a device that takes requests."""
    if not Path(f"/sys/dev/block/{numbers(tmp_path)}").exists():
        pytest.skip("temporary files are on no block device here")
    try:
        descriptor = os.open(tmp_path / "direct", os.O_RDWR | os.O_CREAT | os.O_DIRECT)
    except OSError as error:
        pytest.skip(f"no direct I/O here: {error}")
    yield descriptor
    os.close(descriptor)


def numbers(path: Path) -> str:
    dev = path.stat().st_dev
    return f"{os.major(dev)}:{os.minor(dev)}"


def whole_device(path: Path) -> Path:
    """The directory in /sys of the device below a file, not of its partition."""
    base = Path(f"/sys/dev/block/{numbers(path)}").resolve()
    return base.parent if (base / "partition").exists() else base


def kernels(device: Path) -> tuple[int, int]:
    """Writes that ended, and the milliseconds they took: Documentation/block/stat.rst, fields 5 and 8."""
    words = (device / "stat").read_text().split()
    return int(words[4]), int(words[7])


def ours(probes: Probes, device: Path) -> tuple[int, float]:
    major, minor = map(int, (device / "dev").read_text().split(":"))
    told = [one for one in probes.block_io() if (one.dev, one.operation) == (major << 20 | minor, "write")]
    return sum(sum(one.counts) for one in told), sum(one.ns for one in told) / 1e6


def test_requests_and_their_time_are_the_kernels(probes: Probes, file: int, tmp_path: Path) -> None:
    """But for single requests: a journal's requests with a flush are missing in the kernel's account, and a kernel that
    shields a process runs no BPF program where a request's end interrupts it (tracefs shows those ends).

    A virtual machine that stands still between the tracepoint and the kernel's own reading of the clock, or in a
    request whose end is missing, parts the times of one round: they are held together in most.
    """
    device = whole_device(tmp_path)
    block = mmap.mmap(-1, 64 * BLOCK)  # aligned, as direct I/O wants it
    apart = []
    for _ in range(ROUNDS):
        writes = random.randint(300, 600)
        before, at_kernel = ours(probes, device), kernels(device)
        for at in range(writes):
            os.pwrite(file, memoryview(block)[: BLOCK * random.randint(1, 64)], at * 64 * BLOCK)
        after, at_kernel_after = ours(probes, device), kernels(device)
        told, told_spent = (late - early for late, early in zip(at_kernel_after, at_kernel, strict=True))
        assert after[0] - before[0] == pytest.approx(told, rel=0.02)
        assert after[0] - before[0] >= 0.98 * writes
        apart.append(abs(after[1] - before[1] - told_spent) / (3 + told_spent * 0.1))
    assert statistics.median(apart) <= 1, apart
