"""The driver waits on a socket that is neither the loader's nor another rank's."""

from __future__ import annotations

from collections.abc import Mapping

from trainprobe.causes import groups
from trainprobe.causes.advice import AdviceInput, rarer
from trainprobe.causes.base import Claim, Window, seconds, take_items
from trainprobe.causes.spec import CauseSpec, OrderedRule
from trainprobe.derive.steps.ledger import Item
from trainprobe.model.cause import Cause, Kind, State
from trainprobe.model.message import Message, template
from trainprobe.model.report import Evidence

SUMMARY = template("network.summary", "waiting on a socket{peer} for {seconds:.2f} s")
TO_PEER = template("network.to_peer", " to {peer}")
BLOCKED = template("network.blocked", "driver blocked on a socket{peer}")
SILENT = template("network.silent", "{peer} does not answer")
SECONDS = template("network.seconds", "driver blocked on a socket")
PEER = template("network.peer", "peer")


def claim(window: Window, left: Mapping[Item, float]) -> Claim | None:
    """State `network`."""
    taken = take_items(left, states=[State.NETWORK])
    if not taken:
        return None
    told = seconds(sum(taken.values()))
    seen = window.late.inspection
    peer = seen.peer if seen is not None else ""
    to = TO_PEER(peer=peer) if peer else None
    evidence = [Evidence.of(SECONDS(), told, "s", window.driver_pid)]
    if peer:
        evidence.append(Evidence.of(PEER(), peer, "", window.driver_pid))
    return Claim(
        Cause.NETWORK,
        taken,
        SUMMARY(peer=to, seconds=told),
        [BLOCKED(peer=to), *([SILENT(peer=peer)] if peer else [])],
        evidence,
    )


SEND_RARER = template(
    "network.advice.send_rarer",
    "send every {better} steps instead of every {every}: 1 % of the run, not {share:percent}",
)
SEND_BESIDE = template(
    "network.advice.send_beside",
    "send from another thread or process, so that the step does not wait for the answer",
)


def _advice(f: AdviceInput) -> list[Message]:
    return [*rarer(f, SEND_RARER), SEND_BESIDE()]


SPEC = CauseSpec(
    "network",
    kinds=frozenset({Kind.STALL, Kind.BOTTLENECK}),
    title="waiting for the network",
    light="#0891b2",
    dark="#22d3ee",
    group=groups.RANKS,
    rules=(OrderedRule(claim, stall=190, ordinary=100),),
    advice=_advice,
)
