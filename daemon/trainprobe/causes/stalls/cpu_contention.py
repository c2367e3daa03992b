"""The driver was runnable and had no CPU."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

from trainprobe.causes import groups
from trainprobe.causes.advice import AdviceInput
from trainprobe.causes.base import Claim, Items, Window, at_most, excess_ns, pool_ns, seconds, take_items
from trainprobe.causes.spec import CauseSpec, OrderedRule
from trainprobe.causes.waiting import (
    BLOCKED,
    COMPUTING,
    CPU,
    STORAGE,
    SWAP,
    WAITED,
    WAITS_FOR_WORKERS,
    WORKERS,
    waited_for_cpu,
)
from trainprobe.model.cause import Cause, Kind, State
from trainprobe.model.cells import Leaf, Region
from trainprobe.model.message import Message, template
from trainprobe.model.moment import NS
from trainprobe.model.report import Evidence
from trainprobe.model.sample import RivalSample

SUMMARY = template("cpu_contention.summary", "runnable without a CPU for {seconds:seconds}{who}")
ONE_OTHER = template("cpu_contention.one_other", " beside {name} ({pid}), which is not this training's")
OTHERS = template("cpu_contention.others", " beside {name} ({pid}) and others, which are not this training's")
WAITS = template("cpu_contention.waits", "training thread waits for a CPU")
AFFINITY = template("cpu_contention.affinity", "its affinity leaves it {own} of {all} processors")
SHARED = template(
    "cpu_contention.shared",
    "{workers:# worker|# workers} and the training thread share {cpus:# processor|# processors}",
)
OTHERS_USE = template("cpu_contention.others_use", "others use {cpus:.1f} CPUs: {who:, }")
USER = template("cpu_contention.user", "{name} ({pid}) {cpus:.1f}")
OWN_USE = template(
    "cpu_contention.own_use",
    "the training itself uses {cpus:.1f} CPUs in {processes:# process|# processes} of "
    "{threads:# thread|# threads}{room}",
)
QUOTA = template("cpu_contention.quota", "; its quota is {cpus:g} CPUs")
STOLEN = template("cpu_contention.stolen", "the hypervisor took {share:percent} of the processors")
STOOD_STILL = template(
    "cpu_contention.stood_still",
    "the host's processors stood still for {seconds:seconds}: the hypervisor, or firmware, kept them from the kernel",
)
TAKEN_AWAY = template("cpu_contention.taken_away", "the training thread's processor was taken away")

RUNNABLE = template("cpu_contention.runnable", "training thread runnable, not on a CPU")
AFFINITY_CPUS = template("cpu_contention.affinity_cpus", "processors that its affinity leaves it")
USES = template("cpu_contention.uses", "{name} uses")
OWN_THREADS = template("cpu_contention.own_threads", "threads of these processes")
OWN_CPUS = template("cpu_contention.own_cpus", "the training's own processes use")
STOLEN_SHARE = template("cpu_contention.stolen_share", "taken by the hypervisor")
TIMERS_LATE = template("cpu_contention.timers_late", "the scheduler's tick ended late by")
NOT_RUN = template("cpu_contention.not_run", "training thread on a CPU that did not run, by the scheduler's own count")
LATE = template("cpu_contention.late", "late without a reason in this host")
HANDED_OVER = template(
    "cpu_contention.handed_over",
    "idle workers handed a batch over {seconds:seconds} late, while tasks of this host waited for a CPU for "
    "{share:percent} of the time",
)
HANDED_OVER_QUEUED = template(
    "cpu_contention.handed_over_queued",
    "idle workers handed a batch over {seconds:seconds} late, while the training thread itself was runnable without a "
    "CPU for {queued:seconds}",
)
WORKERS_QUEUED = template(
    "cpu_contention.workers", "workers were runnable without a CPU for {seconds:seconds} while the batch was waited for"
)
WORKERS_RUNNABLE = template(
    "cpu_contention.workers_runnable", "workers runnable, not on a CPU, beyond an ordinary step"
)
CROWDED_SHARE = template("cpu_contention.crowded_share", "time in which some task of the host waited for a CPU")
_CROWDED = 0.5
"""Of the time: from then on it says why a thread gets no CPU. The same of a step's excess, where the training thread
itself had none."""
_SLOWED = 0.8
"""Of a step's excess: a thread that waited for a CPU for so much of it was slowed in the rest by the same others."""
_QUEUED = 3
"""Workers that are runnable for so many times as long as they compute do not compute for long: they get no CPU."""
_HANDOVER_NS = NS // 100
"""Workers that did more beyond the ordinary are not idle."""
_BUSY, _EACH = 0.2, 0.05
"""CPUs of all processes of one name from which on they are named, and those of each."""
_STOLEN = 0.02


