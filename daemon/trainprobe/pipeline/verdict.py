"""The one line of a rank: what matters most. An event that ended the run outranks seconds."""

from __future__ import annotations

from dataclasses import dataclass

from trainprobe.derive.workers import Death
from trainprobe.detect.limits.base import Notice
from trainprobe.detect.rules import worker_hang
from trainprobe.detect.waiting import LEAF_WORDS
from trainprobe.model.cause import Cause
from trainprobe.model.cells import RunState
from trainprobe.model.moment import NS
from trainprobe.model.report import Bound, Exit, Verdict
from trainprobe.pipeline.bottlenecks import Found
from trainprobe.pipeline.rank import RankFold
from trainprobe.pipeline.stalls import Entry

INPUT, COMPUTE = 0.2, 0.05
"""Share of data time from which a run is input-bound, and below which compute-bound (GPU < 80 %, > 95 %)."""


def exit_of(fold: RankFold) -> Exit | None:
    """How the rank's process ended; None while it runs."""
    event = fold.exit_event
    if event is None:
        return None
    signal = event.signal or None
    if signal:
        return Exit(None, signal, f"killed by signal {signal}")
    death, notice = ending_death(fold), ending_notice(fold)
    if event.code and notice and (death is None or notice.at_ns <= death.at_ns or notice.pid == death.pid):
        return Exit(event.code, None, f"exit code {event.code} after {notice.cause.value}")
    if event.code and death:
        return Exit(event.code, None, f"exit code {event.code} after {death.told()}")
    return Exit(event.code, None, f"exit code {event.code}" if event.code else "finished")


def ending_death(fold: RankFold) -> Death | None:
    """The first abnormal death of a worker that the end of the rank follows."""
    event = fold.exit_event
    if event is None or not (event.code or event.signal):
        return None
    near = [d for d in fold.deaths if 0 <= event.at_ns - d.at_ns <= fold.policy.death_explains_ns]
    return near[0] if near else None


def ending_notice(fold: RankFold) -> Notice | None:
    """The first limit that was hit and that the end of the rank follows; none where somebody killed it."""
    event = fold.exit_event
    if event is None or not (event.code or event.signal):
        return None
    happened = [n for n in fold.notices.told.values() if n.happened]
    victim = next((n for n in happened if n.cause == Cause.OOM_KILL and n.pid == fold.seen.pid), None)
    if victim is not None:
        return victim
    if event.signal and fold.killer is not None and fold.killer.by_user and fold.killer.sender_pid != fold.seen.pid:
        return None
    near = [n for n in happened if -NS <= event.at_ns - n.at_ns <= fold.policy.death_explains_ns]
    return min(near, key=lambda n: n.at_ns, default=None)


@dataclass(frozen=True, slots=True)
class Losses:
    """Lost ns by cause: in stalls (the open one included), and in ordinary steps."""

    stalls: dict[Cause, float]
    bottlenecks: dict[Cause, float]

    def total(self) -> dict[Cause, float]:
        """Both together."""
        out = dict(self.stalls)
        for cause, ns in self.bottlenecks.items():
            out[cause] = out.get(cause, 0.0) + ns
        return out


def losses(fold: RankFold, found: list[Found]) -> Losses:
    """What the rank lost so far."""
    stalls = dict(fold.book.seconds)
    if fold.book.open is not None:
        for cause, ns in fold.book.open.shares.items():
            stalls[cause] = stalls.get(cause, 0.0) + ns
    return Losses(stalls, {f.cause: f.ns for f in found})


def verdict(fold: RankFold, lost: Losses, found: list[Found], wall_ns: float) -> Verdict:
    """What matters most for this rank."""
    hung = fold.book.open or _hung_until_killed(fold)
    death = _death_behind(fold, hung) if hung is not None else None
    if hung is not None and death is not None and wall_ns > 0:
        text = f"{death.told()}, and the driver waits for its batch: {hung.ns / NS:.1f} s so far"
        if hung.end_ns is not None:
            text = f"{death.told()}, and the driver waited for its batch for {hung.ns / NS:.1f} s, until it was killed"
        return Verdict("stall", Cause.WORKER_DEATH.value, hung.ns / NS, hung.ns / wall_ns, text)
    ended = _ended(fold)
    if ended is not None:
        return ended
    total = lost.total()
    if not total or wall_ns <= 0:
        return _none(fold, wall_ns)
    cause = max(total, key=lambda c: total[c])
    ns = total[cause]
    share = ns / wall_ns
    if share < 0.005 and ns < 0.3 * NS:
        return _none(fold, wall_ns)
    by_stall = lost.stalls.get(cause, 0.0) >= lost.bottlenecks.get(cause, 0.0)
    text = _stall_text(fold, cause, ns, share) if by_stall else _bottleneck_text(found, cause, ns, share)
    return Verdict("stall" if by_stall else "bottleneck", cause.value, ns / NS, share, text)


