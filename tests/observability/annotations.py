"""Causes as Grafana draws them, by the committed dashboards' own annotation queries."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from tests.observability.dashboards import dashboards, with_values
from tests.observability.servers import Prometheus

Region = tuple[float, float]
OF_ANY_RUN = "trainprobe-memory"  # its toggles take a regular expression for the run


def toggle_of(cause: str) -> dict[str, Any]:
    """The one toggle that draws this cause."""
    found = [
        annotation
        for annotation in dashboards()[OF_ANY_RUN]["annotations"]["list"]
        if (causes := re.search(r'cause=~"([^"]+)"', annotation.get("expr", ""))) and cause in causes[1].split("|")
    ]
    assert len(found) == 1, (cause, [annotation["name"] for annotation in found])
    return found[0]


def regions(server: Prometheus, run: str, cause: str, start: float, end: float, step: float) -> list[Region]:
    """Regions of a cause between two times, of the run whose name matches ``run``.

    ``step`` is what Grafana calls $__interval: at least the scrape interval.
    """
    values = {"job": ".+", "host": ".+", "run": run, "rank": ".+", "__interval": f"{step:g}s"}
    window = {"start": str(start), "end": str(end), "step": str(step)}
    query = with_values(toggle_of(cause)["expr"], values)
    series = [s for s in server.ask("/api/v1/query_range", query=query, **window)["result"] if _is(s, cause)]
    assert len(series) <= 1, series
    return joined((float(at) for at, value in series[0]["values"] if float(value) > 0), step) if series else []


def joined(times: Iterable[float], step: float) -> list[Region]:
    """Points at most one step apart are one region: Grafana's rule."""
    found: list[Region] = []
    for at in times:
        if found and at - found[-1][1] <= step:
            found[-1] = (found[-1][0], at)
        else:
            found.append((at, at))
    return found


def _is(series: dict[str, Any], cause: str) -> bool:
    return bool(series["metric"]["cause"] == cause)