def claim_standstill(window: Window, left: Items) -> Claim | None:
    """The host itself stood still: whatever the training thread did meanwhile came so much later."""
    stood, why = window.devices.stood_still_ns(window.start_ns, window.end_ns), TIMERS_LATE
    leaves: Sequence[Leaf] = ()
    # In pieces too short for a late tick, or of the driver's processor alone. Elsewhere the count itself may be late: a
    # processor without ticks (nohz_full) brings it up to date once a second.
    if window.devices.are_shared and window.taken_ns > stood:
        stood, why, leaves = window.taken_ns, NOT_RUN, COMPUTING
    taken = at_most(take_items(left, leaves=leaves), stood)
    if not taken:
        return None
    summary = STOOD_STILL(seconds=seconds(stood))
    evidence = [Evidence.of(why(), seconds(stood), "s", window.driver_pid)]
    return Claim(Cause.CPU_CONTENTION, taken, summary, [summary], evidence)


def claim(window: Window, left: Items) -> Claim | None:
    taken = take_items(left, states=[State.RUNQUEUE])
    if not taken:
        return None
    told = seconds(sum(taken.values()))
    evidence = [Evidence.of(RUNNABLE(), told, "s", window.driver_pid)]
    chain = [WAITS()]
    seen = window.late.inspection
    cpus = seen.allowed_cpus if seen is not None else None
    if cpus is not None and window.cpus and cpus < window.cpus:
        chain.append(AFFINITY(own=cpus, all=window.cpus))
        evidence.append(Evidence.of(AFFINITY_CPUS(), cpus, "", window.driver_pid))
    if window.workers and window.cpus and window.workers + 1 > (cpus or window.cpus):
        chain.append(SHARED(workers=window.workers, cpus=cpus or window.cpus))
        evidence.append(Evidence.of(WORKERS(), window.workers, "", window.driver_pid))
    others, own = _users(window)
    if others:
        chain.append(_listed(others))
        evidence += [Evidence.of(USES(name=r.comm), round(r.cpus, 2), "CPUs", r.pid) for r in others]
    if own:
        used = sum(r.cpus for r in own)
        threads = sum(r.threads for r in own)
        limit = window.quota.quota_cpus if window.quota is not None else None
        room = QUOTA(cpus=limit) if limit is not None else None
        chain.append(OWN_USE(cpus=used, processes=len(own), threads=threads, room=room))
        evidence.append(Evidence.of(OWN_THREADS(), threads, ""))
        evidence.append(Evidence.of(OWN_CPUS(), round(used, 2), "CPUs"))
    if window.stolen is not None and window.stolen >= _STOLEN:
        chain.append(STOLEN(share=window.stolen))
        evidence.append(Evidence.of(STOLEN_SHARE(), round(window.stolen, 3), "ratio"))
    busiest = OTHERS if len(others) > 1 else ONE_OTHER
    who = busiest(name=others[0].comm, pid=others[0].pid) if others else None
    return Claim(Cause.CPU_CONTENTION, taken, SUMMARY(seconds=told, who=who), chain, evidence)


def claim_slowed(window: Window, left: Items) -> Claim | None:
    """What the training thread computed longer in a step that mostly waited for a CPU: between its turns others use the
    caches, and the other half of its core. Not a heavier batch, which would be the larger part."""
    queued = sum(take_items(left, states=[State.RUNQUEUE]).values())
    taken = take_items(left, states=[State.COMPUTE])
    if not taken or queued < _SLOWED * excess_ns(window) or sum(taken.values()) > (1 - _SLOWED) / _SLOWED * queued:
        return None
    return Claim(Cause.CPU_CONTENTION, taken)


