"""The half of `run` and `attach` that needs rights; they start it, and speak with it in JSON lines. Not for people."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
import signal
import sys
from datetime import timedelta, timezone
from functools import partial
from typing import Any, NoReturn

from trainprobe.bpf.errors import ProbesUnavailable
from trainprobe.cli import FAILED, FORBIDDEN, OK, compose, compose_core
from trainprobe.cli.style import Style
from trainprobe.cli.terminal import Terminal
from trainprobe.cli.text import live_line, text_of
from trainprobe.collect.procfs import Proc
from trainprobe.config.parse import ConfigError, parse
from trainprobe.config.schema import DaemonConfig
from trainprobe.model.dataclass import dataclass
from trainprobe.model.report import Report
from trainprobe.runtime import garbage_collection
from trainprobe.runtime.discovery.targets import NoSuchTraining
from trainprobe.runtime.discovery.watch_locks import WatchLock, WatchLocks, parents
from trainprobe.runtime.loop import clock
from trainprobe.runtime.loop.event_loop import Loop
from trainprobe.runtime.loop.guard import described
from trainprobe.runtime.observer import Observer, Outlets
from trainprobe.runtime.publishing import rundir
from trainprobe.runtime.publishing.privacy import withheld
from trainprobe.runtime.publishing.recorder import Recorder
from trainprobe.runtime.session import line_protocol, privileges, probe_protocol
from trainprobe.text.catalogue import LANGUAGES
from trainprobe.text.render import Speaker
from trainprobe.text.saying import Text, saying, word
from trainprobe.wire import codec, report_file
from trainprobe.wire import report as wire
from trainprobe.wire.codec import WireError

IN, OUT = 0, 1
# Our end is the end of our input: the terminal's signals mean the command, or the caller's half.
DEAF_TO = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGPIPE)


def configure(parser: argparse.ArgumentParser) -> None:
    del parser


def act(args: argparse.Namespace) -> NoReturn:
    """Ends the process: to take everything down that ends with it anyway takes a fortieth of a second."""
    del args
    code = _carry_out()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _carry_out() -> int:
    for number in DEAF_TO:
        signal.signal(number, signal.SIG_IGN)
    speaker = Speaker()
    try:
        wanted = probe_protocol.decode(_first_line())
        speaker = Speaker(_known(wanted.language))
        config = parse(DaemonConfig, wanted.config)
    except (WireError, ConfigError) as error:
        return _fail(str(error), code=FAILED)
    if missing := privileges.missing():
        reason = speaker.say("missing: {names}", names=", ".join(missing))
        return _fail(reason, speaker.say("run it as root"), code=FORBIDDEN)
    try:
        return _observe(wanted, config, speaker)
    except BrokenPipeError:  # the caller's half is gone, and with it everybody who would read a report
        return FAILED
    except NoSuchTraining as error:
        return _fail(speaker.text(error.as_saying), "pgrep -af 'python|torchrun'", code=FAILED)
    except ProbesUnavailable as error:
        return _fail(speaker.text(error.reason), speaker.text(error.remedy), code=FAILED)
    except Exception as error:
        return _fail(getattr(error, "reason", "") or described(error), getattr(error, "remedy", ""), code=FAILED)


def _observe(wanted: probe_protocol.Order, config: DaemonConfig, speaker: Speaker) -> int:
    if not wanted.command and (watched := _watched_already(wanted.pid)):
        return _fail(*map(speaker.text, watched), code=FAILED)
    with contextlib.ExitStack() as undo:
        pid = wanted.pid
        if not wanted.command:
            undo.callback(WatchLock(pid).release)
        recorder = Recorder(_send_frame, compose_core.header(config)) if wanted.record else None
        style = Style(speaker=speaker)
        outlets = Outlets(recorder, partial(_send_live, style) if wanted.live else None, lambda: wanted.live)
        made = compose.assemble(config, outlets, auto=False)
        undo.callback(made.observer.close)
        if wanted.command:  # on a busy host the compiler may take longer than the command to its first steps
            with contextlib.suppress(ProbesUnavailable):  # who wants a mark is told why there is none
                made.probes.await_marks()
        _send(probe_protocol.LOADED, True)
        if wanted.command:
            pid = probe_protocol.child_of(_first_line())
            undo.callback(WatchLock(pid).release)
        _report_on(pid, wanted, made, config)
    return OK


def _report_on(pid: int, wanted: probe_protocol.Order, made: compose.Assembled, config: DaemonConfig) -> None:
    if wanted.command:
        made.targets.launched(pid, wanted.command)
    else:
        made.targets.attach(pid)
    made.observer.turn(woken=False)
    _send(probe_protocol.READY, True)
    garbage_collection.make_rare()
    terminal, file = probe_protocol.end_of(_watch(made, line_protocol.LineReader(IN), attached=not wanted.command))
    # First the report, then the kernel: taking some seventy tracepoints out waits for as many grace periods.
    report = withheld(made.observer.finish(), config.privacy)
    _send(probe_protocol.TEXT, _text(report, terminal))
    if file:
        steps = made.core.take_steps(clock.now())
        for message in probe_protocol.file_messages(report_file.pieces(report, steps)):
            line_protocol.write(OUT, message)


def _text(report: Report, wanted: dict[str, Any]) -> str:
    """For the caller's terminal: all that is needed to make it is here already."""
    try:
        terminal: Terminal = codec.decode(Terminal, wanted)
        zone = timezone(timedelta(seconds=terminal.utc_offset))
    except (WireError, ValueError):
        terminal, zone = Terminal(), timezone.utc
    return text_of(report, Style.on(dataclasses.replace(terminal, language=_known(terminal.language)), zone))


