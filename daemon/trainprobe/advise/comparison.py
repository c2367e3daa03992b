"""Two runs side by side: what is better or worse, how sure that is, and which part of a step explains it.

A step of the training, stalls included and phases left out, is made of the states of an ordinary step and of what
stalls cost per step: the difference of two runs is the sum of the differences of these parts. How much a median may
differ by chance is told by the medians of equal stretches of one and the same run, their autocorrelation counted. A
machine is never the same twice: what is below ``LEAST`` is never called a difference, and the runs are judged at equal
speed of the processors (``trainprobe.advise.speed``), that of the quicker ones. Which run is called A changes no
verdict. Where the speed was not measured, what the quickest stretches do not show as well may be the machine's, up to
``UNSEEN``. Whatever disturbs a machine only ever adds to a step: where other programs hide a difference, the quickest
stretches of both runs still tell it. What a step waits for beside computing is told by itself
(``trainprobe.advise.waits``): no machine explains it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from math import copysign, exp, expm1, hypot, isfinite, log1p, sqrt

from trainprobe.advise import blocked, chance
from trainprobe.advise.chance import DISTURBED, SURE
from trainprobe.advise.compared_figures import LEAST, Figure, figures
from trainprobe.advise.speed import ON_CPU, Speeds, computing, speeds
from trainprobe.advise.waits import WaitChange, waits
from trainprobe.advise.work import Work, work
from trainprobe.model.dataclass import dataclass
from trainprobe.model.report import Rank, Run

WORK_LEAST = 0.025  # of a step: what more computing is told by itself
FEWEST = 50  # ordinary steps, for a judgement
STEADY_INTERFERENCE, STEADY_OTHERS = 0.15, 0.25
"""By what part two equal runs' quickest stretches differ more when all CPUs are busy with something else; and the
share of the CPUs beyond which no stretch of 16 steps is left alone."""
SLOWER = 0.01  # of a step: what the processors' own speed makes of it is not spoken of below
PART_WORTH = 0.05  # of the difference: what explains less is not named


@dataclass(frozen=True, slots=True)
class Part:
    """Seconds per step that one thing takes in both runs. ``kind``: state, stall, or rest."""

    kind: str
    name: str
    a: float
    b: float

    @property
    def change(self) -> float:
        """Seconds per step; negative: less in B."""
        return self.b - self.a


@dataclass(frozen=True, slots=True)
class Comparison:
    """``spread``: what the ratio of both steps may be off, as its logarithm; None: too few steps."""

    a_step: float
    b_step: float
    spread: float | None
    parts: tuple[Part, ...]
    figures: tuple[Figure, ...]
    samples: tuple[float, float] | None = None  # per step, where they were told
    others: tuple[float, float] = (0.0, 0.0)  # shares of the host's CPUs that other programs used meanwhile
    quickest: tuple[float, float] | None = None  # step in the quickest stretch of each, seconds
    speeds: Speeds | None = None  # None: not measured
    slowed: tuple[Mapping[str, float], Mapping[str, float]] = field(default=({}, {}))
    """Seconds that slower processors made of a step of A, and of B, by state; empty for the quicker ones."""
    work: Work | None = None  # None: instructions do not tell; then ``speeds`` do, where they were measured
    work_told: bool = False  # one computes more for certain, whatever is said of the whole
    waits: tuple[WaitChange, ...] = ()  # each by itself, the largest difference first

    @property
    def disturbed(self) -> bool:
        """Whether other programs used so much that they may have made a difference."""
        return max(self.others) > DISTURBED

    @property
    def even_steps(self) -> tuple[float, float]:
        """Seconds of a step of each on processors as fast as the quicker ones."""
        return self.a_step - sum(self.slowed[0].values()), self.b_step - sum(self.slowed[1].values())

    @property
    def change(self) -> float:
        """Speed of B against A at equal speed of the processors, relative: steps per second of training, or samples
        where they were told."""
        a, b = self.even_steps
        return a / b * self._factor - 1

    @property
    def clock_change(self) -> float:
        """The same as the clock says, on processors as fast as they were."""
        return self.a_step / self.b_step * self._factor - 1

    @property
    def steady(self) -> float | None:
        """The same of ordinary steps where nothing disturbed them: of the quickest stretches. None: not known."""
        return None if self.quickest is None else self.quickest[0] / self.quickest[1] * self._factor - 1

    @property
    def _factor(self) -> float:
        a, b = self.units
        return b / a

    @property
    def units(self) -> tuple[float, float]:
        """What a step of A and of B is judged by: its samples where they were told, else the step itself."""
        return self.samples or (1.0, 1.0)

    @property
    def bounds(self) -> tuple[float, float] | None:
        """Between which ``change`` lies, but for chance; None: too few steps."""
        if self.spread is None:
            return None
        return (1 + self.change) * exp(-self.spread) - 1, (1 + self.change) * exp(self.spread) - 1

    @property
    def least(self) -> float:
        """Up to here ``change``, in its direction, may be chance, or the machine's."""
        return abs(expm1(copysign(self._least, self.change)))

    @property
    def is_significant(self) -> bool:
        return self.spread is not None and abs(log1p(self.change)) > self._least

    @property
    def _least(self) -> float:
        return max(LEAST, self.spread or 0.0)

    @property
    def verdict(self) -> int:
        """+1 B is better, -1 worse, 0 neither for certain: at equal speed of the processors and by the clock."""
        if not self.is_significant or self.change * self.clock_change <= 0:
            return 0
        return 1 if self.change > 0 else -1

    @property
    def paced(self) -> bool:
        """Whether the processors' own speed made a difference worth speaking of."""
        return any(sum(made.values()) > SLOWER * step for made, step in zip(self.slowed, (self.a_step, self.b_step)))

    @property
    def waits_told(self) -> tuple[WaitChange, ...]:
        """Waits in which the runs differ for certain, whatever is said of the whole."""
        return () if self.spread is None else tuple(wait for wait in self.waits if wait.told)

    @property
    def waits_change(self) -> float:
        """What they make of a step of A, relative: +0.06, a step takes 6 % longer by them."""
        return sum(wait.change for wait in self.waits_told) / (self.a_step / self.units[0])

    @property
    def work_change(self) -> float:
        """What more instructions make of a step of A, relative; 0: they do not tell."""
        return self.work.more / self.a_step if self.work else 0.0

    @property
    def instructions(self) -> tuple[float, float, int] | None:
        """Millions of a step of A and of B, with the verdict on B as in a ``Figure``."""
        if self.work is None:
            return None
        better = (1 if self.work.more < 0 else -1) if self.work_told else 0
        return self.work.a / 1e6, self.work.b / 1e6, better

    @property
    def parts_told(self) -> bool:
        """Whether any part of a step differs for certain."""
        return self.work_told or bool(self.waits_told)

    @property
    def steady_told(self) -> bool:
        """Whether only the quickest stretches tell a difference: other programs hide it on the whole."""
        if (
            self.is_significant
            or self.work
            or self.spread is None
            or self.steady is None
            or not DISTURBED < max(self.others) <= STEADY_OTHERS
        ):
            return False
        uneven = abs(log1p(self.speeds.change)) if self.speeds else 0.0
        return abs(log1p(self.steady)) > LEAST + STEADY_INTERFERENCE * max(self.others) + uneven

    @property
    def explained(self) -> list[tuple[Part, float]]:
        """Parts that went the way of the whole, the largest first, each with its share of the difference.

        Their seconds are a sample's where samples were told, a step's otherwise.
        """
        return sorted((pair for pair in self._shares if pair[1] >= PART_WORTH), key=lambda pair: -pair[1])

    @property
    def against(self) -> list[tuple[Part, float]]:
        """Parts that went the other way."""
        return sorted((pair for pair in self._shares if pair[1] <= -PART_WORTH), key=lambda pair: pair[1])

    @property
    def _shares(self) -> list[tuple[Part, float]]:
        a, b = self.units
        whole = self.even_steps[1] / b - self.even_steps[0] / a
        parts = [replace(part, a=part.a / a, b=part.b / b) for part in self.even_parts]
        return [(part, part.change / whole) for part in parts] if whole else []

    @property
    def even_parts(self) -> tuple[Part, ...]:
        """The parts at equal speed of the processors: what computes is rid of what their speed made of it."""
        slowed = self.slowed
        return tuple(
            replace(part, a=part.a - slowed[0].get(part.name, 0.0), b=part.b - slowed[1].get(part.name, 0.0))
            if part.kind == "state"
            else part
            for part in self.parts
        )


