"""docs/metrics.md, from the catalogue. ``python -m trainprobe_exporters.catalogue_docs`` prints it."""

from __future__ import annotations

from collections.abc import Iterator

from trainprobe_exporters.catalogue import (
    FILE_METRICS,
    GPU_METRICS,
    JOB_METRICS,
    LIMIT_METRICS,
    MAX_SERIES_PER_RANK,
    METRICS,
    OWN_METRICS,
    RUN_METRICS,
    DropPolicy,
    EndPolicy,
    Metric,
)
from trainprobe_exporters.families import MAX_RANKS, MAX_RANKS_PER_RUN, RUN_LINGER_SECONDS
from trainprobe_exporters.naming import MAX_RUNS, MAX_RUNS_PER_USER

_SECTIONS = (
    ("Runs, steps, lost time", RUN_METRICS),
    ("Goodput of jobs", JOB_METRICS),
    ("Checkpoints and logs", FILE_METRICS),
    ("Memory, workers, limits", LIMIT_METRICS),
    ("GPUs", GPU_METRICS),
    ("Sources, daemon, exporter", OWN_METRICS),
)

_INTRODUCTION = """\
# Metrics

<!-- Generated: .venv/bin/python -m trainprobe_exporters.catalogue_docs > docs/metrics.md -->

What `trainprobe-exporter` serves on `/metrics`, as Prometheus text or OpenMetrics. Names, types and labels are public
and stay. How to scrape it: [prometheus.md](prometheus.md).

## What holds for all of them

- **Absent is not zero.** What was not measured has no series. Timestamps and sizes are absent until they are real,
  step metrics while there is no step clock.
- **Counters start at 0** for all the label values marked below, so that `increase()` sees the first event too.
- **Counters never fall** while a rank is watched. When seconds change their cause (better evidence came), the new
  cause grows at once and the old one stands still until its true value has caught up. A restart of the daemon, or of
  the training, resets them, as Prometheus expects.
- **An open stall counts while it is open**: `trainprobe_stall_seconds_total` grows with each report, and so does
  `trainprobe_lost_seconds_total`.
- **`cause`, `state`, `phase`, `reason`, `outcome`, `operation` and `kind` are closed sets.** A key that this exporter
  does not know (a newer daemon's) counts as `unknown`, `other` and so on.
- **`run` is bounded**: {bounds}.
  What is beyond counts together as `run="other", rank="other"`, with plain counters only. That sum never falls when
  runs come and go. A place that becomes free goes to the run that has waited longest. Alerts that take the maximum
  over ranks leave `run="other"` out: it is a sum.
- **A run's series stay {linger} s after its end** (`run_linger_seconds`): totals and facts as they were, flags at 0;
  sizes of what is no more (workers, memory, descriptors) leave at once. The same holds for all runs when the daemon
  stops publishing, except that flags leave too, because nobody knows them; `trainprobe_source_up{{source="daemon"}}`
  is then 0.
- **No pid**, no path and, unless `privacy.labels` says so, no command and no user is in any label. Label values are at
  most 128 characters; what cannot be printed in them is U+FFFD.

## At most {series} series for a rank

{arithmetic}
"""

_BOUNDS = (
    f"{MAX_RUNS_PER_USER} runs of a user and {MAX_RUNS} in all have series of their own, "
    f"with at most {MAX_RANKS_PER_RUN} ranks each and {MAX_RANKS} in all"
)

_ORDER = """
What gives way when a rank would have more, in this order: zeros of `trainprobe_stalls_total` (a cause that never
stalled; not counted, for such a zero says nothing that its absence does not), then other zeros and then figures of the
metrics marked in the last column, the lower in these tables the earlier. Each series left out that way is counted once
in `trainprobe_series_dropped_total`. All others stay: what alerts and annotations read never gives way.
"""

_END = """
`process_*` are the exporter's own CPU time, memory and file descriptors, as every Prometheus client names them.
"""


def markdown() -> str:
    """The whole page."""
    introduction = _INTRODUCTION.format(
        bounds=_BOUNDS,
        linger=f"{RUN_LINGER_SECONDS:g}",
        series=MAX_SERIES_PER_RANK,
        arithmetic="\n".join(_arithmetic()),
    )
    parts = [introduction, _ORDER, *(section for title, metrics in _SECTIONS for section in _section(title, metrics))]
    return "".join([*parts, _END])


def series_from_start(metric: Metric) -> int:
    """Series that a rank has of this metric before anything has happened in it, gauges aside."""
    return len(metric.zero) if metric.own_labels else metric.series


def series_at_most(metric: Metric) -> int:
    """Series that a rank can have of this metric; of open sets (GPUs, errors) one."""
    count = metric.series
    for label in metric.own_labels:
        count *= len(metric.values.get(label, ("one",)))
    return count


def _arithmetic() -> Iterator[str]:
    of_rank = [metric for metric in METRICS if metric.of_rank]
    counters = [metric for metric in of_rank if metric.type != "gauge"]
    by_cause = sum(series_from_start(m) for m in counters if "cause" in m.labels)
    histograms = sum(m.series for m in counters if m.buckets)
    start = sum(series_from_start(m) for m in counters)
    fixed = sum(series_from_start(m) for m in counters if m.gives_way is DropPolicy.NEVER)
    yield (
        f"From the first report on a rank has {start} series of counters: {by_cause} zeros by cause (three counters), "
        f"{histograms} of the two histograms, {start - by_cause - histograms} others. Of these {fixed} never give way; "
        f"the {start - fixed} zeros of `trainprobe_stalls_total` are there while there is room."
    )
    yield (
        "Everything else comes with what happens: states and phases that were seen, the flags and starts of causes "
        "that have stalled this rank (two each), checkpoint operations and kinds of logs that occurred, and "
        f"{len([m for m in of_rank if m.type == 'gauge' and not m.values])} gauges at most."
    )
    yield (
        f"If all of it happened in one rank that would be {sum(map(series_at_most, of_rank))} series. "
        f"So there is an order:"
    )


def _section(title: str, metrics: tuple[Metric, ...]) -> Iterator[str]:
    yield f"\n## {title}\n\n| metric | type | labels | meaning | at 0 from the start | at the end | gives way |\n"
    yield "|---|---|---|---|---|---|---|\n"
    for metric in metrics:
        at_end = "" if metric.at_end is EndPolicy.STAYS else metric.at_end.value
        cells = (f"`{metric.name}`", _type(metric), _labels(metric), _meaning(metric), _zero(metric), at_end,
                 "" if metric.gives_way is DropPolicy.NEVER else metric.gives_way.value)  # fmt: skip
        yield f"| {' | '.join(cells)} |\n"


def _type(metric: Metric) -> str:
    if metric.buckets:
        return f"{metric.type}: {' '.join(f'{bound:g}' for bound in metric.buckets)}"
    return metric.type


def _labels(metric: Metric) -> str:
    return ", ".join(f"`{label}`" for label in metric.labels)


def _meaning(metric: Metric) -> str:
    text = metric.help
    for label, values in metric.values.items():
        if len(values) <= 6:
            text += f" `{label}`: {', '.join(values)}."
    return text


def _zero(metric: Metric) -> str:
    if not metric.zero:
        return ""
    if metric.labels[-1] == "cause":
        return f"{len(metric.zero)} causes"
    return "all"


if __name__ == "__main__":
    print(markdown(), end="")
