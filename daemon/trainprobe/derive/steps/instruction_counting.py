"""When the instructions of a driver are counted, and how many a step takes.

A counter is open for one window in sixty, less where its thread is switched often, and more at first, for a short
training to have a few. A window lasts from one sampling pass to another, at least a second and sixteen steps later.
Instructions per step are known where all steps of a window are ordinary; partial steps at its ends count by time.
"""

from __future__ import annotations

from collections import deque
from dataclasses import field

from trainprobe.model.dataclass import dataclass
from trainprobe.model.moment import NS
from trainprobe.model.sample import CountSample

LEAST_NS, LEAST_STEPS, MOST_NS = 9 * NS // 10, 16, 12 * NS
"""A window is over after so long and so many steps; given up after so long."""
SELDOM = 60  # windows' lengths between two of them, in the end, at least
SWITCH_NS, SHARE = 15_000, 0.00005
"""What an open counter costs each time its thread leaves the processor and comes back, and the part of the thread's
time that it may cost."""
KEPT = 32


@dataclass(slots=True)
class Counting:
    """Takes passes, readings and steps; ``per_step``: instructions a step of the latest windows."""

    per_step: deque[float] = field(default_factory=lambda: deque(maxlen=KEPT))
    on: bool = False  # the counter is to be open
    _began_ns: int = 0
    _next_ns: int = 0
    _pause: int = 1  # windows' lengths
    _reading: CountSample | None = None
    _steps: list[tuple[int, int, int]] = field(default_factory=list)  # begin, end, how many, since the window began

    @property
    def active(self) -> bool:
        """Whether steps are of interest: of a window, or of one whose last step is not over yet."""
        return self.on or self._reading is not None

    def wanted(self, now_ns: int) -> bool:
        """Whether the counter is to be open from this pass to the next."""
        if self.on:
            lasted, steps = now_ns - self._began_ns, sum(number for _, _, number in self._steps)
            if (lasted >= LEAST_NS and steps >= LEAST_STEPS) or lasted >= MOST_NS:
                self.on = False
                self._next_ns = now_ns + min(self._pause, self._seldom(lasted)) * lasted
                self._pause *= 2
        elif now_ns >= self._next_ns:
            self._begin(now_ns)
        return self.on

    def _seldom(self, lasted_ns: int) -> int:
        """Windows' lengths between two of them that its cost allows, where a thread is switched often."""
        switches = (self._reading.switches if self._reading else None) or 0
        return max(SELDOM, round(switches * SWITCH_NS / lasted_ns / SHARE))

    def _begin(self, now_ns: int) -> None:
        self.on, self._began_ns, self._reading = True, now_ns, None
        self._steps.clear()

    def add_sample(self, sample: CountSample) -> None:
        """A reading; the last one of a window counts."""
        if self.on:
            self._reading = sample

    def step(self, start_ns: int, end_ns: int, number: int) -> None:
        """``number`` steps as one; 0: they were not ordinary, and the window says nothing."""
        self._steps.append((start_ns, end_ns, number))
        if not self.on:
            self._finish()

    def _finish(self) -> None:
        reading = self._reading
        if reading is None or self._steps[-1][1] < reading.at_ns:
            return
        self._reading = None
        if all(number for _, _, number in self._steps):
            steps = self._until(reading.at_ns) - self._until(reading.since_ns)
            if steps >= LEAST_STEPS and self._steps[0][0] <= reading.since_ns:
                self.per_step.append(reading.instructions / steps)

    def _until(self, at_ns: int) -> float:
        """Steps before that moment."""
        return sum(
            number * min(1.0, max(0.0, (at_ns - start) / (end - start)))
            for start, end, number in self._steps
            if end > start
        )
