"""The kernel killed for want of memory, or will: whose limit, who held what, what to lower."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trainprobe.causes import groups
from trainprobe.causes.advice import FIT_ALONE, FIT_MEMORY
from trainprobe.causes.situation import GROWING_FOR, GROWTH, USED, MemoryGrowth, Notice, Situation, Victim, figures
from trainprobe.causes.spec import CauseSpec, OrderedCheck
from trainprobe.derive.trend.forecast import Forecast
from trainprobe.model.cause import Cause, Kind
from trainprobe.model.message import Message, template
from trainprobe.model.report import Evidence
from trainprobe.model.sample import LimitSample, ProcessSample

HAPPENED = template("oom_kill.happened", "{who} was killed for want of memory: {limit}{group}{hit} was reached{held}")
OF_ITS_CGROUP = template("oom_kill.of_its_cgroup", "the limit of its cgroup")
OF_THE_HOST = template("oom_kill.of_the_host", "the host's memory")
OF_UNKNOWN = template("oom_kill.of_unknown", "the limit (whose cannot be told: the kernel log cannot be read)")
HIT = template("oom_kill.hit", ", {bytes:bytes},")
GROUP = template("oom_kill.group", " {group}")
IT_HELD = template("oom_kill.it_held", "; it held {bytes:bytes}")
COMING = template(
    "oom_kill.coming",
    "memory of {place} grows by {per_second:bytes} a second{most}: {used:bytes} of {limit:bytes} are used, "
    "the limit is reached in {left:span}",
)
MOST = template("oom_kill.most", ", most of it in {role} ({per_second:bytes} a second)")
THE_HOST = template("oom_kill.the_host", "the host")
THE_CGROUP = template("oom_kill.the_cgroup", "the cgroup {cgroup}")
THE_DRIVER = template("oom_kill.the_driver", "the training")
_ROLES = {
    "worker": (template("oom_kill.the_worker", "the worker"), template("oom_kill.workers", "{processes} workers")),
    "helper": (template("oom_kill.the_helper", "the helper"), template("oom_kill.helpers", "{processes} helpers")),
}
LIMIT = template("oom_kill.limit", "limit of {place}")
VICTIM_HELD = template("oom_kill.victim_held", "the victim held")
MEMORY = template("oom_kill.memory", "memory of {role} (PSS)")
HELD = template("oom_kill.held", "{who} held ({measure}, as last seen)")
COPIES_GROW = template(
    "oom_kill.copies_grow",
    "the workers' own copies grow (copy-on-write: each touch of a Python object copies its page): keep the "
    "samples in numpy arrays or tensors, not in lists and dicts",
)
DRIVER_KEEPS = template(
    "oom_kill.driver_keeps",
    "the training keeps what it makes: losses with their graph (use .item() or .detach()), lists of batches",
)
ONE_FEWER = template("oom_kill.one_fewer", "one worker fewer frees {bytes:bytes} (of {workers:# worker|# workers})")
PREFETCH_LOWER = template("oom_kill.prefetch_lower", "prefetch_factor one lower frees {bytes:bytes} of shared memory")
HOLDERS = 6
"""Processes that a victim's evidence names."""
COPIED = 0.3  # of all growth: so much of it in the workers' own pages
WORTH = 0.01  # of what all of them hold: so much may be freed, or it is no advice


def check(s: Situation) -> Iterator[Notice]:
    """One notice per victim, one for the limit of memory that is reached first."""
    for victim in s.victims:
        yield _happened(s, victim)
    for limit, forecast in s.limits.coming("memory")[:1]:
        yield _coming(s, limit, forecast)


def _happened(s: Situation, victim: Victim) -> Notice:
    event, limit = victim.event, victim.limit
    evidence = []
    if limit is not None:
        evidence.append(Evidence.of(LIMIT(place=_place(limit)), limit.limit, "bytes", None, limit.place or None))
        evidence.append(Evidence.of(USED(), limit.used, "bytes", None, limit.place or None))
    held = None
    if event.anonymous_bytes is not None:
        held = event.anonymous_bytes + (event.shared_bytes or 0)
        evidence.append(Evidence.of(VICTIM_HELD(), held, "bytes", event.pid))
    evidence += _holders(s, victim.processes)
    whose = {"cgroup": OF_ITS_CGROUP, "host": OF_THE_HOST}.get(victim.scope or "", OF_UNKNOWN)
    hit = HIT(bytes=limit.limit) if limit is not None and victim.scope else None
    group = GROUP(group=victim.group) if victim.group else None
    had = IT_HELD(bytes=held) if held else None
    return Notice(
        f"oom-{event.pid}",
        Cause.OOM_KILL,
        event.at_ns,
        HAPPENED(who=s.who(event.pid), limit=whose(), group=group, hit=hit, held=had),
        happened=True,
        evidence=evidence,
        advice=_advice(s, s.growth),
        pid=event.pid,
    )


