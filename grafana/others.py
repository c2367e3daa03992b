"""Metrics that no panel draws by hand: each gets a panel, made of its line in the catalogue."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from grafana.layout import Line, rows
from grafana.lines import NO_GPU
from grafana.panels import Q, time_series
from grafana.queries import Queries
from trainprobe_exporters.catalogue import METRICS, PREFIX, Metric


def undrawn(dashboards: Iterable[str]) -> list[Metric]:
    """The metrics that are in none of the dashboards' texts."""
    drawn = set(re.findall(rf"\b{PREFIX}\w+", " ".join(dashboards)))
    return [metric for metric in METRICS if not {metric.name, f"{metric.name}_bucket"} & drawn]


def lines_of(q: Queries, metrics: Sequence[Metric]) -> list[Line]:
    return rows(*_panels(q, metrics))


def _panels(q: Queries, metrics: Sequence[Metric]) -> Iterator[Any]:
    for metric in metrics:
        words = metric.name.removeprefix(PREFIX).removesuffix("_total").replace("_", " ")
        none = {"none": NO_GPU} if "gpu" in metric.labels else {}
        yield time_series(words.capitalize(), metric.help, _line(q, metric), **none)


def _line(q: Queries, metric: Metric) -> Q:
    own = metric.own_labels
    if metric.buckets:
        raise ValueError(f"{metric.name}: a histogram wants a panel by hand")
    if metric.of_rank and metric.type == "counter":
        return q.rate(", ".join(own), metric.name) if own else q.rank_rate(metric.name)
    if metric.of_rank:
        return q.rank(metric.name)
    return q.host(metric.name, *own) if metric.type == "gauge" else q.host_rate(metric.name, *own)
