"""The cgroup's CPU quota was used up."""

from __future__ import annotations

from trainprobe.causes import groups
from trainprobe.causes.advice import AdviceInput
from trainprobe.causes.base import Claim, Items, Window, claimed, seconds, take_items
from trainprobe.causes.spec import CauseSpec, OrderedRule
from trainprobe.model.cause import Cause, Kind
from trainprobe.model.cells import Leaf
from trainprobe.model.message import Message, template
from trainprobe.model.report import Evidence

SUMMARY = template("cpu_throttled.summary", "{seconds:seconds} throttled by the cgroup's CPU quota{quota}")
OF_CPUS = template("cpu_throttled.of_cpus", " of {cpus:g} CPUs")
THROTTLED = template("cpu_throttled.throttled", "training thread runnable, its cgroup throttled")
PERIODS = template(
    "cpu_throttled.periods", "cgroup {cgroup}: quota used up in {throttled} of {periods:# period|# periods}"
)

SECONDS = template("cpu_throttled.seconds", "training thread runnable but throttled")
QUOTA = template("cpu_throttled.quota", "quota")
PERIODS_SHARE = template("cpu_throttled.periods_share", "periods throttled")
ALL_SECONDS = template("cpu_throttled.all_seconds", "throttled, all processors")


def claim(window: Window, left: Items) -> Claim | None:
    """Throttled time; waiting for a CPU beside it is the quota's doing too when throttling is the larger part."""
    taken = take_items(left, leaves=[Leaf.THROTTLED])
    if not taken:
        return None
    queued = take_items(left, leaves=[Leaf.RUNQUEUE])
    if sum(taken.values()) >= sum(queued.values()):
        taken = {**taken, **queued}
    evidence: list[Evidence] = []
    chain = [THROTTLED()]
    quota, cpus = window.quota, None
    if quota is not None and quota.quota_cpus is not None:
        cpus = OF_CPUS(cpus=quota.quota_cpus)
        evidence.append(Evidence.of(QUOTA(), round(quota.quota_cpus, 3), "CPUs", None, quota.cgroup or None))
    if quota is not None and quota.periods > 0:
        chain.append(PERIODS(cgroup=quota.cgroup or "/", throttled=quota.throttled_periods, periods=quota.periods))
        evidence.append(Evidence.of(PERIODS_SHARE(), round(quota.throttled_periods / quota.periods, 3), "ratio"))
        evidence.append(Evidence.of(ALL_SECONDS(), seconds(quota.throttled_ns), "s"))
    return claimed(window, Cause.CPU_THROTTLED, taken, SUMMARY, chain, SECONDS, *evidence, quota=cpus)


RAISE_QUOTA = template(
    "cpu_throttled.advice.raise_quota", "raise the container's CPU limit{of}, or lower threads and workers to fit it"
)
IS_NOW = template("cpu_throttled.advice.is_now", " (it is {cpus:g} now)")


def _advice(f: AdviceInput) -> list[Message]:
    quota = next((one.value for one in f.evidence if one.key == QUOTA.id), None)
    return [RAISE_QUOTA(of=IS_NOW(cpus=quota) if isinstance(quota, (int, float)) else None)]


SPEC = CauseSpec(
    "cpu_throttled",
    kinds=frozenset({Kind.STALL, Kind.BOTTLENECK}),
    title="throttling by the CPU quota",
    colours=("#166534", "#86efac"),
    group=groups.CPU,
    rules=(OrderedRule(claim, stall=90, ordinary=40),),
    advice=_advice,
)
