"""Rows of even steps as fewer ones, where passes are far apart: each costs the core the same, however short it is."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from trainprobe.derive.steps.waited_pool import WAITS
from trainprobe.model.event import Event, MarkRow
from trainprobe.model.moment import NS

STEPS, SPAN_NS = 128, 5 * NS
"""Of one row, at most."""
ALIKE = 0.02
"""By this much of their time at most rows differ in how long they wait for batches: what workers do counts by how much
of the same second is waited for."""


def joined(events: Sequence[Event], tids: Collection[int]) -> list[Event]:
    """The same with neighbouring rows of one of these threads as one, where the kernel told several steps in time in
    each and every step is made of as many fetches and backwards. What else happened stays between the rows where it
    came."""
    out: list[Event | None] = []
    last: dict[int, int] = {}  # by thread: the place of its row, to which more may be added,
    before: dict[int, MarkRow] = {}  # and the row before that
    for event in events:
        if not isinstance(event, MarkRow):
            last.clear()
            before.clear()
            out.append(event)
            continue
        if event.tid not in tids:
            out.append(event)
            continue
        place = last.get(event.tid)
        if place is not None:
            row = out[place]
            assert isinstance(row, MarkRow)
            if event.tid in before and _continues(before[event.tid], row, event):
                out[place] = None
                event = replace(event, lengths=row.lengths + event.lengths)
            else:
                before[event.tid] = row
        last[event.tid] = len(out)
        out.append(event)
    return [event for event in out if event is not None]


def _continues(before: MarkRow, row: MarkRow, later: MarkRow) -> bool:
    steps, more = len(row.lengths), len(later.lengths)
    spans = row.at_ns - before.at_ns, later.at_ns - row.at_ns
    if not (steps and more and steps + more <= STEPS and spans == (sum(row.lengths), sum(later.lengths))):
        return False  # a row between them was lost, too
    if row.files or later.files or sum(spans) > SPAN_NS:
        return False
    alike = (row.kind, row.name, row.opened_ns) == (later.kind, later.name, later.opened_ns)
    counts = (
        (row.fetches - before.fetches, later.fetches - row.fetches),
        (row.inline_fetches - before.inline_fetches, later.inline_fetches - row.inline_fetches),
        (row.backwards - before.backwards, later.backwards - row.backwards),
    )
    if not alike or any(one * more != other * steps for one, other in counts):
        return False
    waited = _waited_ns(before, row) * spans[1] - _waited_ns(row, later) * spans[0]
    return abs(waited) <= ALIKE * spans[0] * spans[1]


def _waited_ns(before: MarkRow, row: MarkRow) -> int:
    """For batches, since the row before."""
    return sum(row.cells[place] - before.cells[place] for place in WAITS)
