"""A report as a trace in the Trace Event Format: opens in the Perfetto UI and in Chrome's tracing, JSON text.

Time base: ``ts`` is microseconds after ``baseTimeNanoseconds`` (UNIX time), which is the same multiple of three months
that PyTorch's profiler writes its traces against. So the events of both are on one axis, and ``merged`` puts them into
one file. What cannot be placed within a step (the ledger says how long, not when) is a counter of shares and called so.
Pure functions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from trainprobe.model.report import Checkpoint, Rank, Report, Run, Stall
from trainprobe.model.steprow import StepRow

Event = dict[str, Any]
Rows = Mapping[tuple[str, str], Sequence[StepRow]]
"""Step rows by run and rank."""

TRIMONTH = 7_889_238  # seconds: what PyTorch's profiler (libkineto) rounds its base time down to
NS = 1_000_000_000
FIRST_PID = 2_000_000_001  # beyond any real process: our tracks stand beside a profiler's, not among them
SHARES = "share of step"
OVERLAP_US = 100.0  # two clocks read one after the other, and rounding: one slice ends where the next one begins
ORDER = ("steps", "stalls", "in flight during stalls", "phases", "checkpoints", "workers", "events", "GPU")
NAME_LIMIT = 200
FARTHEST = 1e12  # seconds: a later time is a wrong one


def trace(report: Report, rows: Rows, base_ns: int | None = None) -> dict[str, Any]:
    """All runs of the report; ``base_ns`` to be on the axis of another trace."""
    base = base_time_ns(report) if base_ns is None else base_ns
    events: list[Event] = []
    ranks = [(run, rank) for run in report.runs for rank in run.ranks]
    for place, (run, rank) in enumerate(ranks):
        process = _Process(FIRST_PID + place, base)
        process.begin(run, rank, place)
        _write_rank(process, report, run, rank, rows.get((run.key, rank.name), ()))
        events += process.events
    return {
        "schemaVersion": 1,
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": base,
        "traceName": "trainprobe",
        "host_name": _text(report.host.name),
        "traceEvents": events,
    }


def base_time_ns(report: Report) -> int:
    """The base time that PyTorch's profiler had when the first run of the report began."""
    first = min((run.started for run in report.runs), default=report.generated)
    return int(first // TRIMONTH) * TRIMONTH * NS


def merged(ours: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """The other trace with our events on its axis. ``ours`` must have been made with ``base_of(other)``."""
    return {**other, "traceEvents": [*other.get("traceEvents", ()), *ours["traceEvents"]]}


def base_of(other: Mapping[str, Any]) -> int:
    """The base time of a trace, UNIX nanoseconds; 0 for one that counts from 1970 itself (PyTorch before 2.3)."""
    base = other.get("baseTimeNanoseconds", 0)
    return base if isinstance(base, int) and abs(base) <= FARTHEST * NS else 0


class _Process:
    def __init__(self, pid: int, base_ns: int) -> None:
        self.pid = pid
        self._base_ns = base_ns
        self.events: list[Event] = []
        self._threads: dict[str, int] = {}
        self._latest: dict[int, Event] = {}  # slice of a track

    def begin(self, run: Run, rank: Rank, place: int) -> None:
        name = f"trainprobe: {run.key} rank {rank.name} (pid {rank.pid})"
        self._meta("process_name", name=_text(name))
        self._meta("process_sort_index", sort_index=place - 1000)

    def slice(self, track: str, name: str, start: float, end: float, args: Mapping[str, Any]) -> None:
        """A stretch of a track; those of one track lie side by side or within each other."""
        begin, tid = self._ts(start), self._thread(track)
        before = self._latest.get(tid)
        if before is not None and 0 < before["ts"] + before["dur"] - begin < OVERLAP_US:
            before["dur"] = round(max(begin - before["ts"], 0.0), 3)
        event = self._event("X", name, begin, args)
        event |= {"tid": tid, "dur": round(max(self._ts(end) - begin, 0.0), 3)}
        self.events.append(event)
        self._latest[tid] = event

    def instant(self, track: str, name: str, at: float, args: Mapping[str, Any]) -> None:
        self.events.append({**self._event("i", name, self._ts(at), args), "tid": self._thread(track), "s": "t"})

    def counter(self, name: str, at: float, values: Mapping[str, float]) -> None:
        self.events.append(self._event("C", name, self._ts(at), values))

    def _event(self, kind: str, name: str, ts: float, args: Mapping[str, Any]) -> Event:
        return {"ph": kind, "cat": "trainprobe", "name": _text(name), "pid": self.pid, "ts": ts, "args": dict(args)}

    def _ts(self, time: float) -> float:
        return round(min(max(time, -FARTHEST), FARTHEST) * 1e6 - self._base_ns / 1e3, 3)

    def _thread(self, track: str) -> int:
        if track not in self._threads:
            number = self._threads[track] = len(self._threads) + 1
            self._meta("thread_name", tid=number, name=track)
            family = next((place for place, known in enumerate(ORDER) if track.startswith(known)), len(ORDER))
            self._meta("thread_sort_index", tid=number, sort_index=10 * family + number)
        return self._threads[track]

    def _meta(self, kind: str, tid: int = 0, **args: Any) -> None:
        self.events.append({"ph": "M", "name": kind, "pid": self.pid, "tid": tid, "ts": 0, "args": args})


def _write_rank(process: _Process, report: Report, run: Run, rank: Rank, rows: Sequence[StepRow]) -> None:
    now = run.ended if run.ended is not None else report.generated
    _steps(process, rows)
    for stall in rank.stalls:
        _stall(process, stall, stall.end if stall.end is not None else now)
    for span in rank.phases:
        process.slice("phases", span.phase, span.start, span.end if span.end is not None else now, {})
    _checkpoints(process, rank.checkpoints, now)
    for place, time in enumerate(rank.samples.time):
        for name, column in (
            ("memory of all its processes (PSS, bytes)", rank.samples.pss_bytes),
            ("memory in swap (bytes)", rank.samples.swap_bytes),
            ("live workers", rank.samples.workers),
        ):
            if place < len(column) and (value := column[place]) is not None:
                process.counter(name, time, {"value": value})
    for gone in rank.workers.exits:
        how = f"signal {gone.signal}" if gone.signal is not None else f"code {gone.code}"
        process.instant("workers", f"worker {gone.pid} {gone.reason} ({how})", gone.time, asdict(gone))
    for warning in rank.warnings:
        process.instant("events", warning.cause, warning.time, _args(warning, "time"))
    for gpu in rank.gpus:
        process.slice("GPU", f"GPU {gpu.index}: means over the run", run.started, now, asdict(gpu))


def _steps(process: _Process, rows: Sequence[StepRow]) -> None:
    before: StepRow | None = None
    for row in rows:
        if before is not None and row.start - before.end > row.max:
            _shares(process, before.end, before, {})
        name = "step" if row.count == 1 else f"{row.count} steps"
        args = {"count": row.count, "min_seconds": row.min, "max_seconds": row.max, "seconds_by_state": row.states}
        process.slice("steps", name, row.start, row.end, args)
        _shares(process, row.start, before, row.states)
        before = row
    if before is not None:
        _shares(process, before.end, before, {})


def _shares(process: _Process, at: float, before: StepRow | None, states: Mapping[str, float]) -> None:
    """A counter keeps its value until it gets another one: what a step did not do any more is 0."""
    whole = sum(states.values()) or 1.0
    gone = before.states if before is not None else {}
    values = {**dict.fromkeys(gone, 0.0), **{state: round(seconds / whole, 4) for state, seconds in states.items()}}
    if values:
        process.counter(SHARES, at, values)


def _stall(process: _Process, stall: Stall, end: float) -> None:
    process.slice("stalls", stall.cause, stall.start, end, _args(stall, "start", "end"))
    for link in stall.chain:
        process.slice("in flight during stalls", link, stall.start, end, {"stall": stall.id})


def _checkpoints(process: _Process, saves: Iterable[Checkpoint], now: float) -> None:
    """Saves that overlap (from threads and processes) get a track each."""
    free: list[float] = []
    for save in sorted(saves, key=lambda save: save.start):
        end = save.end if save.end is not None else now
        lane = next((n for n, until in enumerate(free) if until <= save.start), len(free))
        free[lane : lane + 1] = [end]
        track = "checkpoints" if lane == 0 else f"checkpoints {lane + 1}"
        process.slice(track, save.path.rsplit("/", 1)[-1] or save.path, save.start, end, _args(save, "start", "end"))


def _args(of: Any, *left_out: str) -> dict[str, Any]:
    return {name: value for name, value in asdict(of).items() if name not in left_out and value is not None}


def _text(name: str) -> str:
    return name if len(name) <= NAME_LIMIT else name[: NAME_LIMIT - 1] + "…"
