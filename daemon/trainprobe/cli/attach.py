"""Observes a training that already runs. Ctrl-C ends the watching and not the training.

examples:
  trainprobe attach 12345
  trainprobe attach 12345 -o report.json

A plain user is asked for the sudo password, for the half that loads eBPF programs and for nothing else.
Take the pid of the training itself or of what started it (torchrun): its children are watched too. What was
before the attaching cannot be known: the report begins there."""

from __future__ import annotations

import argparse
import os
import signal

from trainprobe.cli import FAILED, FORBIDDEN, OK, Refusal, outputs
from trainprobe.cli.watching import WatchSetup, add_options
from trainprobe.runtime.loop.signals import Received, Signals
from trainprobe.runtime.session.caller import Session
from trainprobe.text.saying import saying

TAKEN = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("pid", type=int, metavar="PID", help="the training's process")
    add_options(parser)


def act(args: argparse.Namespace) -> int:
    if not os.path.isdir(f"/proc/{args.pid}"):
        remedy = "pgrep -af 'python|torchrun'"
        raise Refusal(FAILED, saying("there is no process {pid}", pid=args.pid), remedy)
    watching = WatchSetup.prepare(args)
    try:
        return _watch(watching, args.pid)
    except OSError as error:  # no room for a process or a descriptor
        raise Refusal(FAILED, outputs.reason(error)) from None


def _watch(watching: WatchSetup, pid: int) -> int:
    signals = Signals(TAKEN)
    watched: list[Session] = []

    def detach(received: Received) -> None:
        del received
        watched[0].stop()

    session = watching.begin(signals, pid=pid, on_signal=detach)
    watched.append(session)
    try:
        if not (session.load(patient=watching.patient) and session.start()):
            watching.tell_failure(session.failure)
            if session.interrupted:
                return 128 + session.interrupted
            return FORBIDDEN if session.failure and session.failure.forbidden else FAILED
        watching.record.begin()
        session.watch()
        watching.status.clear()
        return OK if watching.conclude(session) else FAILED
    finally:
        watching.status.clear()
        session.close()
        watching.close()