def claim_workers(window: Window, left: Items) -> Claim | None:
    """A wait for workers that wanted a CPU and got none, for most of the time that their batch took longer."""
    queued, computed = pool_ns(window, Leaf.RUNQUEUE), pool_ns(window, *COMPUTING)
    throttled = max(0.0, pool_ns(window, Leaf.THROTTLED))
    if not window.workers or queued <= 0 or queued < _QUEUED * (computed + throttled):
        return None
    taken = waited_for_cpu(window, left)
    if not taken:
        return None
    told = seconds(queued)
    evidence = [
        Evidence.of(WAITED(), seconds(sum(taken.values())), "s", window.driver_pid),
        Evidence.of(WORKERS_RUNNABLE(), told, "s"),
    ]
    return Claim(Cause.CPU_CONTENTION, taken, WORKERS_QUEUED(seconds=told), [WAITS_FOR_WORKERS()], evidence)


def claim_handover(window: Window, left: Items) -> Claim | None:
    """A short wait for a batch that its workers, idle by now, have made: a thread of theirs hands it over, and gets no
    CPU where the host's tasks mostly wait for one, or the training thread itself did. (The threads of workers have no
    ledgers.)"""
    excess = excess_ns(window)
    if excess > NS or not window.workers or pool_ns(window, *CPU, *STORAGE, *SWAP, *BLOCKED) > _HANDOVER_NS:
        return None
    crowded = window.devices.crowded or 0.0
    queued = sum(ns for (state, _, _), ns in window.excess.items() if state == State.RUNQUEUE)
    if crowded < _CROWDED and queued < _CROWDED * excess:
        return None
    taken = take_items(left, states=[State.DATA_WAIT], regions=[Region.FETCH])
    waited = sum(taken.values())
    if not taken or (crowded < _CROWDED and waited > queued):
        return None
    told = seconds(waited)
    if crowded >= _CROWDED:
        summary = HANDED_OVER(seconds=told, share=crowded)
        why = Evidence.of(CROWDED_SHARE(), round(crowded, 3), "ratio")
    else:
        summary = HANDED_OVER_QUEUED(seconds=told, queued=seconds(queued))
        why = Evidence.of(RUNNABLE(), seconds(queued), "s", window.driver_pid)
    evidence = [Evidence.of(WAITED(), told, "s", window.driver_pid), why]
    return Claim(Cause.CPU_CONTENTION, taken, summary, [summary], evidence)


def claim_stolen(window: Window, left: Items) -> Claim | None:
    """What nothing else explains while the hypervisor kept the processors: a timer, a wake-up or a batch came late.

    The kernel does not run meanwhile, so no run queue shows it; it counts what was taken, and that bounds the claim.
    """
    share, spent = window.stolen, max(window.end_ns - window.start_ns, NS)
    taken = take_items(left)
    lost = sum(taken.values())
    if share is None or share < window.policy.stolen_share or not 0 < lost <= share * spent * max(1, window.cpus or 1):
        return None
    return Claim(
        Cause.CPU_CONTENTION,
        taken,
        STOLEN(share=share),
        [TAKEN_AWAY(), STOLEN(share=share)],
        [
            Evidence.of(LATE(), seconds(lost), "s", window.driver_pid),
            Evidence.of(STOLEN_SHARE(), round(share, 3), "ratio"),
        ],
    )


def _users(window: Window) -> tuple[list[RivalSample], list[RivalSample]]:
    """The busiest processes that are not the run's, and those that are."""
    used: dict[str, float] = {}
    for rival in window.rivals:
        used[rival.comm] = used.get(rival.comm, 0.0) + rival.cpus
    busy = [rival for rival in window.rivals if rival.cpus >= _EACH and used[rival.comm] >= _BUSY]
    return [r for r in busy if r.pid not in window.own], [r for r in busy if r.pid in window.own]


def _listed(rivals: Sequence[RivalSample]) -> Message:
    who = [USER(name=rival.comm, pid=rival.pid, cpus=rival.cpus) for rival in rivals[:3]]
    return OTHERS_USE(cpus=sum(rival.cpus for rival in rivals), who=who)