def compare(
    a: Rank,
    b: Rank,
    samples: tuple[float, float] | None = None,
    others: tuple[float, float] = (0.0, 0.0),
    own: tuple[float, float] | None = None,
) -> Comparison | None:
    """``samples``: per step in A and B, where the reader knows them; ``others``: as in Comparison; ``own``: shares of
    the host's CPUs that the runs kept busy themselves, where they are known.

    None: one of them has no ordinary steps, or figures that no step has.
    """
    try:
        made = _compared(a, b, samples, others, own)
        can_be = made is not None and all(map(isfinite, (made.least, *(made.bounds or ()))))
    except (ArithmeticError, ValueError):  # there is no logarithm, or it is beyond a float
        return None
    return made if can_be else None


def _compared(
    a: Rank,
    b: Rank,
    samples: tuple[float, float] | None,
    others: tuple[float, float],
    own: tuple[float, float] | None,
) -> Comparison | None:
    if not (a.ordinary.count and b.ordinary.count and a.ordinary.seconds and b.ordinary.seconds):
        return None
    a_step, b_step = step_seconds(a), step_seconds(b)
    if a_step <= 0 or b_step <= 0:
        return None
    counted_alike = samples is None or samples[0] == samples[1]
    sides = (
        _seen(a, b, (a_step, b_step), counted_alike, others, own),
        _seen(b, a, (b_step, a_step), counted_alike, others[::-1], own and own[::-1]),
    )
    spread = None if min(a.ordinary.count, b.ordinary.count) < FEWEST else sqrt(sides[0].spread * sides[1].spread)
    unit, unit_b = samples or (1.0, 1.0)
    between = sqrt(a_step / unit * b_step / unit_b)
    measured = sides[0].speeds
    waited = waits(a.ordinary, b.ordinary, between, (unit, unit_b), log1p(measured.change) if measured else 0.0)
    error = hypot(*(SURE * chance.median_error(rank.ordinary.stretches) for rank in (a, b)))
    if counted_alike and (of_workers := blocked.blocked(a, b, between * unit, error, unit)):
        waited = (of_workers, *waited)
    made = Comparison(
        a_step, b_step, spread, _parts(a, b, a_step, b_step), (), samples, others, chance.quickest(a, b), measured,
        (sides[1].slowed, sides[0].slowed), sides[0].work, spread is not None and all(side.more for side in sides),
        waited,
    )  # fmt: skip
    return replace(made, figures=figures(a, b, (a_step, b_step), samples, made.verdict, made.instructions))


