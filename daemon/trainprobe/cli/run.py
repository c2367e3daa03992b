"""Runs a command under observation; its exit code is the command's.

examples:
  trainprobe run -- python train.py
  trainprobe run -o report.json --record run.jsonl -- torchrun --nproc-per-node 2 train.py

The report is printed on stderr when the command has ended, and written as JSON to -o. The command is started
as if nobody were there: its own user, environment, terminal, input and output; signals reach it as always.
A plain user is asked for the sudo password, for the half that loads eBPF programs and for nothing else."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
from collections.abc import Callable
from pathlib import Path

from trainprobe.cli import OWN_FAILURE, Refusal, complain, outputs
from trainprobe.cli.watching import WatchSetup, add_options
from trainprobe.model.vocabulary import PASSES_ON
from trainprobe.runtime.loop.signals import Received, Signals
from trainprobe.runtime.session.caller import Session
from trainprobe.runtime.session.child_command import Launched, StartError, give_back, refuse_early
from trainprobe.text.saying import word

JOB_CONTROL = {
    signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU, signal.SIGCONT, signal.SIGCHLD, signal.SIGWINCH,
}  # fmt: skip
FAULTS = {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGTRAP, signal.SIGSYS}
TAKEN = signal.valid_signals() - JOB_CONTROL - FAULTS - {signal.SIGKILL}
"""What somebody may send to a training: a batch system whichever it is told to."""
WHILE_WAITING = {
    signal.SIGTTOU: signal.SIG_IGN,  # writing to the terminal from the background must not stop who waits
    signal.SIGCHLD: signal.SIG_DFL,  # where it is ignored, the kernel throws away how the command ended
}


def configure(parser: argparse.ArgumentParser) -> None:
    add_options(parser)
    parser.wrong = OWN_FAILURE  # type: ignore[attr-defined]
    parser.usage = "trainprobe run [-o REPORT.json] [--record REC.jsonl] [--config FILE] [--lang en|zh] [--] COMMAND …"
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="COMMAND", help="what to run, and its arguments")


def act(args: argparse.Namespace) -> int:
    command = args.command[1:] if args.command[:1] == ["--"] else args.command
    if not command:
        raise Refusal(OWN_FAILURE, word("run: no command"), "trainprobe run -- python train.py")
    try:
        refuse_early(command[0])
    except StartError as error:
        raise Refusal(error.code, error.as_saying) from None
    try:
        watching = WatchSetup.prepare(args)
    except Refusal as refusal:
        refusal.code = OWN_FAILURE
        raise
    with contextlib.suppress(OSError):
        Path("/proc/self/comm").write_text(PASSES_ON)  # by this name a signal that is passed on is known
    try:
        return _run(watching, command)
    except OSError as error:  # no room for a process or a descriptor; once the command runs, nothing raises it
        raise Refusal(OWN_FAILURE, outputs.reason(error)) from None


def _run(watching: WatchSetup, command: list[str]) -> int:
    signals = Signals(TAKEN)
    before = {number: signal.signal(number, ours) for number, ours in WHILE_WAITING.items()}

    def prepare() -> None:
        give_back(before)
        signal.pthread_sigmask(signal.SIG_SETMASK, signals.mask_before)

    return _observed(watching, command, prepare, signals)


def _observed(watching: WatchSetup, command: list[str], prepare: Callable[[], None], signals: Signals) -> int:
    child: Launched | None = None

    def pass_on(received: Received) -> None:
        if _means_the_command(received) and child is not None:
            try:
                os.kill(child.pid, received.number)
            except PermissionError as error:  # sudo's, and what runs as another user
                error.filename = f"kill -{received.number} {child.pid}"
                complain(outputs.reason(error))

    session = watching.begin(signals, command=command, on_signal=pass_on)
    try:
        if not session.load(patient=watching.patient):
            return _not_started(watching, session)
        child = Launched(command, prepare)
        if not session.start(child.pid):
            child.abandon()
            return _not_started(watching, session)
        child.release()
        watching.record.begin()
        session.watch(child.pidfd)
        watching.status.clear()
        code = child.wait()
        watching.conclude(session)
        return code
    except StartError as error:
        complain(error.as_saying)
        return error.code
    finally:
        watching.status.clear()
        session.close()
        watching.close()


def _means_the_command(received: Received) -> bool:
    """What was meant for us alone is meant for it. The terminal has told it already, but for a hang-up, of which the
    session's leader hears alone; so does the process that an alarm was set for."""
    if received.number == signal.SIGHUP and os.getsid(0) == os.getpid():
        return True
    return received.by_process or received.number == signal.SIGALRM


def _not_started(watching: WatchSetup, session: Session) -> int:
    if session.interrupted:
        return 128 + session.interrupted
    watching.tell_failure(session.failure)
    return OWN_FAILURE
