"""What `run` and `attach` have in common: options, the half that needs rights, and the report at the end."""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from trainprobe.cli import FAILED, FORBIDDEN, WRONG, Refusal, complain, on_stderr, outputs
from trainprobe.cli.live import StatusLine
from trainprobe.cli.terminal import Terminal
from trainprobe.model.dataclass import dataclass
from trainprobe.runtime.loop.signals import Received, Signals
from trainprobe.runtime.session import privileges, probe_protocol
from trainprobe.runtime.session.caller import CutError, Failure, Session
from trainprobe.runtime.session.probe_part import ProbePart
from trainprobe.runtime.session.probe_protocol import Order
from trainprobe.text.saying import saying, word

STDERR = 2


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-o", dest="output", type=Path, metavar="REPORT.json", help="write the report there, as JSON")
    parser.add_argument(
        "--record", type=Path, metavar="REC.jsonl", help="record everything for `trainprobe replay` (.gz: compressed)"
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help="thresholds and patterns (trainprobe.yaml)")


def _settings(path: Path | None) -> dict[str, Any]:
    """What a configuration file says. Raises Refusal."""
    if path is None:
        return {}
    from trainprobe.cli.configuration import config_of
    from trainprobe.config.parse import ConfigError

    try:
        return dataclasses.asdict(config_of(path))
    except ConfigError as error:
        raise Refusal(WRONG, word("the configuration has errors:"), details=error.as_sayings) from None


@dataclass(slots=True)
class WatchSetup:
    """All that is settled before anything starts."""

    output: Path | None
    record: outputs.RecordFile
    recording: bool
    settings: dict[str, Any]  # of the configuration; empty: all is as by default
    command: list[str]  # how the other half is started
    patient: bool  # it may be asking for a password
    status: StatusLine
    language: str | None  # that was asked for

    @classmethod
    def prepare(cls, args: argparse.Namespace) -> WatchSetup:
        """Raises Refusal."""
        settings = _settings(args.config)
        try:
            output, recording = (outputs.checked(path) if path else None for path in (args.output, args.record))
        except OSError as error:
            raise Refusal(FAILED, outputs.reason(error)) from None
        if outputs.are_one(output, recording):
            raise Refusal(WRONG, word("-o and --record name the same file"))
        command: Sequence[str] | None = [*privileges.program(), "observe"]
        if missing := privileges.missing():
            language = Terminal.of(sys.stderr, os.environ, args.lang).language
            command = privileges.with_sudo([*privileges.program(), "observe"], language)
            if command is None:
                names = ", ".join(missing)
                reason = saying(
                    "loading eBPF programs needs {names}, and there is no sudo to get them with", names=names
                )
                remedy = word("install sudo and allow this user to run trainprobe with it, or run as root")
                raise Refusal(FORBIDDEN, reason, remedy)
        try:
            record = outputs.RecordFile(recording)
        except OSError as error:
            raise Refusal(FAILED, outputs.reason(error)) from None
        return cls(
            output=output,
            record=record,
            recording=recording is not None,
            settings=settings,
            command=list(command or ()),
            patient=bool(missing),
            status=StatusLine(STDERR),
            language=args.lang,
        )

    def begin(
        self, signals: Signals, *, pid: int = 0, command: Sequence[str] = (), on_signal: Callable[[Received], None]
    ) -> Session:
        """Start the other half, for a process that runs or for a command that will be started; it is watching when
        ``Session.start`` says so."""
        language = Terminal.of(sys.stderr, os.environ, self.language).language
        wanted = Order(pid, list(command), self.recording, self.status.possible, self.settings, language)
        part = ProbePart(self.command, wanted, own_session=not self.patient)
        return Session(part, signals, on_frame=self.record.line, on_live=self.status.show, on_signal=on_signal)

    def conclude(self, session: Session) -> bool:
        """Fetch the report, print it and write it; False: there is none, or it could not be written."""
        terminal = dataclasses.asdict(Terminal.of(sys.stderr, os.environ, self.language))
        text = session.finish(probe_protocol.end(terminal, file=self.output is not None))
        if text is None:
            self.tell_failure(session.failure)
            return False
        on_stderr(f"\n{text}")  # apart from what the training printed
        if self.output is not None:
            remedy = word("what was found is above; name a place with room that you may write to")
            try:
                outputs.write(self.output, session.file())
            except OSError as error:
                complain(saying("the report could not be written: {error}", error=outputs.reason(error)), remedy)
                return False
            except CutError as error:
                complain(saying("the report could not be written: {error}", error=error.reason))
                return False
        return True

    def tell_failure(self, failure: Failure | None) -> None:
        if failure is not None:
            complain(failure.reason, failure.remedy)

    def close(self) -> None:
        self.record.close()
