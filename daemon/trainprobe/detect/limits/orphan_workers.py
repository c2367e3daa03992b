"""Workers that outlived their trainer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trainprobe.detect.limits.base import Notice, Situation, size
from trainprobe.model.cause import Cause
from trainprobe.model.report import Evidence
from trainprobe.model.sample import OrphanSample


def told(s: Situation) -> Iterator[Notice]:
    """One notice while there are any that worked for this rank."""
    if s.orphans:
        yield notice(s.orphans, s.now_ns)


def notice(orphans: Sequence[OrphanSample], now_ns: int) -> Notice:
    """All of them in one."""
    pids = [orphan.pid for orphan in orphans]
    held = sum(orphan.pss_bytes or 0 for orphan in orphans)
    gpu = sum(1 for orphan in orphans if orphan.gpu_files)
    what = f"hold {size(held)}" + (f", and {gpu} of them a GPU" if gpu else "")
    one = f"worker {pids[0]} has" if len(pids) == 1 else f"{len(pids)} workers have"
    evidence = []
    for orphan in orphans[:20]:
        evidence.append(Evidence("memory (PSS)", orphan.pss_bytes, "bytes", orphan.pid))
        if orphan.shm_bytes:
            evidence.append(Evidence("of it shared memory", orphan.shm_bytes, "bytes", orphan.pid))
        if orphan.gpu_files:
            evidence.append(Evidence("open files of GPUs", orphan.gpu_files, "", orphan.pid))
    return Notice(
        "orphans",
        Cause.ORPHAN_WORKERS,
        now_ns,
        f"{one} outlived the trainer and {what if len(pids) > 1 else what.replace('hold', 'holds', 1)}",
        evidence=evidence,
        advice=[f"kill {' '.join(map(str, pids[:50]))}"],
        pid=pids[0],
    )