@dataclass(frozen=True, slots=True)
class _Side:
    """B as seen from A: ``spread``, relative; ``slowed``: of a step of B, where its processors were the slower ones;
    ``more``: whether one computes more for certain."""

    spread: float
    slowed: dict[str, float]
    speeds: Speeds | None
    work: Work | None = None
    more: bool = False


def _seen(
    a: Rank,
    b: Rank,
    steps: tuple[float, float],
    counted_alike: bool,
    others: tuple[float, float],
    own: tuple[float, float] | None,
) -> _Side:
    measured = speeds(a, b, own)
    if counted_alike and (counted := work(a, b)) is not None:
        slowed = counted.slowed if counted.slower > 0 else {}
        more = abs(counted.more) >= max(WORK_LEAST * steps[0], SURE * counted.error)
        return _Side(chance.of_work(a, b, steps[0], counted), slowed, measured, counted, more)
    spread = chance.of_time(a, b, steps, measured, others)
    if measured is None or measured.change >= 0:
        return _Side(spread, {}, measured)
    return _Side(spread, {state: -took * measured.change for state, took in computing(b).items()}, measured)


def others(run: Run, cpus: int) -> float:
    """The share of the host's CPUs that programs outside of the run used while it trained; 0 where it is not known."""
    busy = [rank.ordinary.busy_cpus for rank in run.ranks if rank.ordinary.busy_cpus is not None]
    used = own_cpus(run, cpus)
    if not busy or used is None:
        return 0.0
    return max(0.0, max(busy) / cpus - used)


def own_cpus(run: Run, cpus: int) -> float | None:
    """The share of the host's CPUs that the run itself kept busy while it trained; None where it is not known."""
    own = [used for rank in run.ranks if (used := _own_cpus(rank)) is not None]
    return sum(own) / cpus if cpus and own and len(own) == len(run.ranks) else None


def _own_cpus(rank: Rank) -> float | None:
    ordinary = rank.ordinary
    if not ordinary.seconds:
        return None
    driver = ordinary.driver_cpu_seconds
    if driver is None:  # too short a run: what its thread did on a CPU is the least that it used
        driver = sum(ordinary.states.get(state, 0.0) for state in ON_CPU)
    workers = (ordinary.worker_cpu_seconds_per_batch or 0.0) * (ordinary.fetches or 0.0)
    return (driver + workers) / ordinary.seconds


def step_seconds(rank: Rank) -> float:
    """Seconds of training per step: stalls and bottlenecks included, phases left out."""
    phases = sum(seconds for phase, seconds in rank.counters.phase_seconds.items() if phase != "train")
    trained = max(0.0, rank.wall_seconds - phases)
    # The steps before the baseline stood belong to the start-up, which is a phase.
    steps = rank.ordinary.count + sum(stall.steps for stall in rank.stalls)
    return trained / steps if steps else 0.0


def _parts(a: Rank, b: Rank, a_step: float, b_step: float) -> tuple[Part, ...]:
    parts = [
        Part("state", name, a.ordinary.states.get(name, 0.0), b.ordinary.states.get(name, 0.0))
        for name in _names(a.ordinary.states, b.ordinary.states)
    ]
    per_a, per_b = _stalled(a), _stalled(b)
    parts += [Part("stall", name, per_a.get(name, 0.0), per_b.get(name, 0.0)) for name in _names(per_a, per_b)]
    rest = Part("rest", "", a_step - sum(part.a for part in parts), b_step - sum(part.b for part in parts))
    return (*parts, rest)


def _stalled(rank: Rank) -> dict[str, float]:
    """Seconds of stalls per step, by cause."""
    steps = rank.ordinary.count + sum(stall.steps for stall in rank.stalls)
    return {cause: seconds / steps for cause, seconds in rank.counters.stall_seconds.items() if seconds > 0}


def _names(*maps: Mapping[str, float]) -> list[str]:
    names = dict.fromkeys(name for one in maps for name in one)
    return sorted(names, key=lambda name: -sum(one.get(name, 0.0) for one in maps))
