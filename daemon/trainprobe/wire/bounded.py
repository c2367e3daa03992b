"""A report in a bounded number of bytes. Each user gets an equal part of them, each run an equal part of its user's."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterator, Sequence
from heapq import heappop, heappush
from itertools import zip_longest
from typing import Any

from trainprobe.model.report import Rank, Report, Run, Samples
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
        self._runs = {run.key: _RunText(run, encoded) for run in report.runs}

    def encode(self, limit: int, runs: Collection[str] | None = None) -> bytes:
        """The report, of ``runs`` only where they are given, in at most ``limit`` bytes of JSON.

        What does not fit is left out of the largest runs of the users who have most: the oldest entries of lists, then
        ranks; last the runs that ended first. ``totals`` and counters count everything.
        """
        head = _encoded(dataclasses.replace(self._report, runs=[]))
        if len(head) > limit:
            whole = self._report
            head = _encoded(Report(whole.version, whole.generated, whole.generated_monotonic))
        texts = [text for name, text in self._runs.items() if runs is None or name in runs]
        counts = _fill(texts, limit - len(head), self._payer)
        out = [head.removesuffix(b"]}")]
        for text, count in zip(texts, counts):
            if count:
                out += text.text(count)
                out.append(b",")
        return b"".join(out[:-1] if out[-1] == b"," else out) + b"]}"


def _fill(texts: Sequence[_RunText], room: int, payer: Callable[[str], str]) -> list[int]:
    """How many pieces of each run there is room for: the next one is always of the user, and of his run, with least."""
    if whole := _all(texts, room):
        return whole
    counts = [0] * len(texts)
    waiting: dict[str, list[tuple[int, int, bool, float, int]]] = {}
    for place, text in enumerate(texts):
        heappush(waiting.setdefault(payer(text.run.user), []), text.order(0, 0, place))
    users = [(0, user) for user in sorted(waiting)]
    while users:
        taken, user = heappop(users)
        _, of_run, _, _, place = heappop(waiting[user])
        size = texts[place].size(counts[place])
        if size is not None and size <= room:
            room -= size
            taken += size
            counts[place] += 1
            heappush(waiting[user], texts[place].order(counts[place], of_run + size, place))
        if waiting[user]:
            heappush(users, (taken, user))
    return counts


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
    """Ranks and entries of their lists as JSON: the same objects stand in several reports, one after the other."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Any, bytes]] = {}
        self._encoded: dict[int, tuple[Any, bytes]] = {}

    def next_report(self) -> Encoded:
        """Forget what was not in the last one."""
        self._known, self._encoded = self._encoded, {}
        return self

    def of(self, entry: Any, make: Callable[[Any], bytes] | None = None) -> bytes:
        """The same bytes for the same object."""
        found = self._known.get(id(entry)) or self._encoded.get(id(entry))
        if found is None or found[0] is not entry:
            found = entry, (make or _encoded)(entry)
        self._encoded[id(entry)] = found
        return found[1]


class _RunText:
    """A run as JSON in pieces, the weightiest first: its own members, its ranks, then the entries of their lists."""

    def __init__(self, run: Run, encoded: Encoded) -> None:
        self.run = run
        self._encoded = encoded
        self._waiting = self._encode()
        self._pieces: list[tuple[int, str, bytes]] = []  # number of the rank, list or "" for the rank itself, JSON

    def order(self, count: int, size: int, place: int) -> tuple[int, int, bool, float, int]:
        """Among the runs of a user with ``count`` pieces of ``size`` bytes taken: the least comes next."""
        run = self.run
        weight = min(count, 1) + (count > min(len(run.ranks), RANKS_FIRST))
        return weight, size, run.ended is not None, -(run.started if run.ended is None else run.ended), place

    def size(self, number: int) -> int | None:
        """Bytes that piece ``number`` adds; None: there is none."""
        if number == len(self._pieces):
            piece = next(self._waiting, None)
            if piece is None:
                return None
            self._pieces.append(piece)
        _, name, data = self._pieces[number]
        return len(data) + (_RUN_BYTES if not number else 1 if name else _RANK_BYTES)

    def text(self, count: int) -> Iterator[bytes]:
        """The run with its first ``count`` pieces, to be joined: megabytes are copied once."""
        ranks: list[bytes] = []
        lists: list[dict[str, list[bytes]]] = []
        for number, name, data in self._pieces[1:count]:
            if name:
                lists[number].setdefault(name, []).append(data)
            else:
                ranks.append(data)
                lists.append({})
        yield self._pieces[0][2] + b',"ranks":['
        for number, (rank, entries) in enumerate(zip(ranks, lists)):
            yield b"," + rank if number else rank
            yield from _lists_text(entries)
        yield b"]}"

    def _encode(self) -> Iterator[tuple[int, str, bytes]]:
        yield 0, "", _open(self.run, {"ranks"})
        ranks = self.run.ranks
        for number, rank in enumerate(ranks):
            yield number, "", self._encoded.of(rank, _rank)
        for entries in zip_longest(*(_entries(rank) for rank in ranks), fillvalue=()):
            for number, listed in enumerate(entries):
                for name, entry in listed:
                    yield number, name, self._encoded.of(entry)


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
    """An object without some of its members and without its last brace: others follow."""
    members = {name: getattr(value, name) for name in codec.names(value.__class__) if name not in without}
    return _encoded(members).removesuffix(b"}")


def _encoded(value: Any) -> bytes:
    return codec.dumps(value).encode()
