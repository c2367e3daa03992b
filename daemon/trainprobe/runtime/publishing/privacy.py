"""What the configuration says shall not be kept is taken out of a report before anybody gets it."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

from trainprobe.config.schema import Privacy
from trainprobe.model.report import Report, Run
from trainprobe.model.settled import whole
from trainprobe.wire import codec


def withheld(report: Report, privacy: Privacy) -> Report:
    """The same report without what is private: the report itself where nothing is."""
    if privacy.stacks and privacy.command_lines and privacy.paths:
        return report
    return dataclasses.replace(report, runs=[_run(run, privacy) for run in report.runs])


def _run(run: Run, privacy: Privacy) -> Run:
    run = whole(run)
    if not privacy.paths:
        run = _without_paths(run)
    command = run.command if privacy.command_lines else []
    ranks = run.ranks
    if not privacy.stacks:
        ranks = [
            dataclasses.replace(rank, stalls=[dataclasses.replace(stall, python_stack=None) for stall in rank.stalls])
            for rank in ranks
        ]
    return dataclasses.replace(run, command=command, ranks=ranks)


def _without_paths(run: Run) -> Run:
    """Every path that the report names shortened to its last part, in sentences too."""
    paths = sorted(_paths(run), key=len, reverse=True)
    if not paths:
        return run
    pattern = re.compile("|".join(re.escape(path) for path in paths))
    shortened: Run = codec.with_texts(
        run, lambda text: pattern.sub(lambda path: path[0].rstrip("/").rpartition("/")[2], text)
    )
    return shortened


def _paths(value: Any) -> set[str]:
    found: set[str] = set()
    if isinstance(value, (list, tuple)):
        for item in value:
            found |= _paths(item)
    else:
        of_class = codec.names(value.__class__) if dataclasses.is_dataclass(value) else ()
        named = value.items() if isinstance(value, Mapping) else ((name, getattr(value, name)) for name in of_class)
        for name, item in named:
            if name in ("path", "cwd") and isinstance(item, str) and "/" in item[1:]:
                found.add(item)
            else:
                found |= _paths(item)
    return found
