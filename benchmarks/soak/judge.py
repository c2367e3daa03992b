"""What the samples of a soak say. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

SLOPE_LIMIT = 1.0  # MB per hour
THIRDS = 3


@dataclass(frozen=True)
class Sample:
    """One look at both programs. Bytes; ``hours`` since the begin, without those in which nothing ran."""

    hours: float
    resident: dict[str, int]
    files: dict[str, int]
    lost: int


@dataclass(frozen=True)
class Training:
    """What a training did, and what was told of it; None: nothing."""

    name: str
    steps: int
    saved: int
    told_steps: int | None
    told_saved: int | None
    losses: int  # events that were reported lost while it ran


@dataclass
class Verdict:
    slopes: dict[str, float] = field(default_factory=dict)
    """MB per hour by program."""
    wrong: list[str] = field(default_factory=list)


def judge(samples: Sequence[Sample], trainings: Sequence[Training], warm_up_hours: float) -> Verdict:
    """Growth of memory and files after the warm-up, and trainings of which less was told without a word."""
    verdict = Verdict()
    warm = [sample for sample in samples if sample.hours >= warm_up_hours]
    if len(warm) < 2 * THIRDS:
        verdict.wrong.append(f"only {len(warm)} samples after the warm-up")
        return verdict
    for program in warm[0].resident:
        slope = rise([(sample.hours, sample.resident[program] / 1e6) for sample in warm])
        verdict.slopes[program] = slope
        if slope > SLOPE_LIMIT:
            verdict.wrong.append(f"{program} grows by {slope:.2f} MB/h")
        third = len(warm) // THIRDS
        first, last = ([sample.files[program] for sample in part] for part in (warm[:third], warm[-third:]))
        if statistics.median(last) > statistics.median(first) and min(last) > min(first):
            verdict.wrong.append(f"{program} had {min(first)} files open and more, then {min(last)} and more")
    for training in trainings:
        told = (training.told_steps, training.told_saved)
        if told != (training.steps, training.saved) and not training.losses:
            verdict.wrong.append(
                f"{training.name}: {training.steps} steps and {training.saved} checkpoints, told were {told}, "
                "and no event was reported lost"
            )
    return verdict


def rise(points: Sequence[tuple[float, float]]) -> float:
    """The median of the slopes between all pairs (Theil and Sen): what a few outliers do not move."""
    slopes = [(y2 - y1) / (x2 - x1) for at, (x1, y1) in enumerate(points) for x2, y2 in points[at + 1 :] if x2 > x1]
    return statistics.median(slopes) if slopes else 0.0
