"""A report -> readings of the host, the sources and the daemon itself."""

from __future__ import annotations

from collections.abc import Iterator

from trainprobe.model.report import Report
from trainprobe_exporters.catalogue import BY_NAME, METRICS, PREFIX, OfGpu, OfReport
from trainprobe_exporters.labels import label_value
from trainprobe_exporters.readings import Reading, histogram, scalar

MAX_SOURCES = 32
MAX_PROBES = 64
MAX_GPUS = 64
MAX_REASONS = 16
MAX_CODES = 32
MAX_DEVICES = 128  # and operations on them
MAX_MOUNTS = 64  # of /dev/shm: one a container
DAEMON = "daemon"
"""The source that is the daemon's report itself; the exporter reads it and speaks for it."""


def host_readings(report: Report) -> Iterator[Reading]:
    for metric in METRICS:
        if isinstance(metric.value, OfReport):
            yield from scalar(metric, (), metric.value.read(report))
    yield from _shared_memory(report)
    yield from _orphans(report)
    yield from _gpus(report)
    yield from _pressure(report)
    yield from _block_io(report)
    yield from _sources(report)
    yield from _probes(report)


def _shared_memory(report: Report) -> Iterator[Reading]:
    told = {(label_value(s.device), label_value(s.container)): s for s in report.shared_memory[:MAX_MOUNTS]}
    for labels, shared in told.items():
        yield from scalar(BY_NAME[PREFIX + "shm_used_bytes"], labels, shared.used_bytes)
        yield from scalar(BY_NAME[PREFIX + "shm_size_bytes"], labels, shared.size_bytes)
        yield from scalar(BY_NAME[PREFIX + "shm_leaked_bytes"], labels, shared.leaked_bytes)


def _orphans(report: Report) -> Iterator[Reading]:
    if report.orphans is None:
        return
    held = [orphan.pss_bytes for orphan in report.orphans if orphan.pss_bytes is not None]
    yield from scalar(BY_NAME[PREFIX + "orphan_workers"], (), len(report.orphans))
    yield from scalar(BY_NAME[PREFIX + "orphan_worker_bytes"], (), sum(held) if held or not report.orphans else None)


def _gpus(report: Report) -> Iterator[Reading]:
    told = {(label_value(g.index), label_value(g.uuid)): g for g in report.gpus[:MAX_GPUS]}
    errors = BY_NAME[PREFIX + "gpu_errors_total"]
    for labels, gpu in told.items():
        for metric in METRICS:
            if isinstance(metric.value, OfGpu):
                yield from scalar(metric, labels, metric.value.read(gpu))
        throttled = {label_value(reason): s for reason, s in list(gpu.throttled_seconds.items())[:MAX_REASONS]}
        for reason, seconds in throttled.items():
            yield from scalar(BY_NAME[PREFIX + "gpu_throttled_seconds_total"], (*labels, reason), seconds)
        keys = ((key.partition("/"), count) for key, count in list(gpu.errors.items())[:MAX_CODES])
        counts = {(kind, label_value(code)): count for (kind, _, code), count in keys if kind in errors.values["kind"]}
        for which, count in counts.items():
            yield from scalar(errors, (*labels, *which), count)


def _pressure(report: Report) -> Iterator[Reading]:
    metric = BY_NAME[PREFIX + "pressure_seconds_total"]
    told = report.host.pressure_seconds or {}
    for resource in metric.values["resource"]:
        for kind in metric.values["kind"]:
            yield from scalar(metric, (resource, kind), told.get(f"{resource}.{kind}"))


def _block_io(report: Report) -> Iterator[Reading]:
    told = {(label_value(one.device), label_value(one.operation)): one for one in report.host.block_io[:MAX_DEVICES]}
    for labels, one in told.items():
        yield histogram("block_io_duration_seconds", labels, one.counts, one.seconds)


def _sources(report: Report) -> Iterator[Reading]:
    told = {label_value(name): source for name, source in list(report.sources.items())[:MAX_SOURCES]}
    told.pop(DAEMON, None)
    for name, source in told.items():
        yield Reading(BY_NAME[PREFIX + "source_up"], (name,), int(source.state == "up"))
        yield from scalar(BY_NAME[PREFIX + "source_errors_total"], (name,), source.errors)
        yield from scalar(BY_NAME[PREFIX + "source_duration_seconds"], (name,), source.seconds)


def _probes(report: Report) -> Iterator[Reading]:
    """Losses that no probe owns are told as probe=other, costs that are known only in all as probe=all."""
    lost = {label_value(name): n for name, n in list(report.events_lost_by.items())[:MAX_PROBES]}
    rest = report.events_lost - sum(lost.values())
    if rest > 0 or not lost:
        lost["other"] = lost.get("other", 0) + max(0, rest)
    for probe, count in lost.items():
        yield from scalar(BY_NAME[PREFIX + "events_lost_total"], (probe,), count)
    yield from scalar(BY_NAME[PREFIX + "bpf_run_seconds_total"], ("all",), report.cost.bpf_seconds)
    runs = {label_value(name): n for name, n in list((report.cost.bpf_runs or {}).items())[:MAX_PROBES]}
    for probe, count in runs.items():
        yield from scalar(BY_NAME[PREFIX + "bpf_runs_total"], (probe,), count)
