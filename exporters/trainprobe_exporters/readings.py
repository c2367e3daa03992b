"""One rank of a report -> its readings: metric, labels beside run and rank, value.

A reading that was not measured is absent, never 0. A key outside a closed set is added to the key that stands for the
rest, so that sums of a newer daemon's report stay right.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from typing import NamedTuple

from trainprobe.model.goodput import Badput, Goodput
from trainprobe.model.report import Counters, Gpu, Rank, Run
from trainprobe_exporters.catalogue import BY_NAME, METRICS, PREFIX, ByKey, Metric, OfJob, OfRank
from trainprobe_exporters.figures import counts_steps, finite, phase_seconds
from trainprobe_exporters.labels import label_value

MAX_ERRNOS = 4
_OF_A_START = tuple(str(b) for b in (Badput.STARTUP, Badput.TRAINING_PREP, Badput.CHECKPOINT_RESTORE))
MAX_GPUS = 8  # a rank that claims more is cut


class Histogram(NamedTuple):
    """Counts by bucket, not cumulative, the last one beyond all bounds; and the sum of what was counted."""

    counts: tuple[float, ...]
    sum: float


Value = float | Histogram


class Reading(NamedTuple):
    metric: Metric
    labels: tuple[str, ...]  # beyond run and rank
    value: Value


def rank_readings(run: Run, rank: Rank, *, private_labels: bool) -> Iterator[Reading]:
    """All that one rank tells, each label set once."""
    yield _run_info(run, private_labels)
    for metric in METRICS:
        if isinstance(metric.value, OfRank):
            yield from scalar(metric, (), metric.value.read(rank))
        elif isinstance(metric.value, ByKey):
            yield from _keyed(metric, metric.value.read(rank), metric.value.rest)
    yield from _phase_active(phase_seconds(rank), rank.counters.phase)
    yield from _checkpoint_seconds(rank.counters.checkpoint_seconds)
    yield from _stall_gauges(rank.counters)
    if counts_steps(rank):
        yield histogram("step_duration_seconds", (), rank.counters.step_durations, rank.counters.step_duration_sum)
    yield histogram("stall_duration_seconds", (), rank.counters.stall_durations, rank.counters.stall_duration_sum)
    yield from _fd_errors(rank.counters.fd_errors)
    yield from _gpu_info(rank.gpus)
    yield from _gpu_idle(rank.gpus)


def run_readings(run: Run) -> Iterator[Reading]:
    """What belongs to a run as a whole; the labels are those after ``run``."""
    scope = run.memory.get("scope")
    metric = BY_NAME[PREFIX + "memory_used_bytes"]
    if isinstance(scope, str) and scope in metric.values["scope"]:
        yield from _scalar("memory_used_bytes", (scope,), run.memory.get("used_bytes"))
        yield from _scalar("memory_limit_bytes", (scope,), run.memory.get("limit_bytes"))
    for killed in BY_NAME[PREFIX + "oom_kills_total"].values["scope"]:
        yield from _scalar("oom_kills_total", (killed,), run.oom_kills.get(killed, 0))


def job_readings(goodput: Goodput, *, begun: bool) -> Iterator[Reading]:
    """The account of a job; the labels are those after ``run``. ``begun``: its latest attempt has made a step or has
    ended. Before that nobody knows what its start is spent on, and what earlier attempts came to is told: at 0 where
    this is the first, so that the start counts as an increase."""
    if goodput.wall_seconds <= 0:  # an older daemon's
        return
    for metric in METRICS:
        if isinstance(metric.value, OfJob):
            yield from scalar(metric, (), metric.value.read(goodput))
    metric = BY_NAME[PREFIX + "badput_seconds_total"]
    told = goodput.badput if begun else {**dict.fromkeys(_OF_A_START, 0.0), **goodput.earlier}
    for source in metric.values["badput_source"]:
        if source in told:
            yield from scalar(metric, (source,), told[source])


def scalar(metric: Metric, labels: tuple[str, ...], value: object) -> Iterator[Reading]:
    """The reading, unless it was not measured; a counter is never negative."""
    number = finite(value)
    if number is not None:
        yield Reading(metric, labels, max(0, number) if metric.type == "counter" else number)


def _scalar(name: str, labels: tuple[str, ...], value: object) -> Iterator[Reading]:
    return scalar(BY_NAME[PREFIX + name], labels, value)


def _keyed(metric: Metric, figures: Mapping[str, float], rest: str) -> Iterator[Reading]:
    """One reading a key: keys that start at 0, and those that have counted something."""
    closed = metric.values[metric.labels[-1]]
    sums: dict[str, float] = dict.fromkeys(metric.zero, 0)
    for key, figure in figures.items():
        number = finite(figure)
        if number is not None and number > 0:
            known = key if key in closed else rest
            sums[known] = round(sums.get(known, 0) + number, 6)
    for key, number in sums.items():
        yield Reading(metric, (key,), number)


def _run_info(run: Run, private_labels: bool) -> Reading:
    metric = BY_NAME[PREFIX + "run_info"]
    labels = [label_value(run.labels.get(key)) for key in metric.own_labels]
    if private_labels:
        told = (" ".join(run.command[:64]), run.user, run.labels.get("slurm_job_name"))
        labels += [label_value(text) for text in told]
    return Reading(metric, tuple(labels), 1)


def _checkpoint_seconds(figures: Mapping[str, float]) -> Iterator[Reading]:
    metric = BY_NAME[PREFIX + "checkpoint_seconds_total"]
    sums = dict.fromkeys(product(metric.values["operation"], metric.zero), 0.0)
    for key, figure in figures.items():
        operation, _, blocking = key.partition("/")
        number = finite(figure)
        if number is None or number <= 0 or blocking not in metric.values["blocking"]:
            continue
        known = operation if operation in metric.values["operation"] else "other"
        sums[known, blocking] = round(sums[known, blocking] + number, 6)
    for labels, number in sums.items():
        yield Reading(metric, labels, number)


def _phase_active(phases: Mapping[str, float], active: str) -> Iterator[Reading]:
    metric = BY_NAME[PREFIX + "phase_active"]
    for phase in metric.values["phase"]:
        if phase == active or phases.get(phase, 0) > 0:
            yield Reading(metric, (phase,), int(phase == active))


def _stall_gauges(counters: Counters) -> Iterator[Reading]:
    """Whether a stall is open, and when the latest began: of the causes that have stalled this rank."""
    active, start = BY_NAME[PREFIX + "stall_active"], BY_NAME[PREFIX + "stall_last_start_timestamp_seconds"]
    for cause in active.values["cause"]:
        is_open = counters.stall_active.get(cause, 0) > 0
        if is_open or counters.stalls.get(cause, 0) > 0 or counters.stall_seconds.get(cause, 0) > 0:
            yield Reading(active, (cause,), int(is_open))
        yield from scalar(start, (cause,), counters.stall_last_start.get(cause) or None)  # 0: not yet


def histogram(name: str, labels: tuple[str, ...], counts: Iterable[float], total: float) -> Reading:
    """``counts`` by the metric's buckets, the last one beyond all bounds; missing ones are 0."""
    metric = BY_NAME[PREFIX + name]
    told = [max(0, finite(count) or 0) for count in counts]
    wanted = len(metric.buckets) + 1
    told = told[:wanted] + [0] * (wanted - len(told))
    return Reading(metric, labels, Histogram(tuple(told), max(0, finite(total) or 0)))


