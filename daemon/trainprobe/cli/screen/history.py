"""What changed between the reports that were seen: speed now, and where the last minute went."""

from __future__ import annotations

from collections import deque
from dataclasses import field
from itertools import pairwise

from trainprobe.model.dataclass import dataclass
from trainprobe.model.report import GpuState, Rank, Report

MINUTE = 60.0
KEPT = 90.0  # seconds
NOW = 5.0  # seconds over which the speed of now is told
WHOLE = 1 - 1e-6  # part of the bar that something has to add up to where it is not most of any
Key = tuple[str, str]
"""(run, rank's name)"""


@dataclass(frozen=True, slots=True)
class RankReading:
    """A rank at a moment (UNIX seconds): cumulative figures."""

    at: float
    steps: int
    account: dict[str, float]  # productive, phases, and lost by cause: seconds
    states: dict[str, float]


@dataclass(frozen=True, slots=True)
class Minute:
    """Where the last minute went, or what of it was seen: shares of ``seconds``."""

    seconds: float
    productive: float
    phases: dict[str, float]
    lost: dict[str, float]
    states: dict[str, float]


@dataclass(slots=True)
class RankHistory:
    """The readings of all ranks for the last minute and a half."""

    now: float = 0.0  # UNIX seconds of the newest report
    gpus: dict[str, GpuState] = field(default_factory=dict)  # by uuid, as they are now
    _readings: dict[Key, deque[RankReading]] = field(default_factory=dict)

    def add_report(self, report: Report) -> None:
        """Take in a report; the same one twice changes nothing."""
        self.now = report.generated
        self.gpus = {gpu.uuid: gpu for gpu in report.gpus}
        seen = set()
        for run in report.runs:
            for rank in run.ranks:
                key = (run.key, rank.name)
                seen.add(key)
                readings = self._readings.setdefault(key, deque())
                if not readings or readings[-1].at < report.generated:
                    readings.append(_reading(rank, report.generated))
                while readings[0].at < report.generated - KEPT:
                    readings.popleft()
        for key in self._readings.keys() - seen:
            del self._readings[key]

    def speed(self, key: Key) -> float | None:
        """Steps per second over the last five seconds; None before two readings are that far apart."""
        readings = self._readings.get(key)
        if not readings or len(readings) < 2:
            return None
        last = readings[-1]
        first = next((r for r in reversed(readings) if r.at <= last.at - NOW), None)
        if first is None:
            return None
        return max(0, last.steps - first.steps) / (last.at - first.at)

    def speeds(self, key: Key, cells: int) -> list[float | None]:
        """Steps per second in each of ``cells`` equal parts of the last minute, None where nothing was seen."""
        readings = self._readings.get(key)
        if not readings or cells < 1:
            return [None] * max(0, cells)
        end, part = readings[-1].at, MINUTE / cells
        edges = [_steps_at(readings, end - MINUTE + part * i) for i in range(cells + 1)]
        return [None if a is None or b is None else max(0.0, b - a) / part for a, b in pairwise(edges)]

    def timeline(self, key: Key, cells: int) -> list[str]:
        """What each of ``cells`` equal parts of the last minute was mostly made of, as ``account`` has it; over all of
        them each entry has as many as its share. Empty before there are two readings."""
        readings = self._readings.get(key)
        if not readings or len(readings) < 2:
            return []
        end, begin = readings[-1].at, max(readings[0].at, readings[-1].at - MINUTE)
        edges = [_account_at(readings, begin + (end - begin) / cells * i) for i in range(cells + 1)]
        owed: dict[str, float] = {}
        made = []
        for before, after in pairwise(edges):
            grown = _grown(before, after)
            whole = sum(grown.values()) or 1.0
            for name, value in grown.items():
                owed[name] = owed.get(name, 0.0) + value / whole
            due = max(owed, key=lambda one: owed[one], default="")
            name = due if owed.get(due, 0.0) >= WHOLE else max(grown, key=lambda one: grown[one], default="")
            owed[name] = owed.get(name, 0.0) - 1.0
            made.append(name)
        return made

    def minute(self, key: Key, phases: frozenset[str]) -> Minute | None:
        """What the last minute was made of; None before there are two readings. ``phases``: names of the phases."""
        readings = self._readings.get(key)
        if not readings or len(readings) < 2:
            return None
        last = readings[-1]
        first = next((r for r in readings if r.at >= last.at - MINUTE), readings[0])
        account = _grown(first.account, last.account)
        total = sum(account.values())
        if total <= 0:
            return None
        states = _grown(first.states, last.states)
        whole = sum(states.values()) or 1.0
        shares = {name: value / total for name, value in account.items()}
        return Minute(
            last.at - first.at,
            shares.get("", 0.0),
            {name: share for name, share in shares.items() if name in phases},
            {name: share for name, share in shares.items() if name and name not in phases},
            {name: value / whole for name, value in states.items()},
        )


def _reading(rank: Rank, at: float) -> RankReading:
    phases = {name: seconds for name, seconds in rank.counters.phase_seconds.items() if name != "train"}
    return RankReading(at, rank.steps.count, {"": rank.productive_seconds, **phases, **rank.lost}, dict(rank.ledger))


def _grown(first: dict[str, float], last: dict[str, float]) -> dict[str, float]:
    """What became more. Later evidence may move seconds from one entry to another: what became less counts nothing."""
    grown = {name: value - first.get(name, 0.0) for name, value in last.items()}
    return {name: value for name, value in grown.items() if value > 1e-6}


def _steps_at(readings: deque[RankReading], at: float) -> float | None:
    """Steps at a moment, between two readings in proportion; None before the first one."""
    before, after, part = _around(readings, at)
    return None if before is None else before.steps + (after.steps - before.steps) * part


def _account_at(readings: deque[RankReading], at: float) -> dict[str, float]:
    """The account at a moment, likewise; nothing before the first reading."""
    before, after, part = _around(readings, at)
    if before is None:
        return {}
    earlier = before.account
    return {name: earlier.get(name, 0.0) * (1 - part) + value * part for name, value in after.account.items()}


def _around(readings: deque[RankReading], at: float) -> tuple[RankReading | None, RankReading, float]:
    """The readings before and after a moment, and the part of the time between them that has passed; the last one
    twice behind it."""
    before = next((r for r in reversed(readings) if r.at <= at + 1e-6), None)
    after = next((r for r in readings if r.at > at + 1e-6), readings[-1])
    passed = 0.0 if before is None or before is after else (at - before.at) / (after.at - before.at)
    return before, after, passed
