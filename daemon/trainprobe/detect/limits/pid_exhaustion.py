"""No thread or process could be started, or soon none can."""

from __future__ import annotations

from collections.abc import Iterator

from trainprobe.detect.limits.base import Notice, Situation, span, used_share
from trainprobe.model.cause import Cause
from trainprobe.model.event import CallFailed
from trainprobe.model.report import Evidence

EAGAIN = 11
CALLS = ("clone", "clone3", "fork", "vfork")
FULL = 0.95


def told(s: Situation) -> Iterator[Notice]:
    """One notice for the first failure, or one while the number grows."""
    failed = next((f for f in s.failures if f.errno == EAGAIN and f.call in CALLS), None)
    if failed is not None:
        yield _happened(s, failed)
        return
    for limit, forecast in s.of_kind("pids"):
        if forecast is not None:
            yield Notice(
                f"pids-{limit.place}",
                Cause.PID_EXHAUSTION,
                s.now_ns,
                f"{limit.used} of {limit.limit} threads and processes (pids.max of {limit.place}), "
                f"{forecast.slope:.3g} more a second: none can be started in {span(forecast.eta_seconds)}",
                eta_seconds=forecast.eta_seconds,
                evidence=_evidence(s),
                advice=_advice(),
                pid=s.driver,
            )
            return


def _happened(s: Situation, failed: CallFailed) -> Notice:
    limit = s.fullest("pids")
    if limit is not None and used_share(limit) >= FULL:
        why = f"{limit.used} of {limit.limit} threads and processes in the cgroup {limit.place} (pids.max)"
    else:
        why = "the user's limit of threads (ulimit -u, RLIMIT_NPROC) or the host's (kernel.threads-max) is reached"
    return Notice(
        "pids-error",
        Cause.PID_EXHAUSTION,
        failed.at_ns,
        f"{s.who(failed.pid)} could not start a thread or process ({failed.call}: EAGAIN): {why}",
        happened=True,
        evidence=[Evidence(f"{failed.call} failed", "EAGAIN", "", failed.pid), *_evidence(s)],
        advice=_advice(),
        pid=failed.pid,
    )


def _evidence(s: Situation) -> list[Evidence]:
    limit = s.fullest("pids")
    found = []
    if limit is not None:
        found += [Evidence("threads and processes in the cgroup", limit.used, "", None, limit.place),
                  Evidence("pids.max", limit.limit, "", None, limit.place)]  # fmt: skip
    threads = sorted(((p.threads or 0, p) for p in s.processes), key=lambda pair: -pair[0])[:5]
    return found + [Evidence(f"threads of {s.who(p.pid)}", count, "", p.pid) for count, p in threads if count]


def _advice() -> list[str]:
    return [
        "fewer threads per worker: torch.set_num_threads(1), OMP_NUM_THREADS=1, cv2.setNumThreads(0); fewer workers",
        "raise the limit: docker run --pids-limit, TasksMax= in a unit, ulimit -u",
    ]
