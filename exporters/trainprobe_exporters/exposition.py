"""Metric families -> the text that Prometheus reads, by prometheus_client."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from itertools import accumulate

from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.utils import floatToGoString

from trainprobe_exporters.families import Family
from trainprobe_exporters.readings import Histogram


class Format(Enum):
    """The two text formats; the value is the content type."""

    TEXT = "text/plain; version=0.0.4; charset=utf-8"
    OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"


_GENERATE: dict[Format, Callable[..., bytes]] = {
    Format.TEXT: generate_latest,
    Format.OPENMETRICS: generate_openmetrics,
}


class _Collected:
    """What prometheus_client takes for a registry; one metric at a time, which keeps the memory small."""

    def __init__(self, families: Iterable[Family]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        yield from map(_metric, self._families)
        yield from _process.collect()


_process = ProcessCollector(registry=None)


def exposition(families: Iterable[Family], form: Format) -> bytes:
    """The families as text, followed by this process's own figures (``process_*``)."""
    return _GENERATE[form](_Collected(families))


def _metric(family: Family) -> Metric:
    told = family.metric
    if told.type == "histogram":
        return _histogram(family)
    name = told.name.removesuffix("_total")
    kind = CounterMetricFamily if told.type == "counter" else GaugeMetricFamily
    metric = kind(name, told.help, labels=told.labels + told.optional_labels, unit=told.unit)
    for labels, value in family.samples:
        if not isinstance(value, Histogram):
            metric.add_metric(labels, value)
    return metric


def _histogram(family: Family) -> Metric:
    told = family.metric
    bounds = [*map(floatToGoString, told.buckets), "+Inf"]
    metric = HistogramMetricFamily(told.name, told.help, labels=told.labels, unit=told.unit)
    for labels, value in family.samples:
        if isinstance(value, Histogram):
            metric.add_metric(labels, list(zip(bounds, accumulate(value.counts), strict=True)), value.sum)
    return metric
