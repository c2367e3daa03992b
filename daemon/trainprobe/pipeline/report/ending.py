"""How a rank's process ended, and what it failed by."""

from __future__ import annotations

from trainprobe.causes.run.worker_death import MEMORY_KEEPERS
from trainprobe.causes.situation import Notice
from trainprobe.derive.workers import CRASHES, Death
from trainprobe.model.cause import Cause
from trainprobe.model.message import Message, template
from trainprobe.model.moment import NS
from trainprobe.model.report import Exit
from trainprobe.model.vocabulary import PASSES_ON, Ending
from trainprobe.pipeline.rank.lives import INTERRUPT, TIMERS, Sender, Sent
from trainprobe.pipeline.rank.snapshot import RankSnapshot
from trainprobe.pipeline.stalls import StallEntry

BY_SENDER = template("verdict.by_sender", " by {name} ({pid})")
KILLED = template("exit.killed", "killed by signal {signal}{by}")
OWN_KILL = template("exit.own_kill", "ended by a signal of its own, {signal}{by}")
INTERRUPTED = template("exit.interrupted", "interrupted (Ctrl-C)")
INTERRUPTED_BY = template("exit.interrupted_by", "interrupted by SIGINT, sent{by}")
TIMED_OUT = template("exit.timeout", "timed out: signal {signal}{by}")
WATCHDOG = template("exit.watchdog", "aborted by a watchdog: signal {signal}{by}")
LAUNCHER = template("exit.launcher", "ended by its launcher: signal {signal}{by}")
OOM = template("exit.oom", "killed for want of memory{by}")
EXITED = template("exit.code", "exit code {code}")
EXITED_AFTER = template("exit.after", "exit code {code} after {what}")
FINISHED = template("exit.finished", "finished")
RUNNING = template("exit.running", "running")

ABORT, KILL, CPU_LIMIT, INTERRUPTED_CODE = 6, 9, 24, 130
BY_SIGNAL = 128  # added to a signal's number, it is the exit code of who ended for it
OWN_TIMERS = (14, 26, 27)  # SIGALRM, SIGVTALRM, SIGPROF: of alarm(2) and setitimer(2)
WATCHDOGS = ("pt_nccl", "pt_gloo")
"""Names of the threads that watch a process group's operations begin so."""
_TOLD = frozenset({Ending.INTERRUPTED, Ending.KILLED, Ending.TIMEOUT, Ending.FINISHED, Ending.RUNNING})


def signal_of(rank: RankSnapshot) -> Sent | None:
    """The signal that ended it, or that its exit code names: it took its time to end, as for a last save."""
    event = rank.lives.exit_event
    code = event.code or 0 if event is not None else 0
    named = (sent for sent in rank.lives.signals if sent.event.signal == code - BY_SIGNAL)
    return rank.lives.signal or next(named, None)


def ending_of(rank: RankSnapshot) -> Ending | None:
    """What ended the rank's process; None where nobody saw its end."""
    event, sent = rank.lives.exit_event, signal_of(rank)
    if event is None:
        return Ending.RUNNING if rank.time.end is None else None
    if rank.lives.oom_killed or (sent is not None and sent.event.sender_comm in MEMORY_KEEPERS):
        return Ending.OOM
    number = event.signal or (sent.event.signal if sent is not None else None)
    if event.signal in OWN_TIMERS and (sent is None or not sent.event.by_user):
        return Ending.OWN_KILL
    if sent is not None and (event.signal is None or event.signal == KILL or event.signal == sent.event.signal):
        ending = _of_signal(rank, sent)
        # A notebook's client, too, interrupts a kernel that has nothing more to do.
        survived = event.code == 0 and (ending in (Ending.KILLED, Ending.OWN_KILL) or sent.by is Sender.OF_THE_RUN)
        return Ending.FINISHED if survived else ending
    if number == CPU_LIMIT:
        return Ending.TIMEOUT
    if number is not None:
        return Ending.EXCEPTION if number in CRASHES else Ending.KILLED
    if event.code == INTERRUPTED_CODE:
        return Ending.INTERRUPTED
    return Ending.EXCEPTION if event.code else Ending.FINISHED


def _of_signal(rank: RankSnapshot, sent: Sent) -> Ending:
    event = sent.event
    if event.sender_comm in TIMERS or event.signal == CPU_LIMIT:
        return Ending.TIMEOUT
    if sent.by is Sender.LAUNCHER or (event.signal == ABORT and event.sender_comm.startswith(WATCHDOGS)):
        return Ending.WATCHDOG
    if event.signal == INTERRUPT:
        return Ending.INTERRUPTED
    if sent.by is Sender.OUTSIDE:
        return Ending.KILLED
    if event.sender_pid == event.pid and event.signal in CRASHES:
        in_collective = event.signal == ABORT and _waits_for_ranks(rank)
        return Ending.WATCHDOG if in_collective else Ending.EXCEPTION
    return Ending.OWN_KILL


