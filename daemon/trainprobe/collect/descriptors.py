"""What the open descriptors of a process are. Dear with many of them, so looked at only when they run short."""

from __future__ import annotations

import os
from functools import partial

from trainprobe.collect.procfs import FDS_LIMIT, Proc
from trainprobe.model.sample import DescriptorSample

LOOK_LIMIT = 4096  # of one process; what is beyond is counted, not looked at


def kinds(proc: Proc, pid: int) -> DescriptorSample | None:
    """Descriptors by kind; None: the process is gone, or does not let itself be read."""
    return proc.patient(pid, partial(_kinds, proc, pid))


def _kinds(proc: Proc, pid: int) -> DescriptorSample | None:
    directory = f"{proc.root}/{pid}/fd"
    try:
        names = os.listdir(directory)[:FDS_LIMIT]
    except OSError:
        return None
    counts: dict[str, int] = {}
    looked = 0
    for name in names[:: max(1, -(-len(names) // LOOK_LIMIT))]:
        try:
            kind = kind_of(os.readlink(f"{directory}/{name}"))
        except OSError:
            continue
        looked += 1
        counts[kind] = counts.get(kind, 0) + 1
    return DescriptorSample(pid, len(names), counts, looked)


def gpu_files(proc: Proc, pid: int) -> int | None:
    """Descriptors of NVIDIA devices; None: the process is gone or not ours to read."""
    found = kinds(proc, pid)
    return None if found is None else found.kinds.get("GPU", 0)


def kind_of(target: str) -> str:
    """The kind of what a link in /proc/PID/fd names."""
    if target.startswith(("/dev/shm/torch_", "/torch_")) or (
        target.startswith("/dev/shm/") and target.endswith("(deleted)")
    ):
        return "shared memory"
    for start, kind in _STARTS:
        if target.startswith(start):
            return kind
    return "file" if target.startswith("/") else "other"


_STARTS = (
    ("/memfd:", "shared memory"),
    ("/dev/nvidia", "GPU"),
    ("/dev/", "device"),
    ("socket:", "socket"),
    ("pipe:", "pipe"),
    ("anon_inode:", "event"),
)
