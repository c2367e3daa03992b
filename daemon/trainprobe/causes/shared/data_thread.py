"""The driver waits at a lock for another thread of its own process, or at a pipe for a child process, which makes or
reads the data."""

from __future__ import annotations

from collections.abc import Sequence

from trainprobe.causes.base import Claim, Items, Window, seconds, take_items
from trainprobe.causes.spec import OrderedRule
from trainprobe.causes.waiting import A_FILE, AT_A_LOCK, FOR_THREAD, LOOKS, at_lock
from trainprobe.derive.files.purpose import is_named_output
from trainprobe.derive.python.code_lines import in_one_function
from trainprobe.derive.python.stacks import takes_from_queue, waits_for_result
from trainprobe.derive.python.trackers import reports
from trainprobe.derive.steps.late_step import SiblingThread
from trainprobe.derive.steps.ledger import Item
from trainprobe.model.cause import Cause, State
from trainprobe.model.cells import Leaf
from trainprobe.model.message import template
from trainprobe.model.report import Evidence

READS = template("data_thread.reads", "reading data from slow storage in a thread on {path}")
BLOCKED = template("data_thread.blocked", "thread {tid} of the training is blocked on {path}")
WORKS = template("data_thread.works", "the training thread waited for {thread}")
ON_CPU = template("data_thread.on_cpu", "thread {tid} of the training on the CPU{where}")
IN_FRAME = template("data_thread.in_frame", " in {frame}")
LOOKS_BLOCKED = template("data_thread.looks_blocked", "looks that found the thread blocked on a device")
CHILD_WORKS = template(
    "data_thread.child_works", "the training thread waited for what process {pid} of the training writes to a pipe"
)
CHILD_ON_CPU = template("data_thread.child_on_cpu", "process {pid} of the training on the CPU")
AT_A_PIPE = template("data_thread.at_a_pipe", "training thread reads a pipe")
WAITED_AT_PIPE = template("data_thread.waited_at_pipe", "training thread waited at a pipe")
CHILD_SHARE = template("data_thread.child_share", "the process's share of a processor meanwhile")
SHARE = template("data_thread.share", "the thread's share of a processor meanwhile")
RECEIVES = template(
    "data_thread.receives", "reading data over the network{peer} in thread {tid} of the training, in {frame}"
)
ASKS = template("data_thread.asks", "waiting for an answer of {peer} to thread {tid} of the training, in {frame}")
FROM_PEER = template("data_thread.from_peer", " from {peer}")
AT_A_SOCKET = template("data_thread.at_a_socket", "thread {tid} of the training waits at a socket")
LOOKS_AT_SOCKET = template(
    "data_thread.looks_at_socket", "looks that found the thread at a socket, with nothing to send"
)
FEEDS = template(
    "data_thread.feeds", "the training thread waits in a queue for thread {tid} of the training, which fills it{where}"
)
BESIDE_SECONDS = template(
    "data_thread.beside_seconds",
    "processor time of other threads, beyond what they may compute with the training thread",
)
_MOSTLY = 0.5
"""Of the looks, or of the time between them."""
_ALWAYS, _SOME = 2, 0.25
"""So many looks, each of which found it on a CPU or ready for one: it computed, though others had most of that time."""


def claim(window: Window, left: Items) -> Claim | None:
    """The lock's wait, when one thread beside it was blocked on a device, or is Python's and was on the CPU.

    Threads that sleep or poll are no evidence: monitors and log writers do that all day. Nor are a library's own
    threads on the CPU (OpenMP): they do the driver's work.
    """
    taken = at_lock(window, left)
    if not taken:
        return None
    savers = {*window.savers, *(save.tid for save in window.saves)}  # one that writes is blocked on a device, too
    beside = [one for one in window.late.beside.values() if one.tid not in savers]
    reading = [one for one in beside if one.reading >= max(1.0, _MOSTLY * one.looks) and not is_named_output(one.path)]
    if reading:
        return _reads(window, taken, max(reading, key=lambda one: one.reading))
    if window.fetches_per_backward > 0:  # a DataLoader makes its batches: the thread does something else
        return None
    busy = [one for one in beside if one.own_tid in window.python_threads and _computes(one)]
    if busy:
        return _works(window, taken, max(busy, key=lambda one: one.busy()))
    return _receives(window, taken, beside)


