"""Somebody stopped, traced or froze the driver."""

from __future__ import annotations

from trainprobe.causes import groups
from trainprobe.causes.advice import AdviceInput
from trainprobe.causes.base import Claim, Items, Window, claimed, take_items
from trainprobe.causes.spec import CauseSpec, OrderedRule
from trainprobe.model.cause import Cause, Kind, State
from trainprobe.model.message import Message, template
from trainprobe.model.report import Evidence

SUMMARY = template("suspended.summary", "stopped for {seconds:seconds} {how}")
STOPPED = template("suspended.stopped", "training thread stopped {how}")
BY_SIGNAL = template("suspended.by_signal", "by {signal}")
BY_SENDER = template("suspended.by_sender", "by {signal} from {who}")
BY_FREEZER = template("suspended.by_freezer", "by the cgroup freezer")
BY_TRACER = template("suspended.by_tracer", "by its tracer {who}")
BY_ANYTHING = template("suspended.by_anything", "by a signal, a tracer or the freezer")
SECONDS = template("suspended.seconds", "training thread stopped, traced or frozen")
SIGNAL = template("suspended.signal", "signal")
SENDER = template("suspended.sender", "{signal} sent by {who}")
FROZEN = template("suspended.frozen", "cgroup frozen")
TRACER = template("suspended.tracer", "traced by {who}")
_SIGTSTP = 20


def claim(window: Window, left: Items) -> Claim | None:
    taken = take_items(left, states=[State.STOPPED])
    if not taken:
        return None
    how, evidence = _by_whom(window)
    return claimed(window, Cause.SUSPENDED, taken, SUMMARY, [STOPPED(how=how)], SECONDS, *evidence, how=how)


def _by_whom(window: Window) -> tuple[Message, list[Evidence]]:
    """Who stopped it, as far as that was seen."""
    seen, stopper = window.late.inspection, window.stopper
    if stopper is not None:
        signal = "SIGTSTP" if stopper.signal == _SIGTSTP else "SIGSTOP"
        if not stopper.sender_pid:
            return BY_SIGNAL(signal=signal), [Evidence.of(SIGNAL(), signal, "", window.driver_pid)]
        who = f"{stopper.sender_comm or 'pid'} ({stopper.sender_pid})"
        sent = Evidence.of(SENDER(signal=signal, who=who), None, "", stopper.sender_pid)
        return BY_SENDER(signal=signal, who=who), [sent]
    if seen is not None and seen.frozen:
        return BY_FREEZER(), [Evidence.of(FROZEN(), "yes", "", window.driver_pid)]
    if seen is not None and seen.tracer_pid:
        who = f"{seen.tracer_comm or 'pid'} ({seen.tracer_pid})"
        return BY_TRACER(who=who), [Evidence.of(TRACER(who=who), None, "", seen.tracer_pid)]
    return BY_ANYTHING(), []


SEE_WHY = template(
    "suspended.advice.see_why", "see why {who} stops the training (kill -STOP, a scheduler, job control)"
)
ASK_WHO = template(
    "suspended.advice.ask_who",
    "find who stopped the process: a debugger, SIGSTOP, a job scheduler or the cgroup freezer",
)


def _advice(f: AdviceInput) -> list[Message]:
    senders = [one.message.params["who"] for one in f.evidence if one.key == SENDER.id and one.message is not None]
    return [SEE_WHY(who=senders[0]) if senders else ASK_WHO()]


SPEC = CauseSpec(
    "suspended",
    kinds=frozenset({Kind.STALL}),
    title="a stop from outside",
    colours=("#334155", "#e2e8f0"),
    group=groups.SUSPENDED,
    rules=(OrderedRule(claim, stall=10),),
    advice=_advice,
)
