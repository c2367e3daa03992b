"""The answer to /api/v1/stalls: stalls since a time, of all runs and ranks or of one."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

from trainprobe.model.report import Report
from trainprobe.text.render import Speaker
from trainprobe.wire.codec import dumps
from trainprobe_exporters.history import History


class QueryError(ValueError):
    """A query field that cannot be; the message says which and why."""


def stall_list(report: Report, history: History, query: Mapping[str, str], speaker: Speaker) -> bytes:
    """JSON: ``generated`` and ``stalls``, each as in the report with its run and rank, in the order of their starts;
    those of ``report`` and those that are kept.

    ``since`` (UNIX seconds): those that went on then or began later; ``run``, ``rank``: theirs only. An open stall
    has no end and is always among them. Raises QueryError.
    """
    rows = [
        {"run": told.run, "rank": told.rank, **dataclasses.asdict(speaker.report(told.stall))}
        for told in history.stalls(report, since=since_of(query))
        if query.get("run", told.run) == told.run and query.get("rank", told.rank) == told.rank
    ]
    rows.sort(key=lambda row: (row["start"], row["run"], row["rank"]))
    return dumps({"generated": report.generated, "stalls": rows}).encode()


def since_of(query: Mapping[str, str]) -> float:
    """The field ``since``, UNIX seconds; without it: from the beginning. Raises QueryError."""
    text = query.get("since", "")
    if not text:
        return -math.inf
    try:
        since = float(text)
    except ValueError:
        since = math.nan
    if math.isnan(since):
        raise QueryError("since must be UNIX seconds")
    return since
