"""What is written at once, and what is read back. Times are UNIX seconds, ``body`` and the like are others' JSON.

The fields of ``RunRow``, ``RankRow``, ``StallRow`` and ``StepsRow`` are their tables' columns.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import field
from itertools import islice
from typing import TypeVar

from trainprobe.model.dataclass import dataclass

RankKey = tuple[str, str]  # run, name of the rank
Key = TypeVar("Key")
Row = TypeVar("Row")
WAITING = 4096  # stalls, and rows of steps, that may wait for a disk
LISTS = ("bottlenecks", "warnings", "checkpoints")


@dataclass(frozen=True, slots=True)
class RunRow:
    run: str
    uid: int | None
    started: float
    ended: float | None
    told: float  # when it was last heard of
    body: str


@dataclass(frozen=True, slots=True)
class RankRow:
    run: str
    rank: str
    body: str
    kept: str | None  # what a later process needs to go on with it


@dataclass(frozen=True, slots=True)
class StallRow:
    id: str
    run: str
    rank: str
    start: float
    end: float | None
    seconds: float
    cause: str
    body: str


@dataclass(frozen=True, slots=True)
class Listed:
    cause: str
    time: float | None
    body: str


@dataclass(frozen=True, slots=True)
class StepsRow:
    run: str
    rank: str
    tier: str
    start: float
    seconds: float
    count: int
    min: float
    max: float
    states: str


@dataclass(slots=True)
class Batch:
    """Changes that belong together: all of them are kept, or none. Later ones of the same key replace earlier ones."""

    runs: dict[str, RunRow] = field(default_factory=dict)
    ranks: dict[RankKey, RankRow] = field(default_factory=dict)
    stalls: dict[str, StallRow] = field(default_factory=dict)
    open_stalls: dict[RankKey, tuple[str, ...]] = field(default_factory=dict)  # those that are: others are no stalls
    lists: dict[tuple[str, str, str], tuple[Listed, ...]] = field(default_factory=dict)  # name of the list, run, rank
    steps: dict[tuple[str, str, str, float], StepsRow] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return any((self.runs, self.ranks, self.stalls, self.open_stalls, self.lists, self.steps))

    def add_steps(self, rows: Iterable[StepsRow]) -> None:
        for row in rows:
            self.steps[row.run, row.rank, row.tier, row.start] = row

    def then(self, later: Batch) -> None:
        """Take a later batch in, where this one could not be written. What waits is bounded: the oldest is given up."""
        self.runs |= later.runs
        self.ranks |= later.ranks
        self.stalls = _latest(self.stalls | later.stalls, WAITING)
        self.open_stalls |= later.open_stalls
        self.lists |= later.lists
        self.steps = _latest(self.steps | later.steps, WAITING)

    def give_up(self, runs: Collection[str]) -> None:
        """Nothing of these is to be written."""
        for name in ("runs", "ranks", "stalls", "steps"):
            setattr(self, name, {key: row for key, row in getattr(self, name).items() if row.run not in runs})
        self.open_stalls = {key: ids for key, ids in self.open_stalls.items() if key[0] not in runs}
        self.lists = {key: entries for key, entries in self.lists.items() if key[1] not in runs}


def _latest(rows: dict[Key, Row], most: int) -> dict[Key, Row]:
    return dict(islice(rows.items(), len(rows) - most, None)) if len(rows) > most else rows


@dataclass(frozen=True, slots=True)
class RankFound:
    """A rank as it was kept, with the latest entries of its lists."""

    rank: str
    body: str
    kept: str | None
    stalls: tuple[str, ...]
    lists: dict[str, tuple[str, ...]]