def _receives(window: Window, taken: dict[Item, float], beside: Sequence[SiblingThread]) -> Claim | None:
    """Where all stacks of its waits show the driver in a queue, or that it waits for a result, and the one other
    function of the user's, in one thread or in a pool, waits at a socket in most looks. (A tracker's thread does so all
    day, in no code of the user's.) What comes through a queue is data; a result is an answer that was asked for."""
    waits = [stack for stack in window.late.stacks if stack.frames and not stack.running]
    in_queue = all(takes_from_queue(stack.frames) for stack in waits)
    if not waits or not (in_queue or all(waits_for_result(stack.frames) for stack in waits)):
        return None
    users = [in_one_function(stack.others) for stack in waits]
    frames = {one.own_tid: one.caller or one.frame for threads in users for one in threads}
    reading = [one for one in beside if one.own_tid in frames and one.receiving > _MOSTLY * one.looks]
    if not all(users) or not reading or any(reports([frame]) for frame in frames.values()):
        return None
    thread = max(reading, key=lambda one: one.receiving)
    tid, frame, peer = thread.tid, frames[thread.own_tid], thread.socket.peer
    data = RECEIVES(peer=FROM_PEER(peer=peer), tid=tid, frame=frame)
    return Claim(
        Cause.DATA_STORAGE if in_queue else Cause.NETWORK,
        taken,
        data if in_queue else ASKS(peer=peer, tid=tid, frame=frame),
        [FOR_THREAD(tid=tid), AT_A_SOCKET(tid=tid)],
        [
            _waited(window, taken),
            Evidence.of(LOOKS_AT_SOCKET(), thread.receiving, "", tid),
            Evidence.of(LOOKS(), thread.looks, ""),
        ],
    )


def claim_feeder(window: Window, left: Items) -> Claim | None:
    """The lock's waits of ordinary steps, where one thread was found to fill the queue, and threads beside the driver's
    compute for most of them, or it was mostly found at a socket."""
    feeder = window.feeder
    taken = take_items(left, states=[State.LOCK])
    if feeder is None or not taken or window.fetches_per_backward > 0:
        return None
    tid, frame = feeder.thread.own_tid, feeder.thread.caller or feeder.thread.frame
    if feeder.reads_network and not reports([frame]):
        return Claim(
            Cause.DATA_STORAGE,
            taken,
            RECEIVES(peer=None, tid=tid, frame=frame),
            [FOR_THREAD(tid=tid), AT_A_SOCKET(tid=tid)],
            [_waited(window, taken)],
        )
    if feeder.cpu_ns is None or feeder.cpu_ns < _MOSTLY * sum(taken.values()):
        return None
    where = IN_FRAME(frame=frame)
    return Claim(
        Cause.DATA_CPU,
        taken,
        FEEDS(tid=tid, where=where),
        [FOR_THREAD(tid=tid)],
        [
            _waited(window, taken),
            Evidence.of(BESIDE_SECONDS(), seconds(feeder.cpu_ns), "s", window.driver_pid),
        ],
    )


def claim_child(window: Window, left: Items) -> Claim | None:
    """The wait for a pipe, while a child process is on the CPU: a decoder that writes to it. Where a DataLoader makes
    the batches, a child does something else."""
    if window.fetches_per_backward > 0:
        return None
    taken = take_items(left, states=[State.OTHER], leaves=[Leaf.PIPE_READ])
    busy = [one for one in window.late.children.values() if _computes(one)]
    if not taken or not busy:
        return None
    pid, waited = max(busy, key=lambda one: one.busy()).pid, seconds(sum(taken.values()))
    share = min(1.0, sum(one.busy() for one in busy if one.pid == pid))
    return Claim(
        Cause.DATA_CPU,
        taken,
        CHILD_WORKS(pid=pid),
        [AT_A_PIPE(), CHILD_ON_CPU(pid=pid)],
        [
            Evidence.of(WAITED_AT_PIPE(), waited, "s", window.driver_pid),
            Evidence.of(CHILD_SHARE(), round(share, 3), "ratio", pid),
        ],
    )


def _computes(thread: SiblingThread) -> bool:
    return thread.busy() >= (_SOME if thread.running == thread.looks >= _ALWAYS else _MOSTLY)


def _reads(window: Window, taken: dict[Item, float], thread: SiblingThread) -> Claim:
    told = BLOCKED(tid=thread.tid, path=thread.path or A_FILE())
    return Claim(
        Cause.DATA_STORAGE,
        taken,
        READS(path=thread.path) if thread.path else told,
        [FOR_THREAD(tid=thread.tid), told],
        [
            _waited(window, taken),
            Evidence.of(LOOKS_BLOCKED(), thread.reading, "", thread.tid, thread.path or None),
            Evidence.of(LOOKS(), thread.looks, ""),
        ],
    )


def _works(window: Window, taken: dict[Item, float], thread: SiblingThread) -> Claim:
    frames = [one.frame for stack in window.late.stacks for one in stack.others if one.own_tid == thread.own_tid]
    where = IN_FRAME(frame=frames[-1]) if frames else None
    told = ON_CPU(tid=thread.tid, where=where)
    return Claim(
        Cause.DATA_CPU,
        taken,
        WORKS(thread=told),
        [FOR_THREAD(tid=thread.tid), told],
        [_waited(window, taken), Evidence.of(SHARE(), round(thread.busy(), 3), "ratio", thread.tid)],
    )


def _waited(window: Window, taken: Items) -> Evidence:
    return Evidence.of(AT_A_LOCK(), seconds(sum(taken.values())), "s", window.driver_pid)


RULES = (
    OrderedRule(claim, stall=170),
    OrderedRule(claim_child, stall=172),
    OrderedRule(claim_feeder, ordinary=105),
)
