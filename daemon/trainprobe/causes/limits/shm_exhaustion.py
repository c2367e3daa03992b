"""/dev/shm ran out, or will. Both this and too few descriptors end in ConnectionResetError: the other is ruled out."""

from __future__ import annotations

from collections.abc import Iterator

from trainprobe.causes import groups
from trainprobe.causes.situation import FAILED, Notice, Situation, figures, used_share, whose
from trainprobe.causes.spec import CauseSpec, OrderedCheck
from trainprobe.model.cause import Cause, Kind
from trainprobe.model.message import Message, template
from trainprobe.model.report import Evidence
from trainprobe.model.sample import LimitSample

COMING = template(
    "shm_exhaustion.coming",
    "/dev/shm{whose} holds {used:bytes} of {limit:bytes} and grows by {per_second:bytes} a second: full in {left:span}",
)
HAPPENED = template("shm_exhaustion.happened", "{who} ran out of /dev/shm{whose}: {what}{full}")
CALL_FAILED = template("shm_exhaustion.call_failed", "{call} failed with ENOSPC{where}")
ON_FILE = template("shm_exhaustion.on_file", " on {path}")
NO_PAGE = template("shm_exhaustion.no_page", "a page of it could not be had (SIGBUS)")
ARE_USED = template("shm_exhaustion.are_used", ": {used:bytes} of {limit:bytes} are used")
KILLED = template("shm_exhaustion.killed", "killed by signal")
USED = template("shm_exhaustion.used", "/dev/shm used")
SIZE = template("shm_exhaustion.size", "/dev/shm size")
HELD = template("shm_exhaustion.held", "shared memory of {who}")
BATCH = template("shm_exhaustion.batch", "shared memory of one batch")
LEAKED = template("shm_exhaustion.leaked", "of it left by dead processes")
FDS_ARE_NOT = template("shm_exhaustion.fds_are_not", "file descriptors are not the reason: {used} of {limit} open")
FDS_USED_UP_TOO = template("shm_exhaustion.fds_used_up_too", "file descriptors are used up too: {used} of {limit}")
GIVE_CONTAINER = template(
    "shm_exhaustion.give_container",
    "give the container more: docker run --shm-size=8g or --ipc=host; in Kubernetes an emptyDir in Memory",
)
REMOUNT = template("shm_exhaustion.remount", "mount -o remount,size={gigabytes}G /dev/shm")
FEWER = template(
    "shm_exhaustion.fewer", "fewer workers or a smaller prefetch_factor: each prefetched batch lies in /dev/shm{batch}"
)
A_BATCH = template("shm_exhaustion.a_batch", " (a batch is {bytes:bytes})")
NEEDS = template(
    "shm_exhaustion.needs",
    "the loader needs {some:bytes} with prefetch_factor {few}, {more:bytes} with {many} "
    "(num_workers {workers}); batches that the training keeps come on top",
)
REMOVE_LEAKED = template("shm_exhaustion.remove_leaked", "remove what dead processes left: see the shm_leak warning")
ENOSPC = 28
FULL = 0.9
PREFETCH = 2, 4  # torch's own, and what is often set


def check(s: Situation) -> Iterator[Notice]:
    """One notice for the first failure, or one while it fills."""
    shm = s.limits.fullest("shm")
    failed = next((f for f in s.failures if f.errno == ENOSPC and s.on_shm(f)), None)
    bus = next((e for e in s.bus_errors if shm is not None and used_share(shm) >= FULL), None)
    if failed is not None:
        where = ON_FILE(path=failed.path) if failed.path else None
        what = CALL_FAILED(call=failed.call, where=where)
        evidence = [Evidence.of(FAILED(call=failed.call), "ENOSPC", "", failed.pid, failed.path or None)]
        yield _happened(s, shm, failed.pid, failed.at_ns, what, evidence)
    elif bus is not None:
        evidence = [Evidence.of(KILLED(), "SIGBUS", "", bus.pid)]
        yield _happened(s, shm, bus.pid, bus.at_ns, NO_PAGE(), evidence)
    else:
        for limit, forecast in s.limits.coming("shm")[:1]:
            yield Notice(
                f"shm-{limit.place}",
                Cause.SHM_EXHAUSTION,
                s.now_ns,
                COMING(whose=whose(limit.scope), **figures(limit, forecast)),
                eta_seconds=forecast.eta_seconds,
                evidence=_evidence(s, limit, s.driver),
                advice=advice(s, limit),
                pid=s.driver,
            )


