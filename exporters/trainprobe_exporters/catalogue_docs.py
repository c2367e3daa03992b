"""docs/metrics.md, from the catalogue. ``python -m trainprobe_exporters.catalogue_docs`` prints it."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from trainprobe_exporters import catalogue
from trainprobe_exporters.families import MAX_RANKS, MAX_RANKS_PER_RUN, RUN_LINGER_SECONDS
from trainprobe_exporters.naming import MAX_RUNS, MAX_RUNS_PER_USER

_SECTIONS = (
    ("Runs, steps, lost time", catalogue.RUN_METRICS),
    ("Goodput of jobs", catalogue.JOB_METRICS),
    ("Checkpoints and logs", catalogue.FILE_METRICS),
    ("Memory, workers, limits", catalogue.LIMIT_METRICS),
    ("GPUs", catalogue.GPU_METRICS),
    ("Sources, daemon, exporter", catalogue.OWN_METRICS),
)

_INTRODUCTION = """\
# Metrics

<!-- Generated: .venv/bin/python -m trainprobe_exporters.catalogue_docs > docs/metrics.md -->

What `trainprobe-exporter` serves on `/metrics`, as Prometheus text or OpenMetrics ([prometheus.md](prometheus.md)).
Names, types and labels are public.

## Rules

- **Absent is not zero.** What was not measured has no series: timestamps and sizes until they are real, step metrics
  without a step clock.
- **Counters start at 0** for the label values marked *from 0*, so `increase()` sees the first event.
- **Counters never fall** while a rank is watched. When better evidence moves seconds to another cause, the new one
  grows at once and the old one waits until its true value has caught up. A restart of the training resets them. Over
  one of the daemon those of runs go on; those of no run (GPUs, sources, lost events) begin anew.
- **An open stall counts**: `trainprobe_stall_seconds_total` and `trainprobe_lost_seconds_total` grow with each
  report.
- **`cause`, `state`, `phase`, `reason`, `outcome`, `operation` and `kind` are closed sets.** A key that this exporter
  does not know (a newer daemon's) counts as `unknown`, `other` and so on.
- **`run` is bounded**: {bounds}. The rest counts as `run="other", rank="other"`, with plain counters only; that sum
  never falls. A free place goes to the run that has waited longest. Exclude `run="other"` from maxima over ranks.
- **A run's series stay {linger} s after its end** (`run_linger_seconds`), flags at 0; those marked *leaves* go at
  once. The same holds for all runs when the daemon stops publishing, but flags go too, and so do the host's gauges;
  `trainprobe_source_up{{source="daemon"}}` is 0.
- **No label has a pid or a path**, nor a command or user without `privacy.labels`. Values have at most 128
  characters; unprintable ones are U+FFFD.

## At most {series} series for a rank

{arithmetic}
"""

_BOUNDS = (
    f"{MAX_RUNS_PER_USER} runs of a user and {MAX_RUNS} in all have series of their own, "
    f"with at most {MAX_RANKS_PER_RUN} ranks each and {MAX_RANKS} in all"
)

_ORDER = """
Beyond the limit series are omitted in this order: zeros of `trainprobe_stalls_total` (not counted), other zeros,
figures of the metrics marked *gives way*, those further down first. `trainprobe_series_dropped_total` counts each.
Metrics that alerts and annotations read never give way.
"""

_END = """
`process_*` are the exporter's own CPU time, memory and file descriptors, as every Prometheus client names them.
"""


def markdown() -> str:
    introduction = _INTRODUCTION.format(
        bounds=_BOUNDS,
        linger=f"{RUN_LINGER_SECONDS:g}",
        series=catalogue.MAX_SERIES_PER_RANK,
        arithmetic="\n".join(_arithmetic()),
    )
    parts = [introduction, _ORDER, *(section for title, metrics in _SECTIONS for section in _section(title, metrics))]
    return "".join([*parts, _END])


def series_from_start(metric: catalogue.Metric) -> int:
    """Series that a rank has of this metric before anything has happened in it, gauges aside."""
    if not metric.own_labels:
        return metric.series
    return len(metric.zero) * prod(len(metric.values[label]) for label in metric.own_labels[:-1]) if metric.zero else 0


def series_at_most(metric: catalogue.Metric) -> int:
    """Series that a rank can have of this metric; of open sets (GPUs, errors) one."""
    count = metric.series
    for label in metric.own_labels:
        count *= len(metric.values.get(label, ("one",)))
    return count


def _arithmetic() -> Iterator[str]:
    of_rank = [metric for metric in catalogue.METRICS if metric.of_rank]
    counters = [metric for metric in of_rank if metric.type != "gauge"]
    by_cause = sum(series_from_start(m) for m in counters if "cause" in m.labels)
    histograms = sum(m.series for m in counters if m.buckets)
    start = sum(series_from_start(m) for m in counters)
    fixed = sum(series_from_start(m) for m in counters if m.gives_way is catalogue.DropPolicy.NEVER)
    yield (
        f"From the first report on a rank has {start} series of counters: {by_cause} zeros by cause (three counters), "
        f"{histograms} of the two histograms, {start - by_cause - histograms} others. {fixed} of them never give way."
    )
    yield (
        "States, phases and kinds of logs appear when they occur, two series for each cause "
        "that has stalled the rank, "
        f"and at most {len([m for m in of_rank if m.type == 'gauge' and not m.values])} gauges."
    )
    yield f"All of it in one rank would be {sum(map(series_at_most, of_rank))} series."


def _section(title: str, metrics: tuple[catalogue.Metric, ...]) -> Iterator[str]:
    yield f"\n## {title}\n\n| metric | type | labels | meaning |\n|---|---|---|---|\n"
    listed: set[tuple[str, ...]] = set()
    for metric in metrics:
        cells = (f"`{metric.name}`", _type(metric), _labels(metric), _meaning(metric, listed) + _marks(metric))
        yield f"| {' | '.join(cells)} |\n"


def _type(metric: catalogue.Metric) -> str:
    if metric.buckets:
        return f"{metric.type}: {' '.join(f'{bound:g}' for bound in metric.buckets)}"
    return metric.type


def _labels(metric: catalogue.Metric) -> str:
    return ", ".join(f"`{label}`" for label in metric.labels)


def _meaning(metric: catalogue.Metric, listed: set[tuple[str, ...]]) -> str:
    """``listed``: closed sets that the table has already."""
    text = metric.help
    for label, values in metric.values.items():
        if len(values) <= 6 and values not in listed:
            listed.add(values)
            text += f" `{label}`: {', '.join(values)}."
    return text


def _marks(metric: catalogue.Metric) -> str:
    marks = [f"from 0 ({len(metric.zero)} causes)" if metric.labels[-1] == "cause" else "from 0"] if metric.zero else []
    marks += [] if metric.at_end is catalogue.EndPolicy.STAYS else [metric.at_end.value]
    marks += [] if metric.gives_way is catalogue.DropPolicy.NEVER else ["gives way"]
    return f" *{'; '.join(marks)}*" if marks else ""


if __name__ == "__main__":
    print(markdown(), end="")
