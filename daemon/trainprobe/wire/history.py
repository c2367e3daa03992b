"""The published history: what the daemon leaves for the exporter, the group trainprobe and the runs' owners.

Below ``published/`` of the state directory (/var/lib/trainprobe), all of it 0640 root:trainprobe:

    steps/<run>/<rank>_<tier>_<number>.jsonl   rows of one rank and tier, in time order
    stalls/<number>.jsonl                      stalls of all runs, in the order in which they were told
    runs/<run>.json                            the run as a report of its own; final once it has ended

A ``.jsonl`` is a segment: a header line, then one line each. Lines are only ever appended, a full segment is never
touched again until it is deleted as a whole; ``number`` grows. A reader takes whole lines and leaves a last one that
was cut short. A stall that is told again (it lasted on, or a neighbour joined it) has the same id: the last one counts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any

from trainprobe.model.dataclass import dataclass
from trainprobe.model.report import Stall
from trainprobe.model.steprow import TIERS, StepRow
from trainprobe.wire import codec
from trainprobe.wire.codec import WireError

VERSION = 1
STEPS, STALLS, RUNS = "steps", "stalls", "runs"
SUFFIX = ".jsonl"
SEGMENT_LIMIT = 1 << 18  # bytes: the daemon begins another one then
_RUN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_RANK = re.compile(r"\d{1,9}(\.\d{1,6})?")
_NAME = re.compile(r"([\d.]+)_([a-z0-9]+)_(\d{1,12})\.jsonl")
_NUMBER = re.compile(r"(\d{1,12})\.jsonl")
_TIERS = {tier.name for tier in TIERS}
_FIELDS = ("start", "seconds", "count", "min", "max", "states")
_LEAST = 5e-7  # seconds that are not told as 0


@dataclass(frozen=True, slots=True)
class RankStall:
    run: str
    rank: str
    stall: Stall


@dataclass(frozen=True, slots=True)
class SegmentName:
    """What a step segment's file name says."""

    rank: str
    tier: str
    number: int

    def __str__(self) -> str:
        return f"{self.rank}_{self.tier}_{self.number}{SUFFIX}"


def fit_run(run: str) -> bool:
    """Whether the name of a run may be a part of a path."""
    return _RUN.fullmatch(run) is not None


def fit_rank(rank: str) -> bool:
    """Whether the name of a rank may be a part of a path."""
    return _RANK.fullmatch(rank) is not None


def segment_name(name: str) -> SegmentName | None:
    """The parts of a step segment's file name; None: it is something else."""
    found = _NAME.fullmatch(name)
    if found is None or not fit_rank(found[1]) or found[2] not in _TIERS:
        return None
    return SegmentName(found[1], found[2], int(found[3]))


def segment_number(name: str) -> int | None:
    """The number of a stall segment; None: it is something else."""
    found = _NUMBER.fullmatch(name)
    return int(found[1]) if found else None


def header(kind: str) -> str:
    """The first line of a segment of ``kind`` (STEPS or STALLS)."""
    return codec.dumps({"trainprobe_history": VERSION, "kind": kind}) + "\n"


def step_line(row: StepRow) -> str:
    """[start, seconds, count, min, max, {state: seconds}]"""
    # By hand: this is made of each step of each rank, and names of states need no escapes.
    states = ",".join([f'"{state}":{seconds:.6f}' for state, seconds in row.states.items() if seconds >= _LEAST])
    return f"[{row.start:.6f},{row.seconds:.6f},{row.count},{row.min:.6f},{row.max:.6f},{{{states}}}]\n"


def stall_line(told: RankStall) -> str:
    """{"run": …, "rank": …, "stall": {…as in the report}}"""
    return codec.dumps(told) + "\n"


def read_steps(lines: Iterable[bytes], since: float = 0.0) -> Iterator[StepRow]:
    """The rows of a step segment, header first, that end at ``since`` or later; lines that are none are left out.

    Raises WireError: no such segment.
    """
    for line in _body(lines, STEPS):
        try:
            start, seconds, _ = line[1:].split(b",", 2)  # most rows of a long segment are too old: do not decode these
            if float(start) + float(seconds) < since:
                continue
            yield _row(codec.loads(line))
        except ValueError:
            continue


def read_tiers(
    names: Iterable[str], rank: str, lines_of: Callable[[SegmentName], Iterable[bytes]], since: float = 0.0
) -> list[list[StepRow]]:
    """The rows of a rank that end at ``since`` or later, by tier, in time order. ``names``: of the files of its run;
    ``lines_of``: what is in one. A row that was unfinished when a daemon ended is told again: the last one counts."""
    known = (segment_name(name) for name in names)
    segments = sorted((one for one in known if one is not None and one.rank == rank), key=lambda one: one.number)
    tiers = []
    for tier in TIERS:
        latest: dict[float, StepRow] = {}
        for segment in segments:
            if segment.tier == tier.name:
                with suppress(WireError):
                    latest.update((row.start, row) for row in read_steps(lines_of(segment), since))
        tiers.append([latest[start] for start in sorted(latest)])
    return tiers


def read_stalls(lines: Iterable[bytes]) -> Iterator[RankStall]:
    """The stalls of a segment, header first; lines that are none are left out. Raises WireError: no such segment."""
    for line in _body(lines, STALLS):
        try:
            yield codec.decode(RankStall, codec.loads(line))
        except WireError:
            continue


def _row(value: Any) -> StepRow:
    if not isinstance(value, list) or len(value) < len(_FIELDS):
        raise WireError("no row")
    row: StepRow = codec.decode(StepRow, dict(zip(_FIELDS, value)))
    return row


def _body(lines: Iterable[bytes], kind: str) -> Iterator[bytes]:
    whole = (line for line in lines if line.endswith(b"\n"))
    first = codec.loads(next(whole, b"null"))
    if not isinstance(first, dict) or first.get("trainprobe_history") != VERSION or first.get("kind") != kind:
        raise WireError(f"no segment of {kind} of version {VERSION}")
    return whole
