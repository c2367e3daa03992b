"""Ranks of a run that has ended: kept for long, seldom looked at."""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, cast, overload

if TYPE_CHECKING:
    from trainprobe.model.report import Rank, Run


class SettledRanks(Sequence["Rank"]):
    """In one block of memory. As objects each rank is some thousand of them, strewn over the heap among what comes and
    goes, and the pages of that could not be given back. Whoever looks at one has all made anew."""

    __slots__ = ("_count", "_packed")

    def __init__(self, ranks: Iterable[Rank]) -> None:
        import pickle  # only where a run ends

        ranks = list(ranks)
        self._count = len(ranks)
        self._packed = zlib.compress(pickle.dumps(ranks, pickle.HIGHEST_PROTOCOL), 1)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Rank]:
        return iter(self._ranks())

    @overload
    def __getitem__(self, place: int) -> Rank: ...
    @overload
    def __getitem__(self, place: slice) -> list[Rank]: ...
    def __getitem__(self, place: int | slice) -> Rank | list[Rank]:
        return self._ranks()[place]

    def _ranks(self) -> list[Rank]:
        import pickle

        return cast("list[Rank]", pickle.loads(zlib.decompress(self._packed)))  # of this process


def settled(run: Run) -> Run:
    """The same run in little memory."""
    return dataclasses.replace(run, ranks=cast("list[Rank]", SettledRanks(run.ranks)))


def whole(run: Run) -> Run:
    """The same run with all its objects."""
    return dataclasses.replace(run, ranks=list(run.ranks)) if is_settled(run) else run


def is_settled(run: Run) -> bool:
    return isinstance(run.ranks, SettledRanks)
