"""Which runs have series of their own: a bounded number, for a user and in all; the rest are ``other``.

A run keeps its series while it lasts and for ``linger_seconds`` after its end. Names are given in the order of the
starts, a place that becomes free goes to the run that has waited longest, and an ended run leaves early when a
living one needs the place.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import count

from trainprobe.model.dataclass import dataclass
from trainprobe.model.report import Run
from trainprobe_exporters.labels import label_value

OTHER = "other"
MAX_RUNS = 64
MAX_RUNS_PER_USER = 16


@dataclass
class NamedRun:
    label: str
    run: Run
    ended: float | None  # UNIX seconds


class RunSlots:
    """The bounded places for runs that have series of their own, and which run has each."""

    def __init__(self, linger_seconds: float) -> None:
        self.linger_seconds = linger_seconds
        self._places: dict[str, NamedRun] = {}

    def __iter__(self) -> Iterator[NamedRun]:
        return iter(self._places.values())

    def get(self, run: str) -> NamedRun | None:
        return self._places.get(run)

    def assign(self, runs: Iterable[Run], at: float) -> None:
        """Take the runs of a report made ``at`` that time (UNIX seconds)."""
        current = {run.key: run for run in runs if not self.is_over(run.ended, at)}
        for key, place in list(self._places.items()):
            run = current.get(key)
            if run is not None:
                place.run, place.ended = run, run.ended
            elif place.ended is None:
                place.ended = at  # it vanished: the daemon has ended or lost it
            if self.is_over(place.ended, at):
                del self._places[key]
        waiting = [run for key, run in current.items() if key not in self._places]
        for run in sorted(waiting, key=lambda run: (run.ended is not None, run.started, run.key)):
            self._seat(run)

    def is_over(self, ended: float | None, at: float) -> bool:
        """Whether the series of a run that ended then have left."""
        return ended is not None and at - ended > self.linger_seconds

    def _seat(self, run: Run) -> None:
        label = label_value(run.run)
        same = [place for place in self if label_value(place.run.run) == label]
        own = next((place for place in same if place.run.user == run.user), None)
        if label in ("", OTHER) or (own is not None and latest([own.run, run]) != [run]):
            return
        if own is not None:
            label = own.label
            del self._places[own.run.key]
        elif same:  # another user's: names end in 32 bits, for which anybody can search
            taken = {place.label for place in self}
            label = next(other for number in count(2) if (other := f"{label}~{number}") not in taken)
        mine = [place for place in self if place.run.user == run.user]
        crowded = mine if len(mine) >= MAX_RUNS_PER_USER else list(self) if len(self._places) >= MAX_RUNS else None
        if crowded is not None:
            ended = [place for place in crowded if place.ended is not None]
            if not ended or run.ended is not None:
                return
            first = min(ended, key=lambda place: place.ended or 0)
            del self._places[first.run.key]
        self._places[run.key] = NamedRun(label, run, run.ended)


def latest(runs: Iterable[Run]) -> list[Run]:
    """The runs without those of which a later attempt is there: series of one name are told once."""
    of_name = {(run.run, run.user): run for run in sorted(runs, key=lambda run: run.attempt)}
    return list(of_name.values())