MOVE_OTHERS = template(
    "cpu_contention.advice.move_others",
    "move what competes for the CPUs to another time or host, or limit it (nice, cgroup cpu.weight): {who:, }",
)
COMPETES = template("cpu_contention.competes", "{name} with up to {cpus:.1f} CPUs")
FEWER_THREADS = template(
    "cpu_contention.advice.fewer_threads",
    "fewer workers or threads{own}: num_workers, OMP_NUM_THREADS, torch.set_num_threads(), cv2.setNumThreads(0)",
)
FEWER_OWN_THREADS = template(
    "cpu_contention.advice.fewer_own_threads",
    "fewer threads{own}: OMP_NUM_THREADS, torch.set_num_threads(), cv2.setNumThreads(0)",
)
FIND_OTHERS = template(
    "cpu_contention.advice.find_others",
    "other programs take the CPUs, each too shortly to be named{own}: see them with top or pidstat 1, and keep CPUs "
    "free for the training (cgroup cpuset, cpu.weight)",
)
OWN = template("cpu_contention.own", ", the training itself uses up to {used:.1f} CPUs{of}{threads}")
OF_CPUS = template("cpu_contention.of_cpus", " of {cpus}")
WITH_THREADS = template("cpu_contention.with_threads", " with {threads:# thread|# threads}")
CHECK_AFFINITY = template(
    "cpu_contention.advice.check_affinity",
    "its affinity leaves it {own}{of} processors: widen it (taskset, cpuset, Slurm's --cpus-per-task)",
)
ASK_HOST = template("cpu_contention.advice.ask_host", "ask for dedicated CPUs: the hypervisor takes some away")
_NAMED, _FITS = 3, 0.75


def _most(f: AdviceInput, key: str) -> float:
    """The highest value of one kind of evidence; 0: there is none."""
    return max((float(e.value) for e in f.seen if e.key == key and isinstance(e.value, (int, float))), default=0.0)


def _used_at_most(seen: Sequence[Evidence]) -> dict[str, float]:
    """CPUs by name, at most: of each stall's evidence, processes of one name together."""
    most: dict[str, float] = {}
    together: dict[str, float] = {}
    for one in seen:
        if one.key == RUNNABLE.id:  # the first of a stall's
            together = {}
        if one.key == USES.id and one.message is not None and isinstance(one.value, (int, float)):
            name = str(one.message.params["name"])
            together[name] = together.get(name, 0.0) + one.value
            most[name] = max(most.get(name, 0.0), together[name])
    return most


def _advice(f: AdviceInput) -> list[Message]:
    others = _used_at_most(f.seen)
    dearest = sorted(others.items(), key=lambda pair: -pair[1])[:_NAMED]
    used, threads = _most(f, OWN_CPUS.id), _most(f, OWN_THREADS.id)
    allowed = round(_most(f, AFFINITY_CPUS.id))  # of the host's; 0: all
    cpus = allowed or f.cpus
    of = OF_CPUS(cpus=cpus) if cpus else None
    with_threads = WITH_THREADS(threads=round(threads)) if threads > 1 else None
    own = OWN(used=used, of=of, threads=with_threads) if used else None
    fewer = (FEWER_THREADS if f.workers else FEWER_OWN_THREADS)(own=own)
    out = [MOVE_OTHERS(who=[COMPETES(name=name, cpus=cpus) for name, cpus in dearest])] if dearest else []
    alone = f.loader is not None and f.loader.others < _BUSY
    if 0 < used <= _FITS * f.cpus and not (allowed or alone):  # it is others who make it wait
        out = out or [FIND_OTHERS(own=own)]
    else:
        out = [fewer, *out] if used > sum(others.values()) else [*out, fewer]
    if allowed:
        out.insert(0, CHECK_AFFINITY(own=allowed, of=OF_CPUS(cpus=f.cpus) if f.cpus else None))
    if not any(_most(f, key) for key in (STOLEN_SHARE.id, TIMERS_LATE.id, NOT_RUN.id)):
        return out
    queued = any(_most(f, key) for key in (RUNNABLE.id, WORKERS_RUNNABLE.id, CROWDED_SHARE.id))
    return [*out, ASK_HOST()] if queued else [ASK_HOST()]  # else nothing in this host waited for a CPU


SPEC = CauseSpec(
    "cpu_contention",
    kinds=frozenset({Kind.STALL, Kind.BOTTLENECK}),
    title="waiting for a CPU",
    colours=("#3f6212", "#bef264"),
    group=groups.CPU,
    rules=(
        OrderedRule(claim_standstill, stall=12),
        OrderedRule(claim_workers, stall=138),
        OrderedRule(claim_slowed, stall=238),
        OrderedRule(claim, stall=260, ordinary=120),
        OrderedRule(claim_handover, stall=265),
        OrderedRule(claim_stolen, stall=270),
    ),
    advice=_advice,
    minor_share=attrgetter("minor_contention"),
    thread_state_only=True,
    computes=True,
    of_others=True,
)
