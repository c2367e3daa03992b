"""What the open descriptors of a process are. Dear with many of them, so looked at only when they run short."""

from __future__ import annotations

from collections import Counter

from trainprobe.collect.procfs import FDS_LIMIT, Proc
from trainprobe.model.sample import DescriptorSample

LOOK_LIMIT = 4096  # of one process; what is beyond is counted, not looked at


def kinds(proc: Proc, pid: int) -> DescriptorSample | None:
    """Descriptors by kind; None: the process is gone, or does not let itself be read."""
    count, *targets = (proc.ask(pid, "links", "fd", FDS_LIMIT, LOOK_LIMIT) or b"").split(b"\0")
    if not count:
        return None
    counts = Counter(kind_of(target.decode("utf-8", "surrogateescape")) for target in targets)
    return DescriptorSample(pid, int(count), dict(counts), len(targets))


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
