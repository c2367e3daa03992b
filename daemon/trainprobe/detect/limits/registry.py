"""The rules about limits, in the order in which their notices are told."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trainprobe.detect.limits import (
    disk_full,
    fd_exhaustion,
    gpu_error,
    gpu_memory,
    orphan_workers,
    out_of_memory,
    pid_exhaustion,
    shm_exhaustion,
    shm_leak,
)
from trainprobe.detect.limits.base import LimitRule, Notice, Situation

RULES: Sequence[LimitRule] = (
    gpu_error.told,
    out_of_memory.told,
    gpu_memory.told,
    fd_exhaustion.told,
    shm_exhaustion.told,
    disk_full.told,
    pid_exhaustion.told,
    shm_leak.told,
    orphan_workers.told,
)


def notices(situation: Situation) -> Iterator[Notice]:
    """What every rule has to say."""
    for rule in RULES:
        yield from rule(situation)