def _known(language: str) -> str:
    """A caller's language; English for what is none, because a catalogue is a file that is read as root."""
    return language if language in LANGUAGES else "en"


def _watch(made: compose.Assembled, reader: line_protocol.LineReader, *, attached: bool) -> list[bytes]:
    """Until our input ends or tells us to; what it says."""
    loop = Loop()
    task = _Attached(made.observer, made) if attached else made.observer
    loop.on_wake(made.probes.fileno())

    heard: list[bytes] = []

    def hear() -> None:
        heard.extend(reader.read())
        if heard or reader.ended:
            loop.stop()

    loop.on_readable(IN, hear)
    loop.run(task)
    loop.close()
    return heard


@dataclass(slots=True)
class _Attached:
    """The observer's turns, and word when nothing is left to be watched."""

    observer: Observer
    made: compose.Assembled
    told: bool = False

    def due_ns(self) -> int:
        return self.observer.due_ns()

    def turn(self, *, woken: bool) -> None:
        self.observer.turn(woken=woken)
        if not self.told and not self.made.targets.processes():
            self.told = True
            _send(probe_protocol.ENDED, True)


def _watched_already(pid: int) -> tuple[Text, Text] | None:
    """Who watches the process already, and where to look: nothing is attached twice."""
    if WatchLocks(parents(Proc())).covers(pid):
        return saying("another trainprobe watches process {pid} already", pid=pid), word("wait for its report")
    try:
        report = wire.decode((rundir.DIRECTORY / "report.json").read_bytes())
    except (OSError, WireError):
        return None
    for run in report.runs:
        if run.ended is None and any(rank.pid == pid for rank in run.ranks):
            return saying("the daemon watches process {pid} already", pid=pid), f"trainprobe report --run {run.key}"
    return None


def _first_line() -> bytes:
    """The order, or the child's pid: all that we read before our input may stay silent for hours."""
    line = bytearray()
    while not line.endswith(b"\n") and len(line) < line_protocol.LIMIT:
        byte = os.read(IN, 1)
        if not byte:
            break
        line += byte
    return bytes(line)


def _send(kind: str, value: Any) -> None:
    line_protocol.write(OUT, probe_protocol.message(kind, value))


def _send_frame(line: str) -> None:
    line_protocol.write(OUT, probe_protocol.frame_message(line))


def _send_live(style: Style, report: Report) -> None:
    _send(probe_protocol.LIVE, live_line(report, style))


def _fail(reason: str, remedy: str = "", *, code: int) -> int:
    try:
        _send(probe_protocol.FAILED, {"reason": reason, "remedy": remedy, "forbidden": code == FORBIDDEN})
    except OSError:
        print(f"trainprobe: {reason}", file=sys.stderr)
    return code
