"""What the daemon publishes: the report of all runs for root and the group, of his own runs for a user."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from trainprobe.cli import FAILED, FORBIDDEN, Refusal, outputs
from trainprobe.model.report import Report, Run
from trainprobe.model.vocabulary import REPORT_STALE_SECONDS
from trainprobe.runtime.history.files import PUBLISHED
from trainprobe.runtime.loop import clock
from trainprobe.runtime.publishing import rundir
from trainprobe.runtime.publishing.owner_reports import REMEDY, USERS, without_acls
from trainprobe.text.saying import saying, word
from trainprobe.wire import history as wire_history
from trainprobe.wire import report as wire
from trainprobe.wire.codec import WireError

SIZE_LIMIT = 16 << 20  # bytes of what a daemon published
FILE_LIMIT = 256 << 20  # of a report file: a megabyte for each of the 256 ranks that are watched at once
OLD_SECONDS, ANEW_SECONDS, AGAIN_SECONDS = 3.0, 0.6, 0.1
BEGINNING = 200  # bytes that tell what else a file is
GZIP = b"\x1f\x8b"
WRITES_ONE = word("trainprobe run -o REPORT.json -- COMMAND writes one")


def read(directory: Path) -> Report:
    """The report that this user may see. Raises Refusal."""
    try:
        try:
            return decoded(directory / "report.json")
        except PermissionError:
            return _own(directory)
    except FileNotFoundError:
        remedy = word("systemctl start trainprobe, or: trainprobe run -- COMMAND")
        raise Refusal(FAILED, word("no daemon publishes here"), remedy) from None
    except (OSError, WireError) as error:
        reason = saying("what the daemon published cannot be read: {error}", error=error)
        raise Refusal(FAILED, reason, word("systemctl restart trainprobe")) from None


def fresh(directory: Path) -> Report:
    """The same, once more where it is old: to open a report of runs makes the daemon look and tell anew, which takes it
    a moment. Raises Refusal."""
    report = read(directory)
    until = time.monotonic() + ANEW_SECONDS
    while report.runs and OLD_SECONDS < report.age(clock.now()) <= REPORT_STALE_SECONDS and time.monotonic() < until:
        time.sleep(AGAIN_SECONDS)
        report = read(directory)
    return report


def has_ended(directory: Path) -> bool:
    """Whether the daemon that published there was killed: its lock names a process that is no more. Who may not read
    the lock does not know."""
    try:
        pid = (directory / "lock").read_text().strip()
    except (OSError, ValueError):
        return False
    return pid.isdigit() and not Path("/proc", pid).exists()


def _own(directory: Path) -> Report:
    users = directory / USERS
    try:
        return decoded(users / f"{os.getuid()}.json")
    except (FileNotFoundError, PermissionError):
        if users.is_dir() and not rundir.has_acls(users):
            raise Refusal(FORBIDDEN, without_acls(users), REMEDY) from None
        reason = word("no runs of yours are known, and those of others are for root and the group trainprobe")
        raise Refusal(FORBIDDEN, reason, word("sudo trainprobe report, or: adduser NAME trainprobe")) from None


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
    for path in folder.glob("*.json") if os.access(folder, os.R_OK | os.X_OK) else [own]:
        try:
            if path is own or path.stat().st_mtime >= since:
                yield decoded(path)
        except (OSError, WireError):  # the daemon may have removed it
            continue


def together(live: Report | None, history: Report | None) -> Report | None:
    """Both as one; a run that is in both is taken from the one that was told later."""
    if live is None or history is None:
        return live or history
    older, newer = sorted((live, history), key=lambda report: report.generated)
    names = {run.key for run in newer.runs}
    runs = [run for run in older.runs if run.key not in names] + newer.runs
    return replace(newer, runs=sorted(runs, key=lambda run: run.started))


def decoded(path: Path, limit: int = SIZE_LIMIT) -> Report:
    """A report file. Raises OSError and WireError."""
    with path.open("rb") as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise WireError(saying("larger than {bytes} bytes", bytes=limit))
    return wire.decode(data)


def of_file(path: Path) -> Report:
    """A report that `-o` wrote. Raises Refusal, which says what else it is where it is none."""
    try:
        return decoded(path, FILE_LIMIT)
    except OSError as error:
        raise Refusal(FAILED, outputs.reason(error), WRITES_ONE) from None
    except WireError as error:
        with path.open("rb") as file:
            begin = file.read(BEGINNING)
        reason, remedy = saying("{path} is no report: {error}", path=path, error=error), WRITES_ONE
        if not begin.strip():
            reason = saying("{path} is empty", path=path)
        elif b'"trainprobe_recording"' in begin:
            reason = saying("{path} is a recording, no report", path=path)
            remedy = f"trainprobe replay {path} -o REPORT.json"
        elif begin.startswith(GZIP):
            reason, remedy = saying("{path} is compressed", path=path), f"gunzip -k {path}"
        raise Refusal(FAILED, reason, remedy) from None


def unknown(run: str, report: Report) -> Refusal:
    """There is no such run in the report."""
    known = ", ".join(run.key for run in report.runs) or saying("none")
    return Refusal(FAILED, saying("no run {run}; known here: {known}", run=repr(run), known=known))
