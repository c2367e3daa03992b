"""Finds the call that comes once in each step, where nothing else marks steps."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from itertools import pairwise
from typing import TypeVar

LEAST = 8  # intervals between calls
EVEN = 0.6
"""The part of a call's intervals, by number and by time, that have one length where it comes once a step. Several calls
of a step come close together, and nearly all of the time is in the gap after them."""
SHORTEST_NS = 2e6
MANY = 8
"""This many equally frequent calls make up one step; calls of each layer are more frequent, and no more of them. Of
fewer calls, such as waits, the most frequent one marks the step, not a rare read of the result."""
SAME = 0.1
MOST_STEPS = 0.7
"""Of the gaps of the call that has most of them: calls with so many mark the same steps. The start, in which one of
them comes too, may be among these; what comes in each second step has half of them."""
SLOW = 3
"""First steps, at most, that compile: JAX does so again where the first result is of another kind than what was given.
A function of TensorFlow is traced in its first call alone (https://www.tensorflow.org/guide/function, "Tracing")."""
_UNIT_NS = 1024
BAND = 3  # half octaves that the lengths of steps lie in
LEAST_BURSTS = 12
FEW = 0.1
"""Of the steps: the part of intervals that may be longer than those inside bursts and shorter than those between
them. Those of the half octave below the band are the shorter ones of its own length."""
SHORTEST_PLACE = 21  # half octaves: 1.5 ms
STALLS = 1 / 50
"""Of the steps: so many of the longest intervals may be stalls, whose length says nothing about what recurs."""
STANDS = (0.5, 0.3)
"""The part of the time from one look to the next that is in gaps of the usual length where the rhythm stands; the
second where none has the first."""
SLOWER = 4  # half octaves: on a busy host the first steps are up to four times as long
SLOWER_STAND = 0.8
"""Where first steps are so slow, the part of the gaps, by number, and of the time that they have."""
LATEST = 8  # looks that show what is usual

Call = TypeVar("Call", bound=Hashable)


def once_a_step(calls: Mapping[Call, Sequence[int]]) -> Call | None:
    """The call that marks steps, by the numbers of intervals between its calls, by half octaves of 1024 ns; None: none
    comes evenly, often enough."""
    counts = {call: sum(intervals) for call, intervals in calls.items() if _is_even(intervals)}
    if not counts:
        return None

    alike = {call: sum(abs(other - n) <= SAME * n for other in counts.values()) for call, n in counts.items()}
    most = max(alike.values())
    if most < MANY:
        return max(counts, key=lambda call: counts[call])
    return min((call for call in counts if 2 * alike[call] >= most), key=lambda call: counts[call])


def bursts(calls: Mapping[Call, Sequence[int]], ever: Mapping[Call, Sequence[int]]) -> tuple[Call, int] | None:
    """The call that comes in bursts, one a step, and the least gap between two bursts in units of 1024 ns. None: no
    gaps are even enough. Of calls that mark the same steps it is the one that was rarest ``ever`` (all intervals since
    the process began): in a burst of two calls the second may be late and look like a step, and what is called by the
    start or by saves too is a worse mark than what comes in steps alone."""
    found = {call: gaps for call, intervals in calls.items() if (gaps := _gaps(intervals)) is not None}
    if not found:
        return None
    most = max(number for _, number in found.values())
    same = (call for call, (_, number) in found.items() if number >= MOST_STEPS * most)
    call = min(same, key=lambda one: sum(ever[one]))
    return call, found[call][0]


def before_rhythm(looks: Sequence[tuple[int, Sequence[int]]], least: int, slow: int = SLOW) -> int:
    """How many gaps of ``least`` units or more a call had before it came once a step: while a training starts, the same
    place is reached now and then. ``looks``: when (ns), and all intervals until then; the rhythm stands at the last.
    ``slow``: so many first steps, at most, compile."""
    first = _place(least)
    spans = [
        (end - begin, [now - past for now, past in zip(after, before)])
        for (begin, before), (end, after) in pairwise(looks)
    ]
    if not spans:
        return 0
    low = _band(_spent_ns(_without_stalls([sum(of) for of in zip(*(more for _, more in spans[-LATEST:]))])))
    for part in STANDS:
        if (before := _before_it_stands(looks, spans, (first, low), part, slow)) is not None:
            return before
    return 0


def _before_it_stands(
    looks: Sequence[tuple[int, Sequence[int]]],
    spans: Sequence[tuple[int, Sequence[int]]],
    places: tuple[int, int],
    part: float,
    slow: int,
) -> int | None:
    """As ``before_rhythm``, of the time and the gaps from each look to the next. ``places``: of the least gap, and the
    first of the usual ones; None: in no span they take this ``part`` of its time."""
    first, low = places
    begun = odd = 0  # gaps in the spans before, which may be steps: of the usual length, and of others in the last span
    for number, (lasts, more) in enumerate(spans):
        gaps, even = sum(more[first:]), sum(more[low : low + BAND])
        start = sum(looks[number][1][first:])
        late = sum(more[low + BAND + (SLOWER if slow > 1 else SLOWER // 2) :])  # what is traced may be short
        if _stands(more, low, BAND, lasts, EVEN * gaps, part) or (
            _stands(more, low, BAND + SLOWER, lasts, max(LEAST, SLOWER_STAND * gaps), SLOWER_STAND)
        ):
            # The last gaps before the rhythm are first steps that compile, and what came before them is the start. A
            # single one where steps came before may be a stall.
            return start + late - slow if late > slow or (late == slow and not begun) else start - begun - odd
        longer = sum(more[max(first, low - 1) :])
        if 2 * even >= gaps:  # the first steps, one that compiles among them
            begun, odd = begun + even, longer - even - max(0, late - slow)
        elif gaps > 1 or longer < gaps or not start:  # a single long gap may be a late step
            begun, odd = even, min(slow, gaps - even) if longer == gaps <= SLOW else 0
    return None


def _stands(more: Sequence[int], low: int, width: int, lasts: int, number: float, part: float) -> bool:
    """Whether so many gaps of these lengths came in a span, and took this part of its time."""
    band = slice(low, low + width)
    return sum(more[band]) >= number and sum(_spent_ns(more)[band]) >= part * lasts


def _gaps(intervals: Sequence[int]) -> tuple[int, int] | None:
    """Units, and the number of gaps. Most of the time is in gaps of one length; the limit is half-way between them and
    a burst's own intervals."""
    intervals = _without_stalls(intervals)
    spent = _spent_ns(intervals)
    low = _band(spent)
    count, time = sum(intervals[low : low + BAND]), sum(spent[low : low + BAND])
    inside = next((place for place in range(low + 1) if sum(intervals[place : low - 1]) <= FEW * count), low)
    least = max(SHORTEST_PLACE, (inside + low) // 2)
    number = sum(intervals[least:])
    if low < least or low - inside < 2 or count < max(LEAST_BURSTS, EVEN * number) or time < EVEN * sum(spent):
        return None
    return (1 << least // 2) * (2 + least % 2) // 2, number


def _spent_ns(intervals: Sequence[int]) -> list[float]:
    return [count * _middle_ns(place) for place, count in enumerate(intervals)]


def _band(spent: Sequence[float]) -> int:
    """The first of the half octaves that most of the time lies in."""
    return max(range(len(spent) - BAND + 1), key=lambda place: sum(spent[place : place + BAND]))


def _place(units: int) -> int:
    """The half octave of an interval."""
    octave = max(0, units.bit_length() - 1)
    return 2 * octave + (units >> (octave - 1) & 1) if octave else 0


def _is_even(intervals: Sequence[int]) -> bool:
    intervals = _without_stalls(intervals)
    number = sum(intervals)
    if number < LEAST:
        return False
    spent = _spent_ns(intervals)
    most = max(range(len(spent) - 1), key=lambda place: spent[place] + spent[place + 1])
    count, time = sum(intervals[most : most + 2]), sum(spent[most : most + 2])
    return count >= EVEN * number and time >= EVEN * sum(spent) and time >= SHORTEST_NS * count


def _without_stalls(intervals: Sequence[int]) -> list[int]:
    left, stalls = list(intervals), int(STALLS * sum(intervals[SHORTEST_PLACE:]))
    for place in range(len(left) - 1, SHORTEST_PLACE - 1, -1):
        dropped = min(stalls, left[place])
        left[place] -= dropped
        stalls -= dropped
    return left


def _middle_ns(place: int) -> float:
    """Of the interval's bounds."""
    octave, upper = divmod(place, 2)
    return float(_UNIT_NS * (1 << octave) * (1.75 if upper else 1.25))
