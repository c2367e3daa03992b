"""The kernel killed for want of memory, or will: whose limit, who held what, what to lower."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trainprobe.derive.forecast import Forecast
from trainprobe.detect.limits.base import Growth, Notice, Situation, Victim, size, span
from trainprobe.model.cause import Cause
from trainprobe.model.report import Evidence
from trainprobe.model.sample import LimitSample, ProcessSample

COPIED = 0.3  # of all growth: so much of it in the workers' own pages
WORTH = 0.01  # of what all of them hold: so much may be freed, or it is no advice


def told(s: Situation) -> Iterator[Notice]:
    """One notice per victim, one for the limit of memory that is reached first."""
    for victim in s.victims:
        yield _happened(s, victim)
    for limit, forecast in s.of_kind("memory"):
        if forecast is not None:
            yield _coming(s, limit, forecast)
            return


def _happened(s: Situation, victim: Victim) -> Notice:
    event, limit = victim.event, victim.limit
    evidence = []
    if limit is not None:
        evidence.append(Evidence(f"limit of {_place(limit)}", limit.limit, "bytes", None, limit.place or None))
        evidence.append(Evidence("of it used", limit.used, "bytes", None, limit.place or None))
    held = None
    if event.anonymous_bytes is not None:
        held = event.anonymous_bytes + (event.shared_bytes or 0)
        evidence.append(Evidence("the victim held", held, "bytes", event.pid))
    evidence += _holders(s, victim.processes)
    whose = {"cgroup": "the limit of its cgroup", "host": "the host's memory"}.get(
        victim.scope or "", "the limit (whose cannot be told: the kernel log cannot be read)"
    )
    hit = f", {size(limit.limit)}," if limit is not None and victim.scope else ""
    group = f" {victim.group}" if victim.group else ""
    had = f"; it held {size(held)}" if held else ""
    return Notice(
        f"oom-{event.pid}",
        Cause.OOM_KILL,
        event.at_ns,
        f"{s.who(event.pid)} was killed for want of memory: {whose}{group}{hit} was reached{had}",
        happened=True,
        evidence=evidence,
        advice=_advice(s, s.growth),
        pid=event.pid,
    )


def _coming(s: Situation, limit: LimitSample, forecast: Forecast) -> Notice:
    growing = [g for g in s.growth if g.per_second is not None and g.per_second > 0.05 * forecast.slope]
    who = max(growing, key=lambda g: g.per_second or 0.0, default=None)
    by = f", most of it in {_role(who)} ({size(who.per_second or 0.0)} a second)" if who else ""
    evidence = [
        Evidence(f"limit of {_place(limit)}", limit.limit, "bytes", None, limit.place or None),
        Evidence("of it used", limit.used, "bytes", None, limit.place or None),
        Evidence("growth", round(forecast.slope), "bytes/s"),
        Evidence("seen growing for", round(forecast.ramp_seconds), "s"),
    ]
    evidence += [Evidence(f"memory of {_role(growth)} (PSS)", growth.bytes, "bytes") for growth in s.growth]
    return Notice(
        "memory",
        Cause.OOM_KILL,
        s.now_ns,
        f"memory of {_place(limit)} grows by {size(forecast.slope)} a second{by}: {size(limit.used)} of "
        f"{size(limit.limit)} are used, the limit is reached in {span(forecast.eta_seconds)}",
        eta_seconds=forecast.eta_seconds,
        evidence=evidence,
        advice=_advice(s, growing or s.growth),
        pid=s.driver,
    )


def _place(limit: LimitSample) -> str:
    return "the host" if limit.scope == "host" else f"the cgroup {limit.place}"


def _role(growth: Growth) -> str:
    if growth.role == "driver":
        return "the driver"
    return f"{growth.processes} {growth.role}s" if growth.processes != 1 else f"the {growth.role}"


def _holders(s: Situation, processes: Sequence[ProcessSample]) -> list[Evidence]:
    held = [(p.pss_bytes if p.pss_bytes is not None else p.rss_bytes or 0, p) for p in processes]
    return [
        Evidence(
            f"{s.who(p.pid)} held ({'PSS' if p.pss_bytes is not None else 'RSS'}, as last seen)", amount, "bytes", p.pid
        )
        for amount, p in sorted(held, key=lambda pair: -pair[0])[:6]
        if amount
    ]


def _advice(s: Situation, growth: Sequence[Growth]) -> list[str]:
    out = []
    workers = next((g for g in growth if g.role == "worker"), None)
    driver = next((g for g in growth if g.role == "driver"), None)
    total = sum(max(0.0, g.per_second or 0.0) for g in growth)
    if workers is not None and (workers.private_per_second or 0.0) > max(COPIED * total, 1.0):
        out.append(
            "the workers' own copies grow (copy-on-write: each touch of a Python object copies its page): keep the "
            "samples in numpy arrays or tensors, not in lists and dicts"
        )
    if driver is not None and (driver.per_second or 0.0) > (workers.per_second or 0.0 if workers else 0.0):
        out.append(
            "the driver keeps what it makes: losses with their graph (use .item() or .detach()), lists of batches"
        )
    if s.workers > 1 and workers is not None and workers.processes:
        each = workers.bytes / workers.processes
        out.append(f"one worker fewer frees {size(each)} (of {workers.processes} workers)")
    freed = (s.shm_per_batch or 0) * s.workers
    if freed > WORTH * sum(g.bytes for g in s.growth):
        out.append(f"prefetch_factor one lower frees {size(freed)} of shared memory")
    return out or ["lower batch size, workers or prefetch_factor until the run fits its memory"]
