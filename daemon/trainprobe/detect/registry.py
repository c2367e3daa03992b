"""The rules in the order in which they may claim, and how their claims become shares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trainprobe.derive.ledger import Item, by_state
from trainprobe.detect.base import Claim, Rule, Window, seconds, take
from trainprobe.detect.rules import (
    checkpoint,
    collective_wait,
    compiling,
    cpu_bound,
    cpu_contention,
    cpu_throttled,
    data_blocked,
    data_cpu,
    data_inline,
    data_storage,
    deadlock,
    evaluation,
    fake_batching,
    gc_pause,
    gpu_memory,
    gpu_throttle,
    gpu_work,
    logging,
    memory_pressure,
    network,
    own_thread,
    storage_hang,
    suspended,
    swap,
    work,
    worker_hang,
    worker_startup,
)
from trainprobe.model.cause import Cause, State
from trainprobe.model.cells import Leaf
from trainprobe.model.report import Evidence

RULES: Sequence[Rule] = (
    suspended.claim,
    storage_hang.claim,
    checkpoint.claim,
    logging.claim,
    compiling.claim,
    evaluation.claim,
    swap.claim,
    memory_pressure.claim,
    cpu_throttled.claim,
    worker_startup.claim,
    gc_pause.claim,
    deadlock.claim,
    data_storage.claim,
    data_cpu.claim,
    data_blocked.claim,
    worker_hang.claim,
    own_thread.claim,
    data_inline.claim,
    network.claim,
    collective_wait.claim,
    gpu_memory.claim,
    gpu_throttle.claim,
    gpu_work.claim,
    work.claim,
    cpu_bound.claim,
    cpu_contention.claim,
    cpu_contention.claim_stolen,
)
ORDINARY: Sequence[Rule] = (
    logging.claim,
    swap.claim,
    memory_pressure.claim,
    cpu_throttled.claim,
    fake_batching.claim,
    data_blocked.claim_usual,
    data_storage.claim,
    data_cpu.claim,
    data_inline.claim,
    network.claim,
    collective_wait.claim,
    cpu_contention.claim,
)
"""Rules that may own time in ordinary steps (bottlenecks)."""
PHASES = frozenset({Cause.EVALUATION, Cause.COMPILE})


@dataclass(frozen=True, slots=True)
class Judgement:
    """A window's excess, divided: ns of stall by cause, ns by phase; the rest was the training's own work."""

    shares: dict[Cause, float]
    phases: dict[Cause, float]
    main: Claim | None
    lost: Sequence[Claim] = ()  # all claims of time lost

    @property
    def stall_ns(self) -> float:
        """Nanoseconds lost."""
        return sum(self.shares.values())


def claims_of(window: Window, rules: Sequence[Rule]) -> tuple[list[Claim], dict[Item, float]]:
    """The rules' claims in turn, and what nobody claimed."""
    left = dict(window.excess)
    claims: list[Claim] = []
    for rule in rules:
        claim = rule(window, left)
        if claim is None or claim.ns <= 0:
            continue
        claims.append(claim)
        for item, ns in claim.taken.items():
            rest = left[item] - ns
            if rest > 0.5:
                left[item] = rest
            else:
                del left[item]
        if not left:
            break
    return claims, left


def judge(window: Window) -> Judgement:
    """Let every rule claim in turn; what nobody claims is `unknown`, and says what was seen."""
    claims, left = claims_of(window, RULES)
    if left:
        claims.append(_unknown(window, left))
    lost = [c for c in claims if c.cause is not None and c.cause not in PHASES]
    shares: dict[Cause, float] = {}
    total = sum(c.ns for c in lost)
    main = max(lost, key=lambda c: c.ns, default=None)
    policy = window.policy
    for claim in lost:
        least = policy.minor_contention if claim.cause == Cause.CPU_CONTENTION else policy.minor_share
        cause = claim.cause if claim.ns >= least * total or main is None else main.cause
        if cause is not None:
            shares[cause] = shares.get(cause, 0.0) + claim.ns
    phases: dict[Cause, float] = {}
    for claim in claims:
        if claim.cause in PHASES and claim.cause is not None:
            phases[claim.cause] = phases.get(claim.cause, 0.0) + claim.ns
    return Judgement(shares, phases, main, lost)


def _unknown(window: Window, left: dict[Item, float]) -> Claim:
    seen = sorted(by_state(left).items(), key=lambda pair: -pair[1])
    told, chain = _errand(window, left) or _pause(left) or _seen(seen, left)
    return Claim(
        Cause.UNKNOWN,
        dict(left),
        told,
        chain,
        [Evidence(f"driver in {state}", seconds(ns), "s", window.driver_pid) for state, ns in seen[:3]],
    )


def _errand(window: Window, left: Mapping[Item, float]) -> tuple[str, list[str]] | None:
    """The driver waits for a process that it started to do something."""
    waited = sum(take(left, leaves=[Leaf.CHILD]).values())
    if waited <= 0.5 * sum(left.values()):
        return None
    errand = window.errand
    who = f"{errand.name} (pid {errand.pid})" if errand is not None else "a process"
    return f"waiting for {who} that the training started: {seconds(waited):.2f} s", [f"driver waits for {who}"]


def _pause(left: Mapping[Item, float]) -> tuple[str, list[str]] | None:
    """A sleep in the driver's own code is no riddle, whatever it is good for."""
    slept = sum(take(left, states=[State.SLEEP]).values())
    if slept <= 0.5 * sum(left.values()):
        return None
    return f"a pause that the training's own code asks for: {seconds(slept):.2f} s of sleep", ["driver in sleep"]


def _seen(seen: Sequence[tuple[State, float]], left: Mapping[Item, float]) -> tuple[str, list[str]]:
    text = ", ".join(f"{seconds(ns):.2f} s {state}" for state, ns in seen[:3])
    leaves = {leaf.name.lower() for (_, _, leaf) in left}
    return f"no evidence for a cause; seen: {text}", [f"driver in {', '.join(sorted(leaves))}"]
