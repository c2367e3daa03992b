from __future__ import annotations

from trainprobe.model.moment import KEPT, NS, Moment, Offsets

BOOT = 1_760_000_000 * NS  # wall - monotonic


def moment(seconds: float, shift: float = 0.0) -> Moment:
    at = round(seconds * NS)
    return Moment(at, BOOT + at + round(shift * NS))


def told(offsets: Offsets, now: Moment, seconds: float) -> float:
    return offsets.known(now).wall_of(round(seconds * NS)) - BOOT / NS


def test_an_instant_is_told_alike_though_the_clocks_are_never_read_at_once() -> None:
    offsets = Offsets()
    values = set()
    for turn in range(50):
        at = moment(100 + turn, shift=(turn % 7) * 1e-5)
        offsets.update(at)
        values.add(told(offsets, at, 99.5))
    assert len(values) == 1


def test_what_was_before_a_suspension_stays_where_it_was() -> None:
    """CLOCK_MONOTONIC stands still in it, UNIX time does not."""
    offsets = Offsets()
    offsets.update(moment(100))
    offsets.update(moment(101, shift=3600))
    now = moment(102, shift=3600)
    assert told(offsets, now, 99) == 99
    assert told(offsets, now, 101.5) == 3701.5


def test_a_clock_that_is_set_back_changes_what_comes_after_only() -> None:
    offsets = Offsets()
    offsets.update(moment(100))
    offsets.update(moment(200, shift=-50))
    assert told(offsets, moment(201, shift=-50), 150) == 150
    assert told(offsets, moment(201, shift=-50), 200.5) == 150.5


def test_a_clock_that_is_set_for_ever_takes_no_memory() -> None:
    offsets = Offsets()
    for turn in range(1000):
        offsets.update(moment(turn, shift=turn * 10))
    known = offsets.known(moment(1001))
    assert len(known.shifts) == KEPT  # type: ignore[attr-defined]