def _ended(fold: RankFold) -> Verdict | None:
    event = fold.exit_event
    if event is None or not (event.code or event.signal):
        return None
    death = ending_death(fold)
    notice = ending_notice(fold)
    if notice is not None and (death is None or notice.at_ns <= death.at_ns or notice.pid == death.pid):
        after = max(0, event.at_ns - notice.at_ns) / NS
        tail = f"; the training ended {after:.1f} s later" if notice.pid != fold.seen.pid or after >= 1 else ""
        return Verdict("end", notice.cause.value, 0.0, 0.0, notice.summary + tail)
    if death is not None:
        cause = Cause.OOM_KILL if death.reason == "oom_kill" else Cause.WORKER_DEATH
        return Verdict(
            "end",
            cause.value,
            0.0,
            0.0,
            f"{death.told()}; the training ended {(event.at_ns - death.at_ns) / NS:.1f} s later"
            f"{_consequences(fold, death)}",
        )
    if fold.oom_killed:
        return Verdict(
            "end", Cause.OOM_KILL.value, 0.0, 0.0, f"the training (pid {fold.seen.pid}) was killed for want of memory"
        )
    if event.signal and _hung_until_killed(fold) is None:
        sender = fold.killer
        by = f" by {sender.sender_comm or 'pid'} ({sender.sender_pid})" if sender and sender.sender_pid else ""
        return Verdict("end", None, 0.0, 0.0, f"the training was killed by signal {event.signal}{by}")
    return None


def _hung_until_killed(fold: RankFold) -> Entry | None:
    """The stall in which somebody lost patience: why it hung matters more than who killed it."""
    last = fold.book.entries[-1] if fold.book.entries else None
    event, killer = fold.exit_event, fold.killer
    if last is None or event is None or not event.signal or fold.oom_killed:
        return None
    by_hand = killer is not None and killer.signal == event.signal and killer.by_user
    hung = last.end_ns is not None and last.end_ns == fold.end_ns and last.ns >= fold.policy.hang_ns
    return last if by_hand and hung else None


def _death_behind(fold: RankFold, entry: Entry) -> Death | None:
    """The worker's death that a hang followed."""
    if entry.cause != Cause.WORKER_HANG:
        return None
    since = entry.start_ns - fold.policy.death_stalls_ns
    return next((d for d in reversed(fold.deaths) if since <= d.at_ns and _blames(entry, d)), None)


def _blames(entry: Entry, death: Death) -> bool:
    return any(one.what == worker_hang.SINCE_DEATH and one.pid == death.pid for one in entry.evidence)


def _consequences(fold: RankFold, first: Death) -> str:
    """What the first death brought with it, so that nobody looks for its cause there."""
    later = [d for d in fold.deaths if d is not first and d.at_ns >= first.at_ns]
    others = "" if not later else f" of {len(later)} more worker" + ("s" if len(later) > 1 else "")
    ends = f"the end{others} and " if later else ""
    return f" ({ends}errors of its connections, ConnectionResetError or EPIPE, are the consequence)"


def _none(fold: RankFold, wall_ns: float) -> Verdict:
    if fold.rhythm.stands and fold.clock.provisional == 0:
        seconds = fold.rhythm.judged_ns / NS
        return Verdict("none", None, 0.0, 0.0, f"no step is marked; in {seconds:.0f} s watched no wait was unusual")
    if fold.clock.provisional == 0:
        return Verdict("none", None, 0.0, 0.0, _without_steps(fold))
    if not fold.baseline.stands:
        return Verdict(
            "none", None, 0.0, 0.0, f"{fold.clock.provisional} steps: too few to know what an ordinary step is"
        )
    return Verdict(
        "none",
        None,
        0.0,
        0.0,
        f"healthy: {fold.clock.provisional} steps in {wall_ns / NS:.1f} s, nothing lost that is worth a change",
    )


def _without_steps(fold: RankFold) -> str:
    """We came when it was running: what is ordinary for it is not known, what it does now is."""
    sample = fold.sample
    if not fold.attached or sample is None or fold.end_ns is not None:
        return "no training step was seen"
    watched = max(0, fold.sample_ns - fold.start_ns) / NS
    now = "on the CPU" if sample.run == RunState.ON else LEAF_WORDS.get(sample.leaf, "a wait")
    return f"cannot tell yet: no step has ended in the {watched:.0f} s since we watch; its driver is in {now}"


def _stall_text(fold: RankFold, cause: Cause, ns: float, share: float) -> str:
    entries = [e for e in fold.book.entries if e.cause == cause]
    count = fold.book.counts.get(cause, 0) + (1 if fold.book.open and fold.book.open.cause == cause else 0)
    every = fold.book.every(cause) if fold.clock.count else None
    rhythm = f", every {every} steps" if every else ""
    largest = max(entries, key=lambda e: e.ns, default=fold.book.open)
    what = f": {largest.summary}" if largest and largest.summary else ""
    times = "1 stall" if count <= 1 else f"{count} stalls"
    return f"{cause.value} cost {ns / NS:.1f} s ({share:.0%} of the run) in {times}{rhythm}{what}"


def _bottleneck_text(found: list[Found], cause: Cause, ns: float, share: float) -> str:
    one = next((f for f in found if f.cause == cause), None)
    of = f", {one.share:.0%} of each ordinary step" if one else ""
    what = f": {one.claim.summary}" if one and one.claim.summary else ""
    return f"{cause.value} costs {ns / NS:.1f} s ({share:.0%} of the run){of}{what}"


def bound(data_ns: float, train_ns: float, steps: int) -> Bound:
    """Whether data or compute sets the pace, with the reason."""
    if steps < 8 or train_ns <= 0:
        return Bound("unknown", "too few steps")
    share = data_ns / train_ns
    why = f"the driver waits for data or loads it for {share:.0%} of its training time"
    return Bound("input" if share >= INPUT else "compute" if share <= COMPUTE else "mixed", why)
