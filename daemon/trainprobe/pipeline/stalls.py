"""The book of a rank's stalls: opened, extended by their neighbours, closed, and what recurs."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from itertools import pairwise
from typing import Any

from trainprobe.causes.order import Judgement
from trainprobe.derive.average import median
from trainprobe.derive.memo import Memo
from trainprobe.derive.steps.black_box import BlackBoxRing, BlackBoxSecond
from trainprobe.derive.steps.late_step import STACKS
from trainprobe.derive.trend.period import recurrence
from trainprobe.model.cause import Cause
from trainprobe.model.dataclass import dataclass
from trainprobe.model.message import Message
from trainprobe.model.moment import NS
from trainprobe.model.report import STALL_BUCKETS, Evidence

KEEP = 200
FROZEN = 4
"""Stalls that keep their black box: the latest."""
LEAST_NS = NS // 1000  # of a stall that is listed


@dataclass(slots=True)
class StallEntry:
    """One stall. ns on CLOCK_MONOTONIC."""

    start_ns: int
    end_ns: int | None
    ns: float
    cause: Cause
    shares: dict[Cause, float]
    first_step: int
    last_step: int
    steps: int
    summary: Message | None = None
    chain: list[Message] = field(default_factory=list)
    evidence: list[Evidence] = field(default_factory=list)
    stack: tuple[str, ...] = ()
    stacks: list[tuple[str, ...]] = field(default_factory=list)  # all that were taken in it
    main_ns: float = 0.0  # of the claim that the summary tells
    told_ns: int = 0  # the start that its id was made of while it was open
    kept_id: str = ""  # that an earlier process of ours gave it
    followed: bool = False  # to the rank that was waited for
    given_ns: float = 0.0  # of it the GPUs worked on: not lost, and no longer in `ns`
    shown: Any = field(default=None, compare=False, repr=False)  # in reports, until it changes (`StallBook.changed`)

    @classmethod
    def of(
        cls, judgement: Judgement, start_ns: int, end_ns: int | None, step: int, stacks: Sequence[tuple[str, ...]]
    ) -> StallEntry:
        """One step that stalled; the judgement has a main claim."""
        main = judgement.main
        assert main is not None
        return cls(
            start_ns,
            end_ns,
            judgement.stall_ns,
            max(judgement.shares, key=lambda cause: judgement.shares[cause]),
            dict(judgement.shares),
            step,
            step,
            1,
            main.summary,
            list(main.chain),
            list(main.evidence),
            stacks[-1] if stacks else (),
            list(stacks),
            main.ns,
        )

    @property
    def given_back(self) -> bool:
        """Whether the GPUs worked on through all of it: nothing was lost."""
        return self.given_ns > 0 and self.ns < LEAST_NS

    @property
    def id_ns(self) -> int:
        """The instant that its id is made of, from its opening on."""
        return self.told_ns or self.start_ns


@dataclass(slots=True)
class Durations:
    """How long stalls were: counts by STALL_BUCKETS, the last one beyond them, and their sum in seconds."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(STALL_BUCKETS) + 1))
    seconds: float = 0.0

    def add(self, ns: float) -> None:
        self.counts[bisect_left(STALL_BUCKETS, ns / NS)] += 1
        self.seconds += ns / NS


@dataclass(frozen=True, slots=True)
class StallFigures:
    entries: Sequence[StallEntry]  # closed ones, the latest
    listed: Sequence[StallEntry]  # the open one too
    open: StallEntry | None
    opened: StallEntry | None  # the open one, where it does not go on with the last entry
    ns: Mapping[Cause, float]  # lost in closed ones
    counts: Mapping[Cause, int]
    last_start: Mapping[Cause, int]
    every: Mapping[Cause, int | None]  # steps between those of a cause that recur
    period: Mapping[Cause, float]  # seconds between them, of causes that recur by steps or by the clock
    gone: Durations  # of those that have left the list
    total: int  # of which something was lost, the open one too
    memo: Memo  # what is made of the closed ones
    common: dict[Cause, Any]  # what they have in common in the latest report


