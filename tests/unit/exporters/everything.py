"""All metrics of the catalogue with samples: told by the real families where a report can say it, else on paper."""

from __future__ import annotations

from dataclasses import replace

from tests.unit.exporters.reports import NOW, a_full_report
from trainprobe.model.report import Report
from trainprobe_exporters.catalogue import METRICS, Metric
from trainprobe_exporters.families import Family, SeriesTable
from trainprobe_exporters.readings import Histogram

# Labels that are no closed set; those that join two metrics are the same as in the report.
_LABELS = {"gpu": "0", "uuid": "GPU-1234", "errno": "EMFILE", "device": "259:0", "container": "host", "source": "bpf"}


def a_report_of_two_ranks() -> Report:
    """Rank 1 waits for rank 0 in collectives, so rank 0 is the straggler; both have evaluated."""
    report = replace(a_full_report(), private_labels=True)
    run = report.runs[0]
    first = run.ranks[0]
    first.counters.phase_seconds["evaluation"] = 5.0
    second = replace(first, rank=1, name="1", ledger=dict(first.ledger, collective=400.0))
    run.ranks = [replace(first, world_size=2), replace(second, world_size=2)]
    return report


def everything_told() -> list[Family]:
    """What an exporter tells of that report; a metric that it cannot fill has one sample for each rank or host."""
    series = SeriesTable()
    series.fold(a_report_of_two_ranks())
    told = {family.metric.name: family for family in series.families(NOW, fresh=True)}
    return [told.get(metric.name) or _on_paper(metric) for metric in METRICS]


def _on_paper(metric: Metric) -> Family:
    run = a_full_report().runs[0].run
    value: float | Histogram = 60.0
    if metric.type == "histogram":
        value = Histogram((10.0,) * (len(metric.buckets) + 1), 30.0)
    elif metric.name.endswith("_ratio"):
        value = 0.5
    ranks = ("0", "1") if "rank" in metric.labels else ("",)
    return Family(metric, [(tuple(_label(metric, name, run, rank) for name in metric.labels), value) for rank in ranks])


def _label(metric: Metric, name: str, run: str, rank: str) -> str:
    if name in ("run", "rank"):
        return run if name == "run" else rank
    if name in metric.values:
        return metric.values[name][0]
    return _LABELS.get(name, name)
