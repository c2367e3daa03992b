"""How many stalls are kept of many ranks: the oldest of who has most go first. Totals count them all."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from trainprobe.pipeline.run.state import RunState
from trainprobe.pipeline.stalls import KEEP, StallBook

OF_RUN, OF_HOST = 8 * KEEP, 80 * KEEP
"""Of all ranks of a run; of all runs. One takes some 5 kB."""


def shorten(runs: Iterable[RunState]) -> None:
    """Forget stalls beyond what a run and the host may have; of the host's users the one with the most loses them."""
    users: dict[str, list[StallBook]] = {}
    for run in runs:
        books = [rank.stalls for rank in run.ranks]
        for _ in range(_kept(books) - OF_RUN):
            _forget_one(books)
        users.setdefault(run.started.user, []).extend(books)
    for _ in range(sum(map(_kept, users.values())) - OF_HOST):
        _forget_one(max(users.values(), key=_kept))


def _kept(books: Collection[StallBook]) -> int:
    return sum(len(book.entries) for book in books)


def _forget_one(books: Collection[StallBook]) -> None:
    max(books, key=lambda book: len(book.entries)).forget_oldest()
