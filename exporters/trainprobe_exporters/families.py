"""Reports -> metric families: folds what outlives one report, and renders the families of a scrape.

``SeriesTable.fold`` takes each new report once. ``SeriesTable.families`` is called at each scrape and changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import field
from itertools import islice, zip_longest

from trainprobe.model.dataclass import dataclass
from trainprobe.model.report import Report, Run, has_ended
from trainprobe_exporters.accounts import Others, RankAccount
from trainprobe_exporters.budget import within_budget
from trainprobe_exporters.catalogue import BY_NAME, METRICS, PREFIX, EndPolicy, Metric
from trainprobe_exporters.host_readings import host_readings
from trainprobe_exporters.labels import label_value
from trainprobe_exporters.naming import OTHER, NamedRun, RunSlots, latest
from trainprobe_exporters.readings import Reading, Value, job_readings, rank_readings, run_readings, scalar

MAX_RANKS_PER_RUN = 64
MAX_RANKS = 256
MAX_VANISHED = 256  # ranks whose accounts are kept in case they come back: a report too large leaves some out
RUN_LINGER_SECONDS = 300.0
AGE = BY_NAME[PREFIX + "report_timestamp_seconds"]

_Series = tuple[str, str, str, tuple[str, ...]]  # run, rank, metric, further labels


@dataclass
class Family:
    """One metric with its samples: label values in the order of the metric's labels, and the value."""

    metric: Metric
    samples: list[tuple[tuple[str, ...], Value]] = field(default_factory=list)


@dataclass
class _RankSeries:
    run: str
    label: str
    readings: list[Reading]
    ended: bool


@dataclass
class _JobSeries:
    """Counters of a job outlive its attempts, which have one name."""

    account: RankAccount
    readings: list[Reading]