def _waits_for_ranks(rank: RankSnapshot) -> bool:
    hung = hung_at_end(rank)
    return hung is not None and hung.cause in (Cause.COLLECTIVE_WAIT, Cause.NETWORK)


def hung_at_end(rank: RankSnapshot) -> StallEntry | None:
    """The stall in which the rank ended, where it was so long that somebody lost patience: why it hung matters more
    than what ended it."""
    last, boundary_ns = rank.stalls.entries[-1] if rank.stalls.entries else None, rank.steps.boundary_ns
    if last is None or last.end_ns is None or boundary_ns is None or rank.time.end is None:
        return None
    return last if last.end_ns > boundary_ns and last.ns >= rank.policy.hang_ns else None


def ending_death(rank: RankSnapshot) -> Death | None:
    """The first abnormal death of a worker that the end of the rank follows."""
    event = rank.lives.exit_event
    if event is None or not (event.code or event.signal):
        return None
    near = [d for d in rank.lives.abnormal if 0 <= event.at_ns - d.at_ns <= rank.policy.death_explains_ns]
    return near[0] if near else None


def ending_notice(rank: RankSnapshot) -> Notice | None:
    """The first limit that was hit and that the end of the rank follows; none where somebody else ended it."""
    event = rank.lives.exit_event
    if event is None or not (event.code or event.signal):
        return None
    happened = [n for n in rank.notices if n.happened]
    victim = next((n for n in happened if n.cause == Cause.OOM_KILL and n.pid == rank.seen.pid), None)
    if victim is not None or ending_of(rank) in _TOLD:
        return victim
    near = [n for n in happened if -NS <= event.at_ns - n.at_ns <= rank.policy.death_explains_ns]
    return min(near, key=lambda n: n.at_ns, default=None)


def exit_of(rank: RankSnapshot) -> Exit | None:
    """How the rank's process ended, or that it runs; None where nobody saw its end."""
    event, ending = rank.lives.exit_event, ending_of(rank)
    if ending is None:
        return None
    if event is None:
        return Exit.of(RUNNING(), ending)
    return Exit.of(_reason(rank, ending), ending, event.code, event.signal or None)


def _reason(rank: RankSnapshot, ending: Ending) -> Message:
    event, sent = rank.lives.exit_event, signal_of(rank)
    assert event is not None
    by = sender_of(sent)
    signal = sent.event.signal if sent is not None else event.signal
    if ending == Ending.FINISHED:
        return FINISHED()
    if ending == Ending.OOM:
        return OOM(by=by)
    if ending == Ending.INTERRUPTED:
        return INTERRUPTED_BY(by=by) if by is not None else INTERRUPTED()
    if ending == Ending.EXCEPTION and event.code:
        return _after(rank, event.code)
    if ending == Ending.WATCHDOG and sent is not None and sent.by is Sender.LAUNCHER:
        return LAUNCHER(signal=signal, by=by)
    made = {Ending.TIMEOUT: TIMED_OUT, Ending.WATCHDOG: WATCHDOG, Ending.OWN_KILL: OWN_KILL}.get(ending, KILLED)
    return made(signal=signal, by=by)


def sender_of(sent: Sent | None) -> Message | None:
    """Who sent it, where that was a process and not the one that it ended."""
    if sent is None or not sent.event.by_user or not sent.event.sender_pid or sent.event.sender_comm == PASSES_ON:
        return None
    if sent.event.sender_pid == sent.event.pid:
        return None
    return BY_SENDER(name=sent.event.sender_comm or "pid", pid=sent.event.sender_pid)


def _after(rank: RankSnapshot, code: int) -> Message:
    """An exit code, with the first thing that went wrong before."""
    death, notice, hung = ending_death(rank), ending_notice(rank), hung_at_end(rank)
    if notice is not None and (death is None or notice.at_ns <= death.at_ns or notice.pid == death.pid):
        return EXITED_AFTER(code=code, what=notice.cause.value)
    if death is not None:
        return EXITED_AFTER(code=code, what=death.message())
    if hung is not None and hung.cause != Cause.UNKNOWN:
        return EXITED_AFTER(code=code, what=hung.cause.value)
    return EXITED(code=code)
