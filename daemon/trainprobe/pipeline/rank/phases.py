"""The phases of a rank: start-up, evaluation, compilation, shutdown."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import field

from trainprobe.derive.average import median
from trainprobe.model.cause import Phase, State
from trainprobe.model.dataclass import dataclass

SPANS = 400
NOTHING: Mapping[State, float] = {}
LATEST, LEAST = 16, 2
"""Intervals of a phase by which it is known how long it usually lasts."""
ALIKE = 0.2
"""They differ from their median by this part at most, three quarters of them."""


@dataclass(frozen=True, slots=True)
class PhaseInterval:
    """An interval of a phase; ``end_ns`` None while it lasts."""

    phase: Phase
    start_ns: int
    end_ns: int | None
    step: int | None = None  # the steps before it
    states: Mapping[State, float] = field(default_factory=dict)  # ns by state in it, where they are known
    sure: bool = True  # of an evaluation: more than forward passes without gradients shows it


@dataclass(slots=True)
class Phases:
    """Finished phases, and the part of the open step that belongs to one."""

    ns: dict[Phase, float] = field(default_factory=dict)  # finished
    spans: list[PhaseInterval] = field(default_factory=list)  # the latest
    live: tuple[Phase, float] | None = None  # of the open step: (phase, ns)
    evaluators: set[str] = field(default_factory=set)  # functions that called the model in evaluations
    quiet_ns: deque[float] = field(default_factory=lambda: deque(maxlen=LATEST))
    """The excess of late steps with gradients off whose stacks showed no evaluation: images that are drawn, metrics."""
    evaluations: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=LATEST))
    """What evaluations took with gradients off, and outside of fetches and forward passes (metrics), ns."""

    def add(
        self,
        phase: Phase,
        start_ns: int,
        end_ns: int,
        step: int | None = None,
        states: Mapping[State, float] = NOTHING,
        *,
        sure: bool = True,
    ) -> None:
        if end_ns <= start_ns:
            return
        self.ns[phase] = self.ns.get(phase, 0.0) + (end_ns - start_ns)
        self.spans.append(PhaseInterval(phase, start_ns, end_ns, step, states, sure))
        del self.spans[:-SPANS]

    def usual_outside_ns(self) -> float | None:
        """Outside of an evaluation's fetches and forward passes, the median; None before the first one."""
        return median(outside for _, outside in self.evaluations) if self.evaluations else None

    def usual_no_grad_ns(self) -> float:
        """With gradients off in an evaluation, the median; 0 before the first one."""
        return median(inside for inside, _ in self.evaluations) if self.evaluations else 0.0

    def usual_quiet_ns(self) -> float:
        """The median of ``quiet_ns``; 0 where there were none."""
        return median(self.quiet_ns) if self.quiet_ns else 0.0

    def usual_ns(self, phase: Phase) -> float:
        """How long the phase lasts each time; 0 where it has no usual length."""
        lengths = [one.end_ns - one.start_ns for one in self.spans if one.phase is phase and one.end_ns is not None]
        latest = lengths[-LATEST:]
        if len(latest) < LEAST:
            return 0.0
        middle = median(latest)
        alike = sum(abs(length - middle) <= ALIKE * middle for length in latest)
        return middle if alike >= 0.75 * len(latest) else 0.0
