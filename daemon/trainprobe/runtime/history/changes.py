"""What of the latest report is not in the history yet: rows for the database, lines for the published segments.

Runs in the history's own thread; pure but for what it remembers.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any

from trainprobe.derive.steps.tiers import TierRows
from trainprobe.model.dataclass import dataclass
from trainprobe.model.moment import NS
from trainprobe.model.report import Rank, Report, Run, has_ended
from trainprobe.model.settled import whole
from trainprobe.model.steprow import TIERS, RankSteps, StepRow, Tier
from trainprobe.store.records import Batch, Listed, RankKey, RankRow, RunRow, StallRow, StepsRow
from trainprobe.wire import codec
from trainprobe.wire import history as wire

FLUSH_NS = 10 * NS  # figures that grow all the time; what happens is written at once
RUN_NS = 60 * NS  # a live run's published file
LINES_WAITING = 2048  # texts for segments that may wait for a disk
GONE_WAITING, BARE = 16_384, 64
"""Entries (stalls and the like, some 5 kB each) of runs that are over and wait for a disk; a run itself counts as so
many: 256 runs at most."""
MOST_KNOWN = 400  # stalls of a rank that are remembered
FINEST, *COARSER = TIERS


@dataclass(slots=True)
class Changed:
    batch: Batch = field(default_factory=Batch)
    lines: list[tuple[str, str, str]] = field(default_factory=list)  # stem, kind, text
    runs: dict[str, Report] = field(default_factory=dict)  # whose published file is to be made anew
    live: frozenset[str] = frozenset()  # runs that go on, which are few

    def then(self, later: Changed) -> None:
        """Take later changes in, where these could not be written; what waits is bounded."""
        self.batch.then(later.batch)
        self.lines = (self.lines + later.lines)[-LINES_WAITING:]
        self.runs |= later.runs
        self.live = later.live or self.live

    def give_up(self) -> bool:
        """Of runs that are over and too many to wait, the oldest of whoever has most; whether there were any."""
        told = [run for report in sorted(self.runs.values(), key=lambda one: one.generated) for run in report.runs]
        gone = [run for run in told if run.ended is not None or run.key not in self.live]
        shares = Counter[str]()
        for run in gone:
            shares[run.user] += _weight(run)
        given_up = set()
        while shares.total() > GONE_WAITING:
            ((most, _),) = shares.most_common(1)
            oldest = next(run for run in gone if run.user == most)
            gone.remove(oldest)
            shares[most] -= _weight(oldest)
            given_up.add(oldest.key)
        self.batch.give_up(given_up)
        self.runs = {name: report for name, report in self.runs.items() if name not in given_up}
        return bool(given_up)


@dataclass(slots=True)
class _Rank:
    """What is known to be written of a rank."""

    flushed_ns: int = -FLUSH_NS
    signature: tuple[Any, ...] = ()
    stalls: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    told: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    open: tuple[str, ...] = ()
    lists: dict[str, list[Any]] = field(default_factory=dict)
    tiers: TierRows = field(default_factory=TierRows)


class Changes:
    """Remembers what has been asked for. ``uid_of``: a user's number by the name that reports give."""

    def __init__(self, uid_of: Callable[[str], int | None]) -> None:
        self.uid_of = uid_of
        self._ranks: dict[RankKey, _Rank] = {}
        self._ended: set[str] = set()
        self._published_ns: dict[str, int] = {}

    def of(
        self,
        report: Report,
        steps: Sequence[RankSteps],
        kept: Mapping[RankKey, str],
        now_ns: int,
        *,
        everything: bool = False,
    ) -> Changed:
        """The changes up to this report. ``everything``: also figures that are not due yet (the daemon ends)."""
        changed = Changed(live=frozenset(run.key for run in report.runs if run.ended is None))
        self._forget(report)
        for told in steps:
            self._pass(told, changed)
        for run in report.runs:
            if run.key in self._ended or not wire.fit_run(run.key):
                continue
            self._run(whole(run), report, kept, now_ns, everything, changed)
        return changed

    def go_on(self, run: str, rank: str, tier: int, row: StepRow) -> None:
        """An earlier process began this row and did not finish it."""
        self._rank(run, rank).tiers.go_on(tier, row)

    def _forget(self, report: Report) -> None:
        names = {run.key for run in report.runs}
        self._ranks = {key: rank for key, rank in self._ranks.items() if key[0] in names}
        self._ended &= names
        self._published_ns = {run: at for run, at in self._published_ns.items() if run in names}

    def _rank(self, run: str, rank: str) -> _Rank:
        return self._ranks.setdefault((run, rank), _Rank())

    # Steps

    def _pass(self, told: RankSteps, changed: Changed) -> None:
        if not (wire.fit_run(told.run) and wire.fit_rank(told.rank)):
            return
        rank = self._rank(told.run, told.rank)
        for tier, rows in zip(TIERS, rank.tiers.add(told.rows)):
            if rows:
                text = "".join(map(wire.step_line, rows))
                changed.lines.append((_stem(told.run, told.rank, tier), wire.STEPS, text))
                if tier is not FINEST:
                    changed.batch.add_steps(_steps_row(told.run, told.rank, tier.name, row) for row in rows)

    def _flush_steps(self, run: str, name: str, rank: _Rank, changed: Changed, *, last: bool) -> None:
        for tier, row in zip(COARSER, rank.tiers.open()[1:]):
            if row is not None:
                changed.batch.add_steps([_steps_row(run, name, tier.name, row)])
                if last:  # should another process go on with the row, it is told again and counts instead
                    changed.lines.append((_stem(run, name, tier), wire.STEPS, wire.step_line(row)))

    # Runs and ranks

    def _run(
        self, run: Run, report: Report, kept: Mapping[RankKey, str], now_ns: int, everything: bool, changed: Changed
    ) -> None:
        batch, ended = changed.batch, run.ended is not None
        flushed = False
        for rank in run.ranks:
            if wire.fit_rank(rank.name):
                flushed |= self._rank_changes(run, rank, kept, now_ns, everything or ended, changed)
        new = run.key not in self._published_ns
        if flushed or ended or new:
            body = codec.dumps(dataclasses.replace(run, ranks=[]))
            batch.runs[run.key] = RunRow(run.key, self.uid_of(run.user), run.started, run.ended, report.generated, body)
        if ended or everything or new or now_ns - self._published_ns[run.key] >= RUN_NS:
            self._published_ns[run.key] = now_ns
            changed.runs[run.key] = Report(generated=report.generated, host=report.host, cost=report.cost, runs=[run])
        if ended:
            self._ended.add(run.key)

    def _rank_changes(
        self, run: Run, rank: Rank, kept: Mapping[RankKey, str], now_ns: int, everything: bool, changed: Changed
    ) -> bool:
        """Whether the rank's own row was due."""
        known, batch = self._rank(run.key, rank.name), changed.batch
        happened = self._stalls(run.key, rank, known, changed)
        signature = (len(rank.warnings), len(rank.checkpoints), has_ended(rank), rank.totals.checkpoints)
        due = now_ns - known.flushed_ns >= FLUSH_NS
        if not (due or happened or everything or known.open or signature != known.signature):
            return False
        key = (run.key, rank.name)
        bare = dataclasses.replace(rank, stalls=[], bottlenecks=[], warnings=[], checkpoints=[])
        batch.ranks[key] = RankRow(run.key, rank.name, codec.dumps(bare), kept.get(key))
        if due or everything or signature != known.signature:
            self._lists(run.key, rank, known, batch)
        if due or everything:
            self._flush_steps(run.key, rank.name, known, changed, last=everything)
            known.flushed_ns = now_ns
        known.signature = signature
        return True

    def _stalls(self, run: str, rank: Rank, known: _Rank, changed: Changed) -> bool:
        """Whether one began, ended, or is told otherwise."""
        happened = False
        for stall in reversed(rank.stalls):
            state = (stall.end, round(stall.seconds, 3), stall.cause, stall.steps)
            if known.stalls.get(stall.id) == state:
                if stall.end is not None:
                    break  # neither this one nor what is older can have changed
                continue
            known.stalls[stall.id] = state
            changed.batch.stalls[stall.id] = StallRow(
                stall.id, run, rank.name, stall.start, stall.end, stall.seconds, stall.cause, codec.dumps(stall)
            )
            told = (stall.end, stall.cause, stall.steps)
            if known.told.get(stall.id) != told:
                known.told[stall.id] = told
                happened = True
                line = wire.stall_line(wire.RankStall(run, rank.name, stall))
                changed.lines.append((f"{wire.STALLS}/", wire.STALLS, line))
        still = tuple(stall.id for stall in rank.stalls if stall.end is None)
        if still != known.open:
            known.open = still
            changed.batch.open_stalls[run, rank.name] = still
            happened = True
        if len(known.stalls) > MOST_KNOWN:
            listed = {stall.id for stall in rank.stalls}
            known.stalls = {id_: state for id_, state in known.stalls.items() if id_ in listed}
            known.told = {id_: state for id_, state in known.told.items() if id_ in listed}
        return happened

    def _lists(self, run: str, rank: Rank, known: _Rank, batch: Batch) -> None:
        for name, entries, listed in (
            ("bottlenecks", rank.bottlenecks, lambda one: Listed(one.cause, None, codec.dumps(one))),
            ("warnings", rank.warnings, lambda one: Listed(one.cause, one.time, codec.dumps(one))),
            ("checkpoints", rank.checkpoints, lambda one: Listed(one.outcome, one.start, codec.dumps(one))),
        ):
            if known.lists.get(name, []) != entries:
                known.lists[name] = list(entries)
                batch.lists[name, run, rank.name] = tuple(map(listed, entries))


def _weight(run: Run) -> int:
    return BARE + sum(len(rank.stalls) + len(rank.checkpoints) + len(rank.warnings) for rank in run.ranks)


def _stem(run: str, rank: str, tier: Tier) -> str:
    return f"{wire.STEPS}/{run}/{rank}_{tier.name}_"


def _steps_row(run: str, rank: str, tier: str, row: StepRow) -> StepsRow:
    return StepsRow(
        run, rank, tier, row.start, row.seconds, row.count, row.min, row.max, codec.dumps(row.states)
    )  # fmt: skip
