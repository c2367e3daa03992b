"""A report in a bounded number of bytes. Each user gets an equal part of them, each run an equal part of its user's."""

from __future__ import annotations

import dataclasses
from array import array
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from heapq import heappop, heappush, heapreplace
from itertools import zip_longest
from typing import Any

from trainprobe.model.report import Rank, Report, Run, Samples
from trainprobe.model.settled import is_settled
from trainprobe.wire import codec

LISTED = 200  # the contract: lists hold the latest 200 of each
RANKS_FIRST = 16  # of a run's ranks that come before the entries of other runs' lists
LATEST = ("stalls", "warnings", "checkpoints", "phases")
FIRST = ("bottlenecks", "slow_files", "logs")  # in order of weight
_LISTS = (*LATEST, *FIRST, "exits", "samples")
_APART = frozenset({*LATEST, *FIRST, "workers", "samples"})
_NO_SAMPLES = codec.dumps(Samples()).encode()
_RANK_BYTES = sum(len(f'"{name}":[],') for name in _LISTS) + len(_NO_SAMPLES)
_RUN_BYTES = len(',"ranks":[]},')


class BoundedReport:
    """A report for one or several files. A member of a run is encoded once, and only if it may fit."""

    def __init__(self, report: Report, payer: Callable[[str], str] = str, encoded: Encoded | None = None) -> None:
        """``payer``: who answers for a user, and shares one part with him; ``encoded``: by an earlier report."""
        self._report = report
        self._payer = payer
        encoded = encoded or Encoded()
        self._runs = {run.key: encoded.text(run) for run in report.runs}

    def encode(self, limit: int, runs: Collection[str] | None = None, host: Report | None = None) -> bytes:
        """The report, of ``runs`` only where they are given, in at most ``limit`` bytes of JSON. ``host``: with what
        that one says beside its runs.

        What does not fit is left out of the largest runs of the users who have most: the oldest entries of lists, then
        ranks; last the runs that ended first. ``totals`` and counters count everything.
        """
        head = _encoded(dataclasses.replace(host or self._report, runs=[]))
        if len(head) > limit:
            whole = self._report
            head = _encoded(Report(whole.version, whole.generated, whole.generated_monotonic))
        texts = [text for name, text in self._runs.items() if runs is None or name in runs]
        counts = _fill(texts, limit - len(head), self._payer)
        out = [head.removesuffix(b"]}")]
        for text, count in zip(texts, counts):
            if count:
                out += (text.text(count), b",")
        return b"".join([*(out[:-1] if out[-1] == b"," else out), b"]}"])


def _fill(texts: Sequence[_RunText], room: int, payer: Callable[[str], str]) -> list[int]:
    """How many pieces of each run there is room for: the next one is always of the user, and of his run, with least."""
    if sum(text.guess for text in texts) <= room and (whole := _all(texts, room)):
        return whole
    counts = [0] * len(texts)
    waiting: dict[str, list[_Next]] = {}
    for place, text in enumerate(texts):
        heappush(waiting.setdefault(payer(text.run.user), []), (0, 0, *text.age, place))
    users = [(0, user) for user in sorted(waiting)]
    while users:
        taken, user = users[0]
        runs = waiting[user]
        _, of_run, ended, begun, place = runs[0]
        text, count = texts[place], counts[place]
        size = text.size(count)
        if size is not None and size <= room:
            room -= size
            taken += size
            counts[place] = count = count + 1
            heapreplace(runs, (1 + (count > text.first), of_run + size, ended, begun, place))
        else:
            heappop(runs)
        if runs:
            heapreplace(users, (taken, user))
        else:
            heappop(users)
    return counts


_Next = tuple[int, int, bool, float, int]
"""A run that waits for room for its next piece: the piece's weight, bytes taken, whether the run has ended and since
when, its place among the runs. The least comes first."""


def _all(texts: Sequence[_RunText], room: int) -> list[int]:
    """How many pieces each run has, where there is room for all: the usual case. Empty where there is not."""
    counts = []
    for text in texts:
        number = 0
        while (size := text.size(number)) is not None:
            room -= size
            if room < 0:
                return []
            number += 1
        counts.append(number)
    return counts


class Encoded:
    """Runs as JSON: the same objects stand in several reports, one after the other."""

    def __init__(self) -> None:
        self._known: dict[str, _RunText] = {}
        self._texts: dict[str, _RunText] = {}

    def next_report(self) -> Encoded:
        """Forget what was not in the last one."""
        for key, text in self._known.items():
            if self._texts.get(key) is not text:
                text.close()
        self._known, self._texts = self._texts, {}
        return self

    def text(self, run: Run) -> _RunText:
        """The same text for the same object; of another state of the run, with the entries that have not changed."""
        before = self._known.get(run.key)
        if before is None or before.run is not run:
            before = _RunText(run, before)
        self._texts[run.key] = before
        return before