class SeriesTable:
    """All series of the exporter: what it has counted for each run and rank, over all reports so far."""

    def __init__(self, *, linger_seconds: float = RUN_LINGER_SECONDS) -> None:
        self.slots = RunSlots(linger_seconds)
        self._accounts: dict[tuple[str, str], RankAccount] = {}
        self._ranks: dict[tuple[str, str], _RankSeries] = {}
        self._jobs: dict[str, _JobSeries] = {}  # by label
        self._others = Others()
        self._left_out: set[_Series] = set()
        self._dropped = 0
        self._host: list[Reading] = []
        self._generated = 0.0
        self._private_labels = False

    def fold(self, report: Report) -> None:
        self._generated, self._private_labels = report.generated, report.private_labels
        self._host = list(host_readings(report))
        runs = {run.key: run for run in latest(report.runs) if not self.slots.is_over(run.ended, report.generated)}
        self.slots.assign(runs.values(), report.generated)
        in_places = {place.run.key for place in self.slots}
        self._ranks = {key: series for key, series in self._ranks.items() if key[0] in in_places and key[0] not in runs}
        self._jobs = {place.label: self._job(place) for place in self.slots}
        accounts: dict[tuple[str, str], RankAccount] = {}
        left_out: set[_Series] = set()
        seats = self._seats(runs.values())
        for run in runs.values():
            left_out |= self._add_run(run, seats, accounts)
        vanished = [
            key
            for key, account in self._accounts.items()
            if key not in accounts and not self.slots.is_over(account.ended, report.generated)
        ]
        self._accounts = {key: self._accounts[key] for key in vanished[-MAX_VANISHED:]} | accounts
        self._dropped += len(left_out - self._left_out)
        self._left_out = left_out

    def families(self, now: float, *, fresh: bool, own: Iterable[Reading] = ()) -> list[Family]:
        """What is told ``now`` (UNIX seconds), in the order of the catalogue.

        ``fresh``: the report is of now. If it is not, sizes and flags leave but for its age: nobody knows them.
        ``own``: the exporter's own readings.
        """
        families = {metric.name: Family(metric) for metric in METRICS}
        places = [place for place in self.slots if not self._has_left(place, now, fresh)]
        for place in places:
            for labels, reading in self._of_run(place, fresh):
                families[reading.metric.name].samples.append((labels, reading.value))
        if fresh or not self.slots.is_over(self._generated, now):
            for reading in self._others.readings():
                families[reading.metric.name].samples.append(((OTHER, OTHER, *reading.labels), reading.value))
        dropped = scalar(BY_NAME[PREFIX + "series_dropped_total"], (), self._dropped)
        host = self._host if fresh else [one for one in self._host if one.metric.type != "gauge" or one.metric == AGE]
        for reading in (*host, *dropped, *own):
            families[reading.metric.name].samples.append((reading.labels, reading.value))
        return [family for family in families.values() if family.samples]

    def _seats(self, runs: Iterable[Run]) -> set[tuple[str, int]]:
        """(run, place) of the ranks that have series of their own: of each user one after the other, until there are
        MAX_RANKS."""
        waiting: dict[str, list[tuple[str, int]]] = {}
        for run in runs:
            if self.slots.get(run.key) is not None:
                seats = [(run.key, place) for place in range(min(len(run.ranks), MAX_RANKS_PER_RUN))]
                waiting.setdefault(run.user, []).extend(seats)
        in_turn = (seat for each in zip_longest(*waiting.values()) for seat in each if seat is not None)
        return set(islice(in_turn, max(0, MAX_RANKS - len(self._ranks))))

    def _add_run(
        self, run: Run, seats: set[tuple[str, int]], accounts: dict[tuple[str, str], RankAccount]
    ) -> set[_Series]:
        """Take a run's ranks: into series of their own, or their growth into ``other``. Returns what was left out."""
        place = self.slots.get(run.key)
        left_out: set[_Series] = set()
        for index, rank in enumerate(run.ranks):
            label = label_value(rank.name)
            key = (run.key, label)
            if key in accounts:
                continue  # two ranks of one name: the first one has it
            account = accounts[key] = self._accounts.get(key) or RankAccount()
            account.ended = run.ended
            readings, growth = account.add_readings(rank_readings(run, rank, private_labels=self._private_labels))
            if place is None or (run.key, index) not in seats:
                self._others.add(growth)
                continue
            kept, out = within_budget(readings)
            ended = run.ended is not None or has_ended(rank)
            self._ranks[key] = _RankSeries(place.label, label, kept, ended)
            left_out.update((*key, r.metric.name, r.labels) for r in out)
        return left_out

    def _job(self, place: NamedRun) -> _JobSeries:
        known = self._jobs.get(place.label)
        account = known.account if known is not None else RankAccount()
        begun = place.ended is not None or any(rank.steps.count for rank in place.run.ranks)
        return _JobSeries(account, account.add_readings(job_readings(place.run.goodput, begun=begun))[0])

    def _of_run(self, place: NamedRun, fresh: bool) -> Iterator[tuple[tuple[str, ...], Reading]]:
        over = place.ended is not None
        for (run, _), series in self._ranks.items():
            if run == place.run.key:
                for reading in _alive(series.readings, ended=over or series.ended, fresh=fresh):
                    yield (series.run, series.label, *reading.labels), reading
        of_job = self._jobs[place.label].readings if place.label in self._jobs else []
        for reading in _alive((*run_readings(place.run), *of_job), ended=over, fresh=fresh):
            yield (place.label, *reading.labels), reading

    def _has_left(self, place: NamedRun, now: float, fresh: bool) -> bool:
        ended = place.ended if place.ended is not None else None if fresh else self._generated
        return self.slots.is_over(ended, now)


def _alive(readings: Iterable[Reading], *, ended: bool, fresh: bool) -> Iterator[Reading]:
    """What is left of readings once their process has ended, or once nobody reports on it."""
    for reading in readings:
        at_end = reading.metric.at_end
        if at_end is EndPolicy.STAYS:
            yield reading
        elif ended and at_end is EndPolicy.ZERO:
            yield reading._replace(value=0)
        elif fresh and not ended:
            yield reading