@dataclass(slots=True)
class StallBook:
    """Closed stalls (the last KEEP, fewer where many ranks have many), totals over all of them, and the open one."""

    entries: list[StallEntry] = field(default_factory=list)
    open: StallEntry | None = None
    seconds: dict[Cause, float] = field(default_factory=dict)  # ns by cause, closed stalls
    counts: dict[Cause, int] = field(default_factory=dict)
    last_start: dict[Cause, int] = field(default_factory=dict)
    positions: dict[Cause, list[int]] = field(default_factory=dict)
    total: int = 0
    starts: dict[Cause, list[int]] = field(default_factory=dict)
    gone: Durations = field(default_factory=Durations)  # entries that have left the list
    joins: bool = False  # the open one goes on with the last entry
    given_back: int = 0  # entries of which nothing was lost
    resumed_id: str = ""  # of the stall that the first step goes on with
    box: BlackBoxRing = field(default_factory=BlackBoxRing)
    frozen: dict[int, tuple[BlackBoxSecond, ...]] = field(
        default_factory=dict
    )  # the box before a stall, by the stall's id_ns
    memo: Memo = field(default_factory=Memo)
    common: dict[Cause, Any] = field(default_factory=dict)

    def changed(self, entry: StallEntry) -> None:
        """A closed one is not what it was."""
        entry.shown = None
        self.memo.clear()

    def begin(self, entry: StallEntry, reach: int) -> None:
        """A stall is open, or goes on being so; ``reach``: steps back to a neighbour that it extends."""
        entry.told_ns = self.open.id_ns if self.open is not None else 0
        entry.kept_id = self.resumed_id
        self.open = entry
        last = self.entries[-1] if self.entries else None
        self.joins = last is not None and last.cause == entry.cause and entry.first_step - last.last_step <= reach

    @property
    def opened(self) -> StallEntry | None:
        """The open stall if it is one of its own and does not go on with the last entry."""
        return None if self.joins else self.open

    def listed(self) -> list[StallEntry]:
        """The stalls as they stand now, the open one last."""
        if self.open is None:
            return list(self.entries)
        if not self.joins:
            return [*self.entries, self.open]
        last, now = self.entries[-1], self.open
        shares = {cause: last.shares.get(cause, 0.0) + now.shares.get(cause, 0.0) for cause in last.shares | now.shares}
        longer = replace(last, end_ns=None, ns=last.ns + now.ns, shares=shares, steps=last.steps + 1, shown=None)
        return [*self.entries[:-1], longer]

    def close(
        self, judgement: Judgement, start_ns: int, end_ns: int, step: int, stacks: Sequence[tuple[str, ...]], reach: int
    ) -> StallEntry | None:
        """Enter a finished stalled step; ``reach``: steps back to a neighbour that it extends."""
        told_ns = self.open.id_ns if self.open is not None and not self.joins else 0
        self.open = None
        main = judgement.main
        if main is None or main.cause is None:
            return None
        cause = max(judgement.shares, key=lambda c: judgement.shares[c])
        for share, ns in judgement.shares.items():
            self.seconds[share] = self.seconds.get(share, 0.0) + ns
        last = self.entries[-1] if self.entries else None
        if last is not None and last.cause == cause and step - last.last_step <= reach:
            return self._extend(last, judgement, end_ns, step, stacks)
        entry = StallEntry.of(judgement, start_ns, end_ns, step, stacks)
        entry.told_ns = told_ns
        entry.kept_id, self.resumed_id = self.resumed_id, ""
        self.entries.append(entry)
        self.changed(entry)
        self.total += 1
        self.counts[cause] = self.counts.get(cause, 0) + 1
        self.last_start[cause] = start_ns
        places = self.positions.setdefault(cause, [])
        places.append(step)
        del places[:-64]
        begun = self.starts.setdefault(cause, [])
        begun.append(start_ns)
        del begun[:-64]
        while len(self.entries) > KEEP:
            self.forget_oldest()
        return entry

    def forget_oldest(self) -> None:
        self.gone.add(self.entries.pop(0).ns)
        self.joins = self.joins and bool(self.entries)
        self.memo.clear()

    def _extend(
        self, last: StallEntry, judgement: Judgement, end_ns: int, step: int, stacks: Sequence[tuple[str, ...]]
    ) -> StallEntry:
        self.changed(last)
        last.end_ns = end_ns
        last.ns += judgement.stall_ns
        last.last_step = step
        last.steps += 1
        last.stacks += stacks[: max(0, STACKS - len(last.stacks))]
        last.stack = last.stack or (stacks[-1] if stacks else ())
        for share, ns in judgement.shares.items():
            last.shares[share] = last.shares.get(share, 0.0) + ns
        main = judgement.main
        if main is not None and (main.ns > last.main_ns or len(main.chain) > len(last.chain)):  # or it knows more
            last.summary, last.chain, last.evidence, last.main_ns = (
                main.summary,
                list(main.chain),
                list(main.evidence),
                main.ns,
            )
        return last

    def enter_unfinished(self, entry: StallEntry, end_ns: int) -> None:
        """Enter the stall that was open when the rank ended: it is as long as the time until then."""
        self.changed(entry)
        entry.end_ns = end_ns
        whole = max(0.0, end_ns - entry.start_ns)
        factor = whole / entry.ns if entry.ns else 0.0
        entry.shares = {cause: ns * factor for cause, ns in entry.shares.items()}
        entry.ns = whole
        for cause, ns in entry.shares.items():
            self.seconds[cause] = self.seconds.get(cause, 0.0) + ns
        self.counts[entry.cause] = self.counts.get(entry.cause, 0) + 1
        self.last_start[entry.cause] = entry.start_ns
        self.total += 1
        self.entries.append(entry)

    def freeze(self, entry: StallEntry) -> None:
        self.frozen[entry.id_ns] = self.box.before(entry.start_ns)
        changed = {entry.id_ns}
        while len(self.frozen) > FROZEN:
            changed.add(oldest := next(iter(self.frozen)))
            del self.frozen[oldest]
        for one in self.entries:
            if one.id_ns in changed:
                one.shown = None

    def figures(self) -> StallFigures:
        """For the report; entries are shared with the book."""
        every, period = self.memo.get(_rhythms, self.positions, self.starts)
        return StallFigures(
            tuple(self.entries),
            tuple(self.listed()),
            self.open,
            self.opened,
            dict(self.seconds),
            dict(self.counts),
            dict(self.last_start),
            every,
            period,
            self.gone,
            self.total + (self.opened is not None) - self.given_back,
            self.memo,
            self.common,
        )


def _rhythms(
    positions: Mapping[Cause, list[int]], starts: Mapping[Cause, list[int]]
) -> tuple[dict[Cause, int | None], dict[Cause, float]]:
    """Steps and seconds between those of a cause that recur."""
    every = {cause: recurrence(steps) for cause, steps in positions.items()}
    recurring = {c: s for c, s in starts.items() if every[c] is not None or recurrence(s) is not None}
    return every, {c: median(b - a for a, b in pairwise(starts)) / NS for c, starts in recurring.items()}