def _coming(s: Situation, limit: LimitSample, forecast: Forecast) -> Notice:
    growing = [g for g in s.growth if g.per_second is not None and g.per_second > 0.05 * forecast.slope]
    who = max(growing, key=lambda g: g.per_second or 0.0, default=None)
    most = MOST(role=_role(who), per_second=who.per_second or 0.0) if who else None
    evidence = [
        Evidence.of(LIMIT(place=_place(limit)), limit.limit, "bytes", None, limit.place or None),
        Evidence.of(USED(), limit.used, "bytes", None, limit.place or None),
        Evidence.of(GROWTH(), round(forecast.slope), "bytes/s"),
        Evidence.of(GROWING_FOR(), round(forecast.ramp_seconds), "s"),
    ]
    evidence += [Evidence.of(MEMORY(role=_role(growth)), growth.bytes, "bytes") for growth in s.growth]
    return Notice(
        "memory",
        Cause.OOM_KILL,
        s.now_ns,
        COMING(place=_place(limit), most=most, **figures(limit, forecast)),
        eta_seconds=forecast.eta_seconds,
        evidence=evidence,
        advice=_advice(s, growing or s.growth),
        pid=s.driver,
    )


def _place(limit: LimitSample) -> Message:
    return THE_HOST() if limit.scope == "host" else THE_CGROUP(cgroup=limit.place)


def _role(growth: MemoryGrowth) -> Message:
    if growth.role == "driver":
        return THE_DRIVER()
    one, several = _ROLES[growth.role]
    return several(processes=growth.processes) if growth.processes != 1 else one()


def holders(processes: Sequence[ProcessSample]) -> list[ProcessSample]:
    """Those that hold most."""
    return sorted(processes, key=_held, reverse=True)[:HOLDERS]


def _held(process: ProcessSample) -> int:
    return process.pss_bytes if process.pss_bytes is not None else process.rss_bytes or 0


def _holders(s: Situation, processes: Sequence[ProcessSample]) -> list[Evidence]:
    return [
        Evidence.of(HELD(who=s.who(p.pid), measure="PSS" if p.pss_bytes is not None else "RSS"), held, "bytes", p.pid)
        for p in holders(processes)
        if (held := _held(p))
    ]


def _advice(s: Situation, growth: Sequence[MemoryGrowth]) -> list[Message]:
    out = []
    workers = next((g for g in growth if g.role == "worker"), None)
    driver = next((g for g in growth if g.role == "driver"), None)
    total = sum(max(0.0, g.per_second or 0.0) for g in growth)
    if workers is not None and (workers.private_per_second or 0.0) > max(COPIED * total, 1.0):
        out.append(COPIES_GROW())
    if driver is not None and (driver.per_second or 0.0) > (workers.per_second or 0.0 if workers else 0.0):
        out.append(DRIVER_KEEPS())
    if s.workers > 1 and workers is not None and workers.processes:
        each = workers.bytes / workers.processes
        out.append(ONE_FEWER(bytes=each, workers=workers.processes))
    freed = (s.shm_per_batch or 0) * s.workers
    if freed > WORTH * sum(g.bytes for g in s.growth):
        out.append(PREFETCH_LOWER(bytes=freed))
    return out or [FIT_MEMORY() if s.workers or workers is not None else FIT_ALONE()]


SPEC = CauseSpec(
    "oom_kill",
    kinds=frozenset({Kind.EVENT, Kind.WARNING}),
    title="killed for want of memory",
    colours=("#991b1b", "#ff6b6b"),
    group=groups.MEMORY,
    checks=(OrderedCheck(check, 20),),
)
