"""The driver waits on a socket that is neither the loader's nor another rank's."""

from __future__ import annotations

from collections.abc import Iterable

from trainprobe.causes import groups
from trainprobe.causes.advice import AdviceInput, rarer
from trainprobe.causes.base import Claim, Items, Window, claimed, take_items
from trainprobe.causes.spec import LINE_AND, CauseSpec, OrderedRule
from trainprobe.causes.waiting import AT_A_LOCK, FOR_THREAD, LOOKS, asks_no_rank, at_lock
from trainprobe.derive.steps.late_step import SiblingThread, Transfer
from trainprobe.derive.steps.ledger import Item
from trainprobe.model.cause import Cause, Kind, State
from trainprobe.model.cells import Leaf
from trainprobe.model.message import Message, Template, template
from trainprobe.model.report import Evidence

SUMMARY = template("network.summary", "waiting on a socket{peer} for {seconds:seconds}{sent}")
TO_PEER = template("network.to_peer", " to {peer}")
SENT = template("network.sent", ", at least {bytes:bytes} sent")
BLOCKED = template("network.blocked", "training thread blocked on a socket{peer}")
SILENT = template("network.silent", "{peer} does not answer")
BY_THREAD = template("network.by_thread", "waiting for thread {tid}, which sends to {peer}: {seconds:seconds}{sent}")
THREAD_SENDS = template("network.thread_sends", "thread {tid} of the training sends to {peer}")
BY_PROCESS = template("network.by_process", "waiting for process {pid}, which sends to {peer}: {seconds:seconds}{sent}")
FOR_PROCESS = template("network.for_process", "training thread waits for process {pid}")
PROCESS_SENDS = template("network.process_sends", "process {pid} of the training sends to {peer}")
LOOKS_SENDING = template("network.looks_sending", "looks that found the thread sending")
SECONDS = template("network.seconds", "training thread blocked on a socket")
FOR_CHILD = template("network.for_child", "training thread waited for a child process")
PEER = template("network.peer", "peer")
TAKEN = template("network.taken", "sent, and taken by the peer")
_OF_THREAD = (BY_THREAD, FOR_THREAD, THREAD_SENDS, AT_A_LOCK)
_OF_PROCESS = (BY_PROCESS, FOR_PROCESS, PROCESS_SENDS, FOR_CHILD)
REPORTS = "network.reports"  # the evidence that stacks show a tracker, or an upload
_MOSTLY = 0.5
"""Of the looks."""
_OF_WORK, _ANSWER_SECONDS = 0.2, 0.5
"""Of the run, in waits so long in the median: nobody logs so dearly, the answers are what the training works with."""
_WORTH, _UPLOAD = 100_000, 20_000_000
"""Bytes that are told; those that are no question."""


def claim(window: Window, left: Items) -> Claim | None:
    socket, peer = window.late.socket, window.late.peer
    taken = take_items(left, states=[State.NETWORK])
    if peer and (peer in window.servers or asks_no_rank(window)):
        taken |= take_items(left, states=[State.COLLECTIVE], leaves=[Leaf.SOCKET])
    if not taken:
        return None
    to = TO_PEER(peer=peer) if peer else None
    sent, evidence = _sent(window, socket, window.driver_pid)
    chain = [BLOCKED(peer=to)]
    if peer:
        evidence.insert(0, Evidence.of(PEER(), peer, "", window.driver_pid))
        chain += [SILENT(peer=peer)] if sent is None else []
    return claimed(window, Cause.NETWORK, taken, SUMMARY, chain, SECONDS, *evidence, peer=to, sent=sent)


def claim_thread(window: Window, left: Items) -> Claim | None:
    """State `lock`, where a Python thread beside the driver was found to send in most looks, or at a socket and on a
    CPU between them. One that waits for what may come, as monitors do, is no evidence."""
    threads = [one for one in window.late.beside.values() if one.own_tid in window.python_threads]
    return _claim_sender(window, at_lock(window, left), threads, "tid", _OF_THREAD)


def claim_process(window: Window, left: Items) -> Claim | None:
    """Waits for a child process, where one of its threads was found to send, as above."""
    return _claim_sender(
        window, take_items(left, leaves=[Leaf.CHILD]), window.late.children.values(), "pid", _OF_PROCESS
    )


def _claim_sender(
    window: Window, taken: dict[Item, float], threads: Iterable[SiblingThread], called: str, texts: tuple[Template, ...]
) -> Claim | None:
    """For the thread that sent in most looks, which ``texts`` call by its ``tid`` or by its process's ``pid``."""
    sending = [one for one in threads if one.sending and one.sending >= _MOSTLY * one.looks]
    thread = max(sending, key=lambda one: one.sending, default=None)
    if not taken or thread is None:
        return None
    summary, waited_for, sends, waited = texts
    peer, number = thread.socket.peer, getattr(thread, called)
    sent, evidence = _sent(window, thread.socket, number)
    named = {called: number}
    looks = (
        Evidence.of(LOOKS_SENDING(), thread.sending, "", thread.tid),
        Evidence.of(LOOKS(), thread.looks, ""),
        Evidence.of(PEER(), peer, "", thread.tid),
    )
    chain = [waited_for(**named), sends(**named, peer=peer)]
    values = {**named, "peer": peer, "sent": sent}
    return claimed(window, Cause.NETWORK, taken, summary, chain, waited, *looks, *evidence, **values)


def _sent(window: Window, socket: Transfer, tid: int) -> tuple[Message | None, list[Evidence]]:
    """What was sent in the window, where that can be told."""
    size = socket.bytes(window.start_ns)
    if size < _WORTH:
        return None, []
    return SENT(bytes=size), [Evidence.of(TAKEN(), size, "bytes", tid)]


SEND_RARER = template(
    "network.advice.send_rarer",
    "send every {better} steps instead of every {every:step|#}: 1 % of {run}, not {share:percent}",
)
SEND_BESIDE = template(
    "network.advice.send_beside", "send from another thread or process, so that the step does not wait for the answer"
)


SEND_EARLIER = template(
    "network.advice.send_earlier", "send while the training steps: what is sent by then is not waited for here"
)


ASK_AHEAD = template(
    "network.advice.ask_ahead",
    "where its answers are the training's work (a server that generates or scores): ask for the next step's while this "
    "one computes, for more of them at once, or give the server more devices",
)


def _advice(f: AdviceInput) -> list[Message]:
    sent = [one.value for one in f.evidence if one.key == TAKEN.id and isinstance(one.value, (int, float))]
    reports = any(one.key == REPORTS for one in f.evidence)
    sends = reports or max(sent, default=0) >= _UPLOAD or f.saw(LOOKS_SENDING)
    if f.share > _OF_WORK and f.each >= _ANSWER_SECONDS and not sends:
        return [ASK_AHEAD(), SEND_BESIDE()]
    return [*rarer(f, SEND_RARER), SEND_EARLIER() if f.saw(LOOKS_SENDING) else SEND_BESIDE()]


SPEC = CauseSpec(
    "network",
    kinds=frozenset({Kind.STALL, Kind.BOTTLENECK}),
    title="waiting for the network",
    colours=("#0891b2", "#22d3ee"),
    group=groups.RANKS,
    rules=(
        OrderedRule(claim, stall=190, ordinary=100),
        OrderedRule(claim_thread, stall=175),
        OrderedRule(claim_process, stall=176),
    ),
    advice=_advice,
    in_line=LINE_AND,
)
