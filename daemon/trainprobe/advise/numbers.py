"""The arithmetic behind the advice."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil

from trainprobe.model.cause import Phase

SAVING, EVALUATING = 0.01, 0.05
"""Share of a run that saves, or logs, and evaluations should take at most."""
NEAR = 1.2
_ONCE = (Phase.STARTUP, Phase.COMPILE, Phase.ATTACHING, Phase.IDLE, Phase.SHUTDOWN)


def repeated(wall: float, phases: Mapping[Phase, float] | Mapping[str, float]) -> float:
    """The part of a run's time that a longer one has again and again: all but what comes once in it. ``phases``: time
    by phase, in the unit of ``wall``."""
    return max(0.0, 1.0 - sum(phases.get(phase, 0.0) for phase in _ONCE) / wall) if wall > 0 else 1.0


def interval_for_share(every_steps: float, share: float, wanted: float, lasting: float = 1.0) -> int:
    """Steps between occurrences so that what takes ``share`` of the run every so many steps takes ``wanted`` of a
    longer one, which has the part ``lasting`` of it again and again (``repeated``): the only formula for intervals, of
    saves, evaluations, logs and whatever else comes by steps. What takes hardly more (NEAR) keeps its interval.
    ``every_steps``: steps by number of occurrences; the median gap leaves out the steps before the first."""
    share = min(1.0, share / lasting) if lasting > 0 else 0.0
    if share <= NEAR * wanted:
        return max(1, round(every_steps))
    needed = every_steps * share * (1 - wanted) / (wanted * max(1 - share, 1e-6))
    return max(round(every_steps), round_up(ceil(needed - 1e-9)))


def round_up(steps: int) -> int:
    """The next number of steps that a person would choose: two digits, then zeros."""
    digits = max(0, len(str(steps)) - 2)
    unit: int = 10**digits
    return -(-steps // unit) * unit
