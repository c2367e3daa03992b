"""The answer to /api/v1/stalls: the stalls of a report since a time, of all its runs and ranks or of one."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from trainprobe.model.report import Report
from trainprobe.wire.codec import dumps


class QueryError(ValueError):
    """A query field that cannot be; the message says which and why."""


def stall_list(report: Report, query: Mapping[str, str]) -> bytes:
    """JSON: ``generated`` and ``stalls``, each as in the report with its run and rank, in the order of their starts.

    ``since`` (UNIX seconds): those that went on then or began later; ``run``, ``rank``: theirs only. An open stall
    has no end and is always among them. Raises QueryError.
    """
    since = _since(query.get("since", ""))
    rows: list[dict[str, Any]] = []
    for run in report.runs:
        for rank in run.ranks:
            if query.get("run", run.run) == run.run and query.get("rank", rank.name) == rank.name:
                stalls = (stall for stall in rank.stalls if stall.end is None or stall.end >= since)
                rows.extend({"run": run.run, "rank": rank.name, **dataclasses.asdict(stall)} for stall in stalls)
    rows.sort(key=lambda row: (row["start"], row["run"], row["rank"]))
    return dumps({"generated": report.generated, "stalls": rows}).encode()


def _since(text: str) -> float:
    if not text:
        return -math.inf
    try:
        since = float(text)
    except ValueError:
        since = math.nan
    if math.isnan(since):
        raise QueryError("since must be UNIX seconds")
    return since
