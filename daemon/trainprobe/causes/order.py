"""Lets the rules claim, one after the other in the order of ``registry``, and divides a window by their claims."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from trainprobe.causes.base import Claim, Rule, Window
from trainprobe.causes.registry import SPECS, STALL_RULES
from trainprobe.causes.stalls.unknown import OWN_REASONS
from trainprobe.derive.steps.ledger import Item
from trainprobe.model.cause import Cause, Kind
from trainprobe.model.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Judgement:
    """A window's excess, divided: ns of stall by cause, ns by phase; the rest was the training's own work."""

    shares: dict[Cause, float]
    phases: dict[Cause, float]
    main: Claim | None
    lost: Sequence[Claim] = ()  # all claims of time lost
    of_phases: Sequence[Claim] = ()

    @property
    def stall_ns(self) -> float:
        return sum(self.shares.values())

    @property
    def has_own_reason(self) -> bool:
        """Whether the rank is late for a reason of its own that is known: others may wait for it."""
        spent = self.shares | self.phases
        most = max(spent, key=lambda cause: spent[cause], default=None)
        if most is Cause.UNKNOWN:
            return self.main is not None and self.main.summary is not None and self.main.summary.id in OWN_REASONS
        return most is not None and most is not Cause.COLLECTIVE_WAIT

    def of(self, causes: Collection[Cause]) -> Judgement:
        """What it has of these causes; the phases stay."""
        lost = [one for one in self.lost if one.cause in causes]
        main = self.main if self.main in lost else max(lost, key=lambda one: one.ns, default=None)
        shares = {cause: ns for cause, ns in self.shares.items() if cause in causes}
        return replace(self, shares=shares, main=main, lost=lost)


def claims_of(window: Window, rules: Sequence[Rule]) -> tuple[list[Claim], dict[Item, float]]:
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
    """Let every rule claim in turn; the last one, `unknown`, takes what is left."""
    claims, _ = claims_of(window, STALL_RULES)
    lost = [c for c in claims if c.cause is not None and not _is_phase(c.cause)]
    shares: dict[Cause, float] = {}
    total = sum(c.ns for c in lost)
    main = max(lost, key=lambda c: c.ns, default=None)
    for claim in lost:
        if claim.cause is None:
            continue
        least = SPECS[claim.cause].minor_share(window.policy)
        cause = claim.cause if claim.ns >= least * total or main is None or main.cause is None else main.cause
        shares[cause] = shares.get(cause, 0.0) + claim.ns
    of_phases = [claim for claim in claims if claim.cause is not None and _is_phase(claim.cause)]
    phases: dict[Cause, float] = {}
    for claim in of_phases:
        if claim.cause is not None:
            phases[claim.cause] = phases.get(claim.cause, 0.0) + claim.ns
    return Judgement(shares, phases, main, lost, of_phases)


def _is_phase(cause: Cause) -> bool:
    return Kind.PHASE in SPECS[cause].kinds
