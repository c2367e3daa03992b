"""Figures that metrics need and that are computed from a report first."""

from __future__ import annotations

from collections.abc import Mapping

from trainprobe.model.report import Rank

_HUGE = 1e300


def finite(value: object) -> float | None:
    """A number as it may be published: None for what is none; microseconds are fine enough and keep the text short."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not -_HUGE < value < _HUGE:
        return None
    return value if isinstance(value, int) else round(value, 6)


def counts_steps(rank: Rank) -> bool:
    """Whether there is a step clock: without one no step is not zero steps."""
    return rank.steps.source != "none" and (rank.steps.source != "rhythm" or rank.steps.count > 0)


def ended(outcomes: Mapping[str, int]) -> Mapping[str, int]:
    """Checkpoints by outcome, without the one that is being written."""
    return {outcome: count for outcome, count in outcomes.items() if outcome != "open"}


def phase_seconds(rank: Rank) -> Mapping[str, float]:
    """Seconds by phase; what is in none of the others is train, lost or productive."""
    phases = {phase: seconds for phase, seconds in rank.counters.phase_seconds.items() if finite(seconds) is not None}
    phases.setdefault("train", (finite(rank.wall_seconds) or 0) - sum(phases.values()))
    return {phase: round(seconds, 6) for phase, seconds in phases.items()}