def _happened(
    s: Situation, shm: LimitSample | None, pid: int, at_ns: int, what: Message, evidence: list[Evidence]
) -> Notice:
    full = ARE_USED(used=shm.used, limit=shm.limit) if shm and _in_time(s, pid) else None
    return Notice(
        "shm-error",
        Cause.SHM_EXHAUSTION,
        at_ns,
        HAPPENED(who=s.who(pid), whose=whose(shm.scope) if shm else None, what=what, full=full),
        happened=True,
        evidence=[*evidence, *_evidence(s, shm, pid)],
        advice=advice(s, shm),
        pid=pid,
    )


def _in_time(s: Situation, pid: int) -> bool:
    """Whether the process was read while it lived, as far as that is known: with it goes what it had in /dev/shm."""
    known = s.limits.of_process("fds", pid) is not None
    return known or s.limits.of_process("fds", s.driver) is None


def _evidence(s: Situation, shm: LimitSample | None, pid: int) -> list[Evidence]:
    found = []
    if shm is not None and _in_time(s, pid):
        found.append(Evidence.of(USED(), shm.used, "bytes", None, "/dev/shm"))
    if shm is not None:
        found.append(Evidence.of(SIZE(), shm.limit, "bytes", None, "/dev/shm"))
    held = [(p.shm_bytes, p) for p in s.processes if p.shm_bytes]
    for bytes_, process in sorted(held, key=lambda pair: -pair[0])[:3]:
        found.append(Evidence.of(HELD(who=s.who(process.pid)), bytes_, "bytes", process.pid))
    if s.shm_per_batch:
        found.append(Evidence.of(BATCH(), round(s.shm_per_batch), "bytes"))
    leaked = s.shared.leaked_bytes if s.shared else 0
    if leaked:
        found.append(Evidence.of(LEAKED(), leaked, "bytes", None, "/dev/shm"))
    fds = s.limits.of_process("fds", pid) or s.limits.of_process("fds", s.driver)  # a worker begins with as many
    if fds is not None:
        ruled_out = FDS_USED_UP_TOO if used_share(fds) >= 0.95 else FDS_ARE_NOT
        found.append(
            Evidence.of(ruled_out(used=fds.used, limit=fds.limit), round(used_share(fds), 4), "of the limit", fds.pid)
        )
    return found


def advice(s: Situation, shm: LimitSample | None) -> list[Message]:
    """How to have more of it, how to need less."""
    out = []
    if shm is not None and shm.scope != "host":
        out.append(GIVE_CONTAINER())
    elif shm is not None:
        out.append(REMOUNT(gigabytes=max(1, round(2 * shm.limit / 1e9))))
    out.append(FEWER(batch=A_BATCH(bytes=s.shm_per_batch) if s.shm_per_batch else None))
    if s.shm_per_batch and s.workers:
        some, more = (s.shm_per_batch * s.workers * each for each in PREFETCH)
        out.append(NEEDS(some=some, few=PREFETCH[0], more=more, many=PREFETCH[1], workers=s.workers))
    if s.shared and s.shared.leaks:
        out.append(REMOVE_LEAKED())
    return out


SPEC = CauseSpec(
    "shm_exhaustion",
    kinds=frozenset({Kind.EVENT, Kind.WARNING}),
    title="shared memory full",
    colours=("#6b21a8", "#e879f9"),
    group=groups.MEMORY,
    checks=(OrderedCheck(check, 50),),
)
