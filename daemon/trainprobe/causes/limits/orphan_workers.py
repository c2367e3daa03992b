"""Workers that outlived their trainer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trainprobe.causes import groups
from trainprobe.causes.situation import Notice, Situation
from trainprobe.causes.spec import CauseSpec, OrderedCheck
from trainprobe.model.cause import Cause, Kind
from trainprobe.model.message import template
from trainprobe.model.report import Evidence
from trainprobe.model.sample import OrphanSample

ONE = template("orphan_workers.one", "worker {pid} has outlived the trainer and holds {held:bytes}{gpus}")
SEVERAL = template("orphan_workers.several", "{workers} workers have outlived the trainer and hold {held:bytes}{gpus}")
OF_THEM_GPU = template("orphan_workers.gpus", ", and {count} of them a GPU")
MEMORY = template("orphan_workers.memory", "memory (PSS)")
SHARED = template("orphan_workers.shared", "of it shared memory")
GPU_FILES = template("orphan_workers.gpu_files", "open files of GPUs")
KILL = template("orphan_workers.kill", "kill {pids: }")


def check(s: Situation) -> Iterator[Notice]:
    """One notice while there are any that worked for this rank."""
    if s.orphans:
        yield notice(s.orphans, s.now_ns)


def notice(orphans: Sequence[OrphanSample], now_ns: int) -> Notice:
    """All of them in one."""
    pids = [orphan.pid for orphan in orphans]
    held = sum(orphan.pss_bytes or 0 for orphan in orphans)
    gpu = sum(1 for orphan in orphans if orphan.gpu_files)
    gpus = OF_THEM_GPU(count=gpu) if gpu else None
    summary = ONE(pid=pids[0], held=held, gpus=gpus)
    if len(pids) > 1:
        summary = SEVERAL(workers=len(pids), held=held, gpus=gpus)
    evidence = []
    for orphan in orphans[:20]:
        evidence.append(Evidence.of(MEMORY(), orphan.pss_bytes, "bytes", orphan.pid))
        if orphan.shm_bytes:
            evidence.append(Evidence.of(SHARED(), orphan.shm_bytes, "bytes", orphan.pid))
        if orphan.gpu_files:
            evidence.append(Evidence.of(GPU_FILES(), orphan.gpu_files, "", orphan.pid))
    return Notice(
        "orphans", Cause.ORPHAN_WORKERS, now_ns, summary, evidence=evidence, advice=[KILL(pids=pids[:50])], pid=pids[0]
    )


SPEC = CauseSpec(
    "orphan_workers",
    kinds=frozenset({Kind.WARNING}),
    title="workers without a trainer",
    colours=("#475569", "#cbd5e1"),
    group=groups.MEMORY,
    checks=(OrderedCheck(check, 90),),
)
