"""How much slower the GPUs of a rank run than before, and why: the clock beside the usual clock under load."""

from __future__ import annotations

from collections import deque
from dataclasses import field

from trainprobe.derive.average import median
from trainprobe.model.dataclass import dataclass
from trainprobe.model.moment import NS
from trainprobe.model.sample import GpuSample

READINGS = 128
FRESH_NS = 3 * NS // 2  # a reading is valid for this long, until the next one
LONGEST_NS = 10 * NS
WORKING = 0.5  # a GPU that is busy for less of the time delays nothing
LOWERED = frozenset({"hw_slowdown", "sw_thermal", "hw_thermal", "hw_power_brake"})
POWER = "sw_power_cap"  # ordinary at full load: it counts where the clock is far below the usual
CAPPED = 0.8  # of the usual clock
DROPPED = 0.97  # of it: above, nothing was lost
LEAST = 5  # readings that make a usual clock; before, it is the GPU's maximum
USUAL = 64


@dataclass(frozen=True, slots=True)
class Slowed:
    """One GPU whose clock was lowered while it worked.

    ``lost_ns``: how much shorter its work would have been at its usual clock; None where clocks are not known.
    """

    index: int
    uuid: str
    reasons: tuple[str, ...]
    slowed_ns: float
    lost_ns: float | None
    clock_hertz: int | None
    usual_hertz: float | None
    of_maximum: bool  # the usual clock is not known: it is the GPU's maximum
    temperature_celsius: float | None
    power_watts: float | None


@dataclass(frozen=True, slots=True)
class _Reading:
    start_ns: int
    end_ns: int
    sample: GpuSample
    usual_hertz: float | None
    of_maximum: bool
    slowed: bool

    @property
    def lost(self) -> float | None:
        """Part of the time."""
        clock = self.sample.sm_clock_hertz
        return None if clock is None or not self.usual_hertz else max(0.0, 1 - clock / self.usual_hertz)


@dataclass(slots=True)
class _One:
    readings: deque[_Reading] = field(default_factory=lambda: deque(maxlen=READINGS))
    clocks: deque[int] = field(default_factory=lambda: deque(maxlen=USUAL))  # under load, not lowered
    slowed_ns: float = 0.0
    lost_ns: float | None = None
    slowest: GpuSample | None = None


@dataclass(slots=True)
class GpuSpeed:
    gpus: dict[str, _One] = field(default_factory=dict)  # by uuid

    def add_sample(self, sample: GpuSample) -> None:
        start = sample.since_ns if 0 < sample.at_ns - sample.since_ns <= LONGEST_NS else sample.at_ns
        one = self.gpus.setdefault(sample.uuid, _One())
        usual, of_maximum = _usual(one, sample)
        slowed = _slowed(sample, usual)
        if _works(sample) and not slowed and sample.sm_clock_hertz is not None and not _hot(sample):
            one.clocks.append(sample.sm_clock_hertz)
        reading = _Reading(start, sample.at_ns, sample, usual, of_maximum, slowed)
        one.readings.append(reading)
        if not slowed:
            return
        one.slowed_ns += sample.at_ns - start
        if reading.lost is not None:
            one.lost_ns = (one.lost_ns or 0.0) + reading.lost * (sample.at_ns - start)
        clock = one.slowest.sm_clock_hertz if one.slowest is not None else None
        if one.slowest is None or (sample.sm_clock_hertz or 0) <= (clock or 0):
            one.slowest = sample

    def over(self, start_ns: int, end_ns: int) -> Slowed | None:
        """The GPU that lost most in an interval by a lowered clock; None: none was slowed for half of it."""
        found = [told for one in self.gpus.values() if (told := _over(one, start_ns, end_ns)) is not None]
        return max(found, key=lambda told: (told.lost_ns or 0.0, told.slowed_ns), default=None)

    def whole(self) -> Slowed | None:
        found = [told for one in self.gpus.values() if (told := _whole(one)) is not None]
        return max(found, key=lambda told: (told.lost_ns or 0.0, told.slowed_ns), default=None)


def _over(one: _One, start_ns: int, end_ns: int) -> Slowed | None:
    slowed = lost = 0.0
    known, last = False, None
    for place, reading in enumerate(one.readings):
        until = reading.end_ns + FRESH_NS if place + 1 == len(one.readings) else reading.end_ns
        part = min(end_ns, until) - max(start_ns, reading.start_ns)
        if part <= 0 or not reading.slowed:
            continue
        slowed, last = slowed + part, reading
        if reading.lost is not None:
            lost, known = lost + part * reading.lost, True
    if last is None or slowed < 0.5 * (end_ns - start_ns):
        return None
    return _slowed_gpu(last.sample, slowed, lost if known else None, last)


def _whole(one: _One) -> Slowed | None:
    if one.slowest is None:
        return None
    reading = next((r for r in reversed(one.readings) if r.slowed), None)
    return _slowed_gpu(one.slowest, one.slowed_ns, one.lost_ns, reading)


def _slowed_gpu(sample: GpuSample, slowed: float, lost: float | None, reading: _Reading | None) -> Slowed:
    return Slowed(
        sample.index,
        sample.uuid,
        tuple(reason for reason in sample.reasons or () if reason in LOWERED or reason == POWER),
        slowed,
        lost,
        sample.sm_clock_hertz,
        reading.usual_hertz if reading is not None else None,
        reading.of_maximum if reading is not None else False,
        sample.temperature_celsius,
        sample.power_watts,
    )


def _usual(one: _One, sample: GpuSample) -> tuple[float | None, bool]:
    """The clock under load while nothing lowered it, and whether it is only the GPU's maximum."""
    if len(one.clocks) >= LEAST:
        return median(one.clocks), False
    return (float(sample.sm_clock_max_hertz), True) if sample.sm_clock_max_hertz else (None, False)


def _works(sample: GpuSample) -> bool:
    return sample.utilization is None or sample.utilization >= WORKING


def _hot(sample: GpuSample) -> bool:
    return bool(LOWERED.intersection(sample.reasons or ()))


def _slowed(sample: GpuSample, usual: float | None) -> bool:
    if not _works(sample):
        return False
    share = None if sample.sm_clock_hertz is None or not usual else sample.sm_clock_hertz / usual
    if _hot(sample):
        return share is None or share < DROPPED
    return POWER in (sample.reasons or ()) and share is not None and share < CAPPED
