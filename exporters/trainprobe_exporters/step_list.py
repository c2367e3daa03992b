"""The answer to /api/v1/steps: what the steps of one rank took since a time."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from trainprobe.wire.codec import dumps
from trainprobe_exporters.history import MAX_POINTS, History
from trainprobe_exporters.stall_list import QueryError, since_of


def step_list(history: History, query: Mapping[str, str]) -> bytes:
    """JSON: ``run``, ``rank``, and ``rows`` {start, seconds, count, min, max, states} in the order of time.

    ``run`` and ``rank`` (without it: 0) say whose; ``since`` (UNIX seconds): rows that end then or later; ``points``:
    at most so many, neighbours joined. Raises QueryError.
    """
    run, rank = query.get("run", ""), query.get("rank", "0")
    if not run:
        raise QueryError("run is missing")
    rows = history.steps(run, rank, since=since_of(query), points=_points(query))
    return dumps({"run": run, "rank": rank, "rows": [dataclasses.asdict(row) for row in rows]}).encode()


def _points(query: Mapping[str, str]) -> int:
    text = query.get("points", str(MAX_POINTS))
    if not (text.isascii() and text.isdigit() and int(text[:9]) > 0):
        raise QueryError("points must be a whole number above 0")
    return min(int(text[:9]), MAX_POINTS)
