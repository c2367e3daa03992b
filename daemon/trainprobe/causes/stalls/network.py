"""The driver waits on a socket that is neither the loader's nor another rank's."""

from __future__ import annotations

from collections.abc import Mapping

from trainprobe.causes import groups
from trainprobe.causes.advice import AdviceInput, rarer
from trainprobe.causes.base import Claim, Window, seconds, take_items
from trainprobe.causes.spec import CauseSpec, OrderedRule
from trainprobe.causes.waiting import AT_A_LOCK, FOR_THREAD, LOOKS
from trainprobe.derive.steps.ledger import Item
from trainprobe.model.cause import Cause, Kind, State
from trainprobe.model.message import Message, template
from trainprobe.model.report import Evidence

SUMMARY = template("network.summary", "waiting on a socket{peer} for {seconds:.2f} s")
TO_PEER = template("network.to_peer", " to {peer}")
BLOCKED = template("network.blocked", "driver blocked on a socket{peer}")
SILENT = template("network.silent", "{peer} does not answer")
BY_THREAD = template("network.by_thread", "waiting for thread {tid}, which sends to {peer}: {seconds:.2f} s")
THREAD_SENDS = template("network.thread_sends", "thread {tid} of the training sends to {peer}")
LOOKS_SENDING = template("network.looks_sending", "looks that found the thread sending")
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


def claim_thread(window: Window, left: Mapping[Item, float]) -> Claim | None:
    """State `lock`, where a Python thread beside the driver was found to send in most looks, or at a socket and on a
    CPU between them. One that waits for what may come, as monitors do, is no evidence."""
    taken = take_items(left, states=[State.LOCK])
    python = [one for one in window.late.beside.values() if one.own_tid in window.python_threads]
    sending = [one for one in python if one.sending and one.sending >= _MOSTLY * one.looks]
    if not taken or not sending:
        return None
    thread = max(sending, key=lambda one: one.sending)
    waited = seconds(sum(taken.values()))
    return Claim(
        Cause.NETWORK,
        taken,
        BY_THREAD(tid=thread.tid, peer=thread.peer, seconds=waited),
        [FOR_THREAD(tid=thread.tid), THREAD_SENDS(tid=thread.tid, peer=thread.peer)],
        [
            Evidence.of(AT_A_LOCK(), waited, "s", window.driver_pid),
            Evidence.of(LOOKS_SENDING(), thread.sending, "", thread.tid),
            Evidence.of(LOOKS(), thread.looks, ""),
            Evidence.of(PEER(), thread.peer, "", thread.tid),
        ],
    )


SEND_RARER = template(
    "network.advice.send_rarer",
    "send every {better} steps instead of every {every}: 1 % of the run, not {share:percent}",
)
SEND_BESIDE = template(
    "network.advice.send_beside",
    "send from another thread or process, so that the step does not wait for the answer",
)


SEND_EARLIER = template(
    "network.advice.send_earlier",
    "let the thread send while the training steps: what is sent by then is not waited for here",
)
_MOSTLY = 0.5
"""Of the looks."""


def _advice(f: AdviceInput) -> list[Message]:
    return [*rarer(f, SEND_RARER), SEND_EARLIER() if f.saw(LOOKS_SENDING) else SEND_BESIDE()]


SPEC = CauseSpec(
    "network",
    kinds=frozenset({Kind.STALL, Kind.BOTTLENECK}),
    title="waiting for the network",
    light="#0891b2",
    dark="#22d3ee",
    group=groups.RANKS,
    rules=(OrderedRule(claim, stall=190, ordinary=100), OrderedRule(claim_thread, stall=175)),
    advice=_advice,
)