def _fd_errors(figures: Mapping[str, float]) -> Iterator[Reading]:
    metric = BY_NAME[PREFIX + "fd_errors_total"]
    for errno, figure in {label_value(errno): n for errno, n in list(figures.items())[:MAX_ERRNOS]}.items():
        yield from scalar(metric, (errno,), figure)


def _gpu_info(gpus: Iterable[Gpu]) -> Iterator[Reading]:
    metric = BY_NAME[PREFIX + "run_gpu_info"]
    seen = {(label_value(gpu.index), label_value(gpu.uuid), "") for gpu in list(gpus)[:MAX_GPUS]}
    for labels in sorted(seen):
        yield Reading(metric, labels, 1)


def _gpu_idle(gpus: Iterable[Gpu]) -> Iterator[Reading]:
    metric = BY_NAME[PREFIX + "gpu_idle_seconds_total"]
    sums: dict[tuple[str, str], float] = {}
    for gpu in list(gpus)[:MAX_GPUS]:
        for cause, seconds in gpu.idle_by_cause.items():
            key = (label_value(gpu.index), cause if cause in metric.values["cause"] else "unknown")
            sums[key] = sums.get(key, 0.0) + (finite(seconds) or 0)
    for labels, seconds in sorted(sums.items()):
        yield from scalar(metric, labels, seconds)
