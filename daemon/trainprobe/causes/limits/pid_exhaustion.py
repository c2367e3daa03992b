"""No thread or process could be started, or soon none can."""

from __future__ import annotations

from collections.abc import Iterator

from trainprobe.causes import groups
from trainprobe.causes.situation import FAILED, Notice, Situation, figures, used_share
from trainprobe.causes.spec import CauseSpec, OrderedCheck
from trainprobe.model.cause import Cause, Kind
from trainprobe.model.event import CallFailed
from trainprobe.model.message import Message, template
from trainprobe.model.report import Evidence

COMING = template(
    "pid_exhaustion.coming",
    "{used} of {limit} threads and processes (pids.max of {place}), {per_second:.3g} more a second: "
    "none can be started in {left:span}",
)
HAPPENED = template("pid_exhaustion.happened", "{who} could not start a thread or process ({call}: EAGAIN): {why}")
IN_CGROUP = template(
    "pid_exhaustion.in_cgroup", "{used} of {limit} threads and processes in the cgroup {place} (pids.max)"
)
OTHER_LIMIT = template(
    "pid_exhaustion.other_limit",
    "the user's limit of threads (ulimit -u, RLIMIT_NPROC) or the host's (kernel.threads-max) is reached",
)
USED = template("pid_exhaustion.used", "threads and processes in the cgroup")
PIDS_MAX = template("pid_exhaustion.pids_max", "pids.max")
THREADS = template("pid_exhaustion.threads", "threads of {who}")
FEWER = template(
    "pid_exhaustion.fewer",
    "fewer threads per worker: OMP_NUM_THREADS=1 before the start, cv2.setNumThreads(0) in the workers; fewer workers",
)
OWN = template(
    "pid_exhaustion.own", "{who} has {threads} threads: let a pool of them do the work, and join those that are done"
)
RAISE = template("pid_exhaustion.raise", "raise the limit: docker run --pids-limit, TasksMax= in a unit, ulimit -u")
EAGAIN = 11
CALLS = ("clone", "clone3", "fork", "vfork")
FULL = 0.95


def check(s: Situation) -> Iterator[Notice]:
    """One notice for the first failure, or one while the number grows."""
    failed = next((f for f in s.failures if f.errno == EAGAIN and f.call in CALLS), None)
    if failed is not None:
        yield _happened(s, failed)
        return
    for limit, forecast in s.limits.coming("pids")[:1]:
        yield Notice(
            f"pids-{limit.place}",
            Cause.PID_EXHAUSTION,
            s.now_ns,
            COMING(place=limit.place, **figures(limit, forecast)),
            eta_seconds=forecast.eta_seconds,
            evidence=_evidence(s),
            advice=_advice(s),
            pid=s.driver,
        )


def _happened(s: Situation, failed: CallFailed) -> Notice:
    limit = s.limits.fullest("pids")
    if limit is not None and used_share(limit) >= FULL:
        why = IN_CGROUP(used=limit.used, limit=limit.limit, place=limit.place)
    else:
        why = OTHER_LIMIT()
    return Notice(
        "pids-error",
        Cause.PID_EXHAUSTION,
        failed.at_ns,
        HAPPENED(who=s.who(failed.pid), call=failed.call, why=why),
        happened=True,
        evidence=[Evidence.of(FAILED(call=failed.call), "EAGAIN", "", failed.pid), *_evidence(s)],
        advice=_advice(s),
        pid=failed.pid,
    )


def _advice(s: Situation) -> list[Message]:
    most = max(s.processes, key=lambda process: process.threads or 0, default=None)
    if s.workers or most is None or not most.threads:
        return [FEWER(), RAISE()]
    return [OWN(who=s.who(most.pid), threads=most.threads), RAISE()]


def _evidence(s: Situation) -> list[Evidence]:
    limit = s.limits.fullest("pids")
    found = []
    if limit is not None:
        found += [
            Evidence.of(USED(), limit.used, "", None, limit.place),
            Evidence.of(PIDS_MAX(), limit.limit, "", None, limit.place),
        ]
    threads = sorted(((p.threads or 0, p) for p in s.processes), key=lambda pair: -pair[0])[:5]
    return found + [Evidence.of(THREADS(who=s.who(p.pid)), count, "", p.pid) for count, p in threads if count]


SPEC = CauseSpec(
    "pid_exhaustion",
    kinds=frozenset({Kind.EVENT, Kind.WARNING}),
    title="no more threads or processes",
    colours=("#b45309", "#fcd34d"),
    group=groups.MEMORY,
    checks=(OrderedCheck(check, 70),),
)
