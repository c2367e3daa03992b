"""/dev/shm ran out, or will. Both this and too few descriptors end in ConnectionResetError: the other is ruled out."""

from __future__ import annotations

from collections.abc import Iterator

from trainprobe.detect.limits.base import Notice, Situation, size, span, used_share
from trainprobe.model.cause import Cause
from trainprobe.model.report import Evidence
from trainprobe.model.sample import LimitSample

ENOSPC = 28
FULL = 0.9
PREFETCH = 2, 4  # torch's own, and what is often set


def told(s: Situation) -> Iterator[Notice]:
    """One notice for the first failure, or one while it fills."""
    shm = s.fullest("shm")
    failed = next((f for f in s.failures if f.errno == ENOSPC and f.tmpfs), None)
    bus = next((e for e in s.bus_errors if shm is not None and used_share(shm) >= FULL), None)
    if failed is not None:
        where = f" on {failed.path}" if failed.path else ""
        what = f"{failed.call} failed with ENOSPC{where}"
        evidence = [Evidence(f"{failed.call} failed", "ENOSPC", "", failed.pid, failed.path or None)]
        yield _happened(s, shm, failed.pid, failed.at_ns, what, evidence)
    elif bus is not None:
        evidence = [Evidence("killed by signal", "SIGBUS", "", bus.pid)]
        yield _happened(s, shm, bus.pid, bus.at_ns, "a page of it could not be had (SIGBUS)", evidence)
    else:
        for limit, forecast in s.of_kind("shm"):
            if forecast is not None:
                yield Notice(
                    f"shm-{limit.place}",
                    Cause.SHM_EXHAUSTION,
                    s.now_ns,
                    f"/dev/shm{_whose(limit)} holds {size(limit.used)} of {size(limit.limit)} and grows by "
                    f"{size(forecast.slope)} a second: full in {span(forecast.eta_seconds)}",
                    eta_seconds=forecast.eta_seconds,
                    evidence=_evidence(s, limit, s.driver),
                    advice=advice(s, limit),
                    pid=s.driver,
                )
                return


def _happened(
    s: Situation, shm: LimitSample | None, pid: int, at_ns: int, what: str, evidence: list[Evidence]
) -> Notice:
    full = f": {size(shm.used)} of {size(shm.limit)} are used" if shm else ""
    return Notice(
        "shm-error",
        Cause.SHM_EXHAUSTION,
        at_ns,
        f"{s.who(pid)} ran out of /dev/shm{_whose(shm)}: {what}{full}",
        happened=True,
        evidence=[*evidence, *_evidence(s, shm, pid)],
        advice=advice(s, shm),
        pid=pid,
    )


def _whose(shm: LimitSample | None) -> str:
    return f" of container {shm.scope[:12]}" if shm is not None and shm.scope != "host" else ""


def _evidence(s: Situation, shm: LimitSample | None, pid: int) -> list[Evidence]:
    found = []
    if shm is not None:
        found += [
            Evidence("/dev/shm used", shm.used, "bytes", None, "/dev/shm"),
            Evidence("/dev/shm size", shm.limit, "bytes", None, "/dev/shm"),
        ]
    held = [(p.shm_bytes, p) for p in s.processes if p.shm_bytes]
    for bytes_, process in sorted(held, key=lambda pair: -pair[0])[:3]:
        found.append(Evidence(f"shared memory of {s.who(process.pid)}", bytes_, "bytes", process.pid))
    if s.shm_per_batch:
        found.append(Evidence("shared memory of one batch", round(s.shm_per_batch), "bytes"))
    leaked = sum(leak.bytes for leak in s.shared.leaks) if s.shared else 0
    if leaked:
        found.append(Evidence("of it left by dead processes", leaked, "bytes", None, "/dev/shm"))
    fds = next((one for key, one in s.limits.items() if key[0] == "fds" and key[2] == pid), None)
    if fds is not None:
        text = f"file descriptors are not the reason: {fds.used} of {fds.limit} open"
        if used_share(fds) >= 0.95:
            text = f"file descriptors are used up too: {fds.used} of {fds.limit}"
        found.append(Evidence(text, round(used_share(fds), 4), "of the limit", pid))
    return found


def advice(s: Situation, shm: LimitSample | None) -> list[str]:
    """How to have more of it, how to need less."""
    out = []
    if shm is not None and shm.scope != "host":
        out.append(
            "give the container more: docker run --shm-size=8g or --ipc=host; in Kubernetes an emptyDir in Memory"
        )
    elif shm is not None:
        out.append(f"mount -o remount,size={max(1, round(2 * shm.limit / 1e9))}G /dev/shm")
    batch = f" (a batch is {size(s.shm_per_batch)})" if s.shm_per_batch else ""
    out.append(f"fewer workers or a smaller prefetch_factor: each prefetched batch lies in /dev/shm{batch}")
    if s.shm_per_batch and s.workers:
        some, more = (size(s.shm_per_batch * s.workers * each) for each in PREFETCH)
        out.append(
            f"the loader needs {some} with prefetch_factor {PREFETCH[0]}, {more} with {PREFETCH[1]} "
            f"(num_workers {s.workers}); batches that the training keeps come on top"
        )
    if s.shared and s.shared.leaks:
        out.append("remove what dead processes left: see the shm_leak warning")
    return out
