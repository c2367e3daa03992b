"""What the daemon publishes: the report of all runs for root and the group, of his own runs for a user."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from trainprobe.cli import FAILED, FORBIDDEN, outputs
from trainprobe.model.report import Report, Run
from trainprobe.runtime.history.files import PUBLISHED
from trainprobe.runtime.publishing import rundir
from trainprobe.runtime.publishing.owner_reports import REMEDY, USERS, without_acls
from trainprobe.text.saying import Text, saying, word
from trainprobe.wire import history as wire_history
from trainprobe.wire import report as wire
from trainprobe.wire.codec import WireError

SIZE_LIMIT = 16 << 20
BEGINNING = 200  # bytes that tell what else a file is
GZIP = b"\x1f\x8b"
WRITES_ONE = word("trainprobe run -o REPORT.json -- COMMAND writes one")


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why there is no report: an exit code, the reason, and what mends it."""

    code: int
    reason: Text
    remedy: Text = ""


def read(directory: Path) -> Report | Refusal:
    """The report that this user may see."""
    try:
        return decoded(directory / "report.json")
    except PermissionError:
        return _own(directory)
    except FileNotFoundError:
        return Refusal(
            FAILED, word("no daemon publishes here"), word("systemctl start trainprobe, or: trainprobe run -- COMMAND")
        )
    except (OSError, WireError) as error:
        return Refusal(FAILED, saying("what the daemon published cannot be read: {error}", error=error))


def _own(directory: Path) -> Report | Refusal:
    users = directory / USERS
    try:
        return decoded(users / f"{os.getuid()}.json")
    except (FileNotFoundError, PermissionError):
        if users.is_dir() and not rundir.has_acls(users):
            return Refusal(FORBIDDEN, without_acls(users), REMEDY)
        return Refusal(
            FORBIDDEN,
            word("no runs of yours are known, and those of others are for root and the group trainprobe"),
            word("sudo trainprobe report, or: adduser NAME trainprobe"),
        )
    except (OSError, WireError) as error:
        return Refusal(FAILED, saying("what the daemon published cannot be read: {error}", error=error))


def kept(state: Path, since: float = 0.0) -> Report | None:
    """All runs of the history that this user may see and that were told of after ``since`` (UNIX seconds).

    None: there is no history, or nothing of it is for this user.
    """
    runs: dict[str, tuple[float, Run]] = {}
    latest: Report | None = None
    for report in _history(state, since):
        for run in report.runs:
            if run.key not in runs or runs[run.key][0] < report.generated:
                runs[run.key] = (report.generated, run)
        if latest is None or report.generated > latest.generated:
            latest = report
    if latest is None:
        return None
    return replace(latest, runs=sorted((run for _, run in runs.values()), key=lambda run: run.started))


def _history(state: Path, since: float) -> Iterator[Report]:
    own = state / USERS / f"{os.getuid()}.json"
    folder = state / PUBLISHED / wire_history.RUNS
    try:
        paths = [path for path in folder.glob("*.json") if path.stat().st_mtime >= since]
        if not os.access(folder, os.R_OK):
            paths = [own]
    except PermissionError:
        paths = [own]
    for path in paths:
        try:
            yield decoded(path)
        except (OSError, WireError):
            continue


def together(live: Report | None, history: Report | None) -> Report | None:
    """Both as one; a run that is in both is taken from the one that was told later."""
    if live is None or history is None:
        return live or history
    older, newer = sorted((live, history), key=lambda report: report.generated)
    names = {run.key for run in newer.runs}
    runs = [run for run in older.runs if run.key not in names] + newer.runs
    return replace(newer, runs=sorted(runs, key=lambda run: run.started))


def decoded(path: Path) -> Report:
    """A report file. Raises OSError and WireError."""
    with path.open("rb") as file:
        return wire.decode(file.read(SIZE_LIMIT))


def of_file(path: Path) -> Report | Refusal:
    """A report that `-o` wrote; what else it is where it is none."""
    try:
        return decoded(path)
    except OSError as error:
        return Refusal(FAILED, outputs.reason(error), WRITES_ONE)
    except WireError as error:
        with path.open("rb") as file:
            begin = file.read(BEGINNING)
        if not begin.strip():
            return Refusal(FAILED, saying("{path} is empty", path=path), WRITES_ONE)
        if b'"trainprobe_recording"' in begin:
            return Refusal(
                FAILED,
                saying("{path} is a recording, no report", path=path),
                f"trainprobe replay {path} -o REPORT.json",
            )
        if begin.startswith(GZIP):
            return Refusal(FAILED, saying("{path} is compressed", path=path), f"gunzip -k {path}")
        return Refusal(FAILED, saying("{path} is no report: {error}", path=path, error=error), WRITES_ONE)


def matching(report: Report, name: str) -> list[str]:
    """Names of the runs that begin with ``name``."""
    return [run.key for run in report.runs if run.key.startswith(name)]