class _RunText:
    """A run as JSON in pieces, the weightiest first: its own members, its ranks, then the entries of their lists."""

    def __init__(self, run: Run, before: _RunText | None) -> None:
        self.run = run
        self.age = run.ended is not None, -(run.started if run.ended is None else run.ended)
        self.first = min(len(run.ranks), RANKS_FIRST)
        self._settled = is_settled(run)  # there is no later state, and whoever looks has its objects made anew
        self._known = before._entries if before is not None and not self._settled else {}
        self._entries: dict[int, tuple[Any, bytes]] = {}  # by the object's id
        self._waiting = self._encode()
        self._pieces: list[tuple[int, str, bytes]] = []  # number of the rank, list or "" for the rank itself, JSON
        self._sizes = array("L")
        self._over = False  # there are no more pieces
        self._joined = 0, b""  # so many pieces, as they were joined last
        self.guess: int = before.guess if before is not None else 0
        """Bytes of the pieces that were asked for, at first those of an earlier state of the run."""

    def close(self) -> None:
        """No more pieces are asked for: it can be freed at once, without a search for cycles."""
        self._waiting.close()

    def size(self, number: int) -> int | None:
        """Bytes that piece ``number`` adds; None: there is none."""
        if number < len(self._sizes):
            return self._sizes[number]
        piece = next(self._waiting, None)
        if piece is None:
            self._over = True
            return None
        _, name, data = piece
        self._pieces.append(piece)
        size = len(data) + (_RUN_BYTES if not number else 1 if name else _RANK_BYTES)
        self.guess = size + (self.guess if self._sizes else 0)
        self._sizes.append(size)
        return size

    def text(self, count: int) -> bytes:
        """The run with its first ``count`` pieces: mostly the same as in the report before."""
        if self._joined[0] != count:
            self._joined = count, b"".join(self._parts(count))
        if self._settled and self._over:
            self._pieces.clear()
        return self._joined[1]

    def _parts(self, count: int) -> Iterator[bytes]:
        ranks: list[bytes] = []
        lists: list[dict[str, list[bytes]]] = []
        pieces = self._pieces or [*self._encode()]
        for number, name, data in pieces[1:count]:
            if name:
                lists[number].setdefault(name, []).append(data)
            else:
                ranks.append(data)
                lists.append({})
        yield pieces[0][2] + b',"ranks":['
        for number, (rank, entries) in enumerate(zip(ranks, lists)):
            yield b"," + rank if number else rank
            yield from _lists_text(entries)
        yield b"]}"

    def _encode(self) -> Generator[tuple[int, str, bytes], None, None]:
        yield 0, "", _open(self.run, {"ranks"})
        ranks = list(self.run.ranks)
        for number, rank in enumerate(ranks):
            yield number, "", self._of(rank, _rank)
        for entries in zip_longest(*(_entries(rank) for rank in ranks), fillvalue=()):
            for number, listed in enumerate(entries):
                for name, entry in listed:
                    yield number, name, self._of(entry)

    def _of(self, entry: Any, make: Callable[[Any], bytes] | None = None) -> bytes:
        """The same bytes for the same object."""
        if self._settled:
            return (make or _encoded)(entry)
        found = self._known.get(id(entry))
        if found is None or found[0] is not entry:
            found = entry, (make or _encoded)(entry)
        self._entries[id(entry)] = found
        return found[1]


def _entries(rank: Rank) -> Iterator[list[tuple[str, Any]]]:
    """Of each list the latest or weightiest entry, then the next of each, with the lists' names."""
    listed: list[tuple[str, Sequence[Any]]] = [(name, getattr(rank, name)[::-1]) for name in LATEST]
    listed += [(name, getattr(rank, name)) for name in FIRST]
    listed += [("exits", rank.workers.exits[::-1]), ("samples", [rank.samples] if rank.samples.time else [])]
    longest = max(len(entries) for _, entries in listed)
    for place in range(min(longest, LISTED)):
        yield [(name, entries[place]) for name, entries in listed if place < len(entries)]


def _lists_text(entries: dict[str, list[bytes]]) -> Iterator[bytes]:
    """What follows a rank and its workers, both open: the lists."""
    for name in ("exits", *LATEST, *FIRST):
        found = entries.get(name, [])
        yield f',"{name}":['.encode()
        yield b",".join(found if name in FIRST else found[::-1])
        yield b"]}" if name == "exits" else b"]"
    yield b',"samples":' + entries.get("samples", [_NO_SAMPLES])[0] + b"}"


def _rank(rank: Rank) -> bytes:
    return _open(rank, _APART) + b',"workers":' + _open(rank.workers, {"exits"})


def _open(value: Any, without: Collection[str]) -> bytes:
    return codec.opened(value, without).encode()


def _encoded(value: Any) -> bytes:
    return codec.dumps(value).encode()
