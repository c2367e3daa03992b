"""What the daemon publishes: the report of all runs for root and the group, of his own runs for a user."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from trainprobe.cli import FAILED, FORBIDDEN
from trainprobe.model.report import Report
from trainprobe.wire import report as wire
from trainprobe.wire.codec import WireError

SIZE_LIMIT = 16 << 20


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why there is no report: an exit code, the reason, and what mends it."""

    code: int
    reason: str
    remedy: str = ""


def read(directory: Path) -> Report | Refusal:
    """The report that this user may see."""
    try:
        return decoded(directory / "report.json")
    except PermissionError:
        return _own(directory)
    except FileNotFoundError:
        return Refusal(FAILED, "no daemon publishes here", "systemctl start trainprobe, or: trainprobe run -- COMMAND")
    except (OSError, WireError) as error:
        return Refusal(FAILED, f"what the daemon published cannot be read: {error}")


def _own(directory: Path) -> Report | Refusal:
    try:
        return decoded(directory / "users" / f"{os.getuid()}.json")
    except (FileNotFoundError, PermissionError):
        return Refusal(
            FORBIDDEN,
            "no runs of yours are known, and those of others are for root and the group trainprobe",
            "sudo trainprobe report, or: adduser NAME trainprobe",
        )
    except (OSError, WireError) as error:
        return Refusal(FAILED, f"what the daemon published cannot be read: {error}")


def decoded(path: Path) -> Report:
    """A report file. Raises OSError and WireError."""
    with path.open("rb") as file:
        return wire.decode(file.read(SIZE_LIMIT))


def matching(report: Report, name: str) -> list[str]:
    """Names of the runs that begin with ``name``."""
    return [run.run for run in report.runs if run.run.startswith(name)]
