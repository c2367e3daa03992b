"""How many ranks are kept of a user and of the host: ended ones make room, then the newest of who has most."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from trainprobe.pipeline.run.ranks import Ranks
from trainprobe.pipeline.run.state import RunState

OF_ONE, OF_HOST = 1024, 2048
"""One takes up to 200 kB with its report. 64 runs of 8 ranks are 512; with those that ended before them, 1 024."""


def share(runs: Iterable[RunState]) -> None:
    """Forget ranks beyond what a user and the host may have, and say whose runs may have no more."""
    users: dict[str, list[Ranks]] = {}
    for run in runs:
        users.setdefault(run.started.user, []).append(run.ranks)
    counts = {user: sum(ranks.count() for ranks in own) for user, own in users.items()}
    while counts:
        most = max(counts, key=lambda user: counts[user])
        if counts[most] <= OF_ONE and sum(counts.values()) <= OF_HOST:
            break
        _forget_one(users[most])
        counts[most] -= 1
    near = sum(counts.values()) >= OF_ONE
    going = {user: sum(ranks.going() for ranks in own) if near else 0 for user, own in users.items()}
    host_full = sum(going.values()) >= OF_HOST
    for user, own in users.items():
        full = going[user] >= OF_ONE or (host_full and going[user] == max(going.values()))
        for ranks in own:
            ranks.full = full


def _forget_one(own: Sequence[Ranks]) -> None:
    """Of those that have ended the first one, but for a run's only one; else the newest one of the largest run."""
    ended = [(rank, ranks) for ranks in own if ranks.count() > 1 and (rank := ranks.ended()) is not None]
    if ended:
        rank, ranks = min(ended, key=lambda one: one[0].end_ns or 0)
        ranks.give_up(rank)
    else:
        max(own, key=Ranks.count).refuse_newest()
