"""Metric families -> the text that Prometheus reads.

Samples are written here: 64 ranks make 10 000 of them for each report, and prometheus_client, which is made for a few
hundred, takes five times as long. What comes before them (HELP, TYPE, UNIT) and this process's own figures are its.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from functools import cache
from itertools import accumulate

from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric as ClientMetric
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.utils import floatToGoString

from trainprobe_exporters.catalogue import BY_NAME, Metric
from trainprobe_exporters.families import Family
from trainprobe_exporters.readings import Histogram


class Format(Enum):
    """The two text formats; the value is the content type."""

    TEXT = "text/plain; version=0.0.4; charset=utf-8"
    OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"


_GENERATE: dict[Format, Callable[..., bytes]] = {Format.TEXT: generate_latest, Format.OPENMETRICS: generate_openmetrics}
_KINDS = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily, "histogram": HistogramMetricFamily}
_END = b"# EOF\n"


class _Collected:
    """What prometheus_client takes for a registry."""

    def __init__(self, metrics: Iterable[ClientMetric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[ClientMetric]:
        return self._metrics


_process = ProcessCollector(registry=None)


def exposition(families: Iterable[Family], form: Format) -> bytes:
    """The families as text, followed by this process's own figures (``process_*``)."""
    label = cache(_label)  # for this text only: runs and ranks come and go
    parts = [
        part
        for family in families
        for part in (_head(family.metric.name, form), "".join(_samples(family, label)).encode())
    ]
    return b"".join([*parts, _GENERATE[form](_Collected(_process.collect()))])  # the end mark of OpenMetrics included


@cache  # of the catalogue: there are no more of them
def _head(full_name: str, form: Format) -> bytes:
    metric = BY_NAME[full_name]
    name = metric.name.removesuffix("_total") if metric.type == "counter" else metric.name
    empty = _KINDS[metric.type](name, metric.help, labels=metric.labels, unit=metric.unit)
    return _GENERATE[form](_Collected([empty])).removesuffix(_END)


def _samples(family: Family, label: Callable[[str, str], str]) -> Iterator[str]:
    """Lines; they are the same in both formats."""
    metric = family.metric
    names = metric.labels + metric.optional_labels
    for values, value in family.samples:
        labels = ",".join(map(label, names, values))
        if isinstance(value, Histogram):
            yield from _buckets(metric, labels, value)
        elif labels:
            yield f"{metric.name}{{{labels}}} {float(value)!r}\n"
        else:
            yield f"{metric.name} {float(value)!r}\n"


def _buckets(metric: Metric, labels: str, value: Histogram) -> Iterator[str]:
    name, inner = metric.name, f"{labels}," if labels else ""
    total = 0.0
    for bound, total in zip(_bounds(metric.buckets), accumulate(value.counts), strict=True):
        yield f'{name}_bucket{{{inner}le="{bound}"}} {float(total)!r}\n'
    outer = f"{{{labels}}}" if labels else ""
    yield f"{name}_count{outer} {float(total)!r}\n"
    yield f"{name}_sum{outer} {float(value.sum)!r}\n"


@cache
def _bounds(buckets: tuple[float, ...]) -> tuple[str, ...]:
    return (*map(floatToGoString, buckets), "+Inf")


def _label(name: str, value: str) -> str:
    escaped = value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
    return f'{name}="{escaped}"'
