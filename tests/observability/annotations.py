"""Causes as Grafana draws them: from one query for each cause, by joining neighbouring points."""

from __future__ import annotations

from tests.observability.servers import Prometheus


def regions(
    server: Prometheus, run: str, cause: str, start: float, end: float, step: float
) -> list[tuple[float, float]]:
    """Regions of a cause between two times, of the run whose name matches ``run`` and has one rank.

    ``step`` is what Grafana calls $__interval: at least the scrape interval.
    """
    series = f'trainprobe_stall_seconds_total{{run=~"{run}",cause="{cause}"}}'
    found: list[tuple[float, float]] = []
    for at, _ in server.points(f"({series} - ({series} offset {step:g}s)) > 0", start, end, step):
        if found and at - found[-1][1] <= step:
            found[-1] = (found[-1][0], at)
        else:
            found.append((at, at))
    return found
