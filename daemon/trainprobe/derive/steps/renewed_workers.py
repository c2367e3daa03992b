"""Workers of a loader that are started again within ordinary steps: an epoch takes one of them, or a few."""

from __future__ import annotations

from dataclasses import field

from trainprobe.derive.steps.baseline import Ordinary
from trainprobe.derive.steps.waited_pool import WAITS
from trainprobe.derive.workers import WorkerPool
from trainprobe.model.cells import LEAVES
from trainprobe.model.dataclass import dataclass


def renewed_in(workers: WorkerPool, start_ns: int, end_ns: int) -> int:
    """Workers that were started again in an interval: most that live at its end. What a training starts beside a loader
    that lives on (a save, a pool) is fewer, or has ended by then."""
    started = workers.starts_in(start_ns, end_ns)
    if not started or started == workers.started:
        return 0
    return started if 2 * len(workers.begun_in(start_ns, end_ns)) >= max(1, workers.count) else 0


@dataclass(slots=True)
class RenewedWorkers:
    """Sums over the ordinary steps in which workers were started again, and the waits of the others."""

    workers: int = 0
    times: float = 0.0  # that they were started together
    steps: int = 0
    fetches: int = 0
    ns: float = 0.0  # waits in fetches
    pool: list[float] = field(default_factory=lambda: [0.0] * LEAVES)  # what workers did, ns by leaf
    other_steps: int = 0
    other_ns: float = 0.0

    def add_step(self, step: Ordinary, steps: int, started: int, live: int) -> None:
        """Take in what counts as so many ordinary steps (0: as none), with so many workers that were started again, and
        that live at its end."""
        if not steps or not (started or self.workers):
            return
        waited = sum(map(step.made_of.cell, WAITS))
        if not started:
            self.other_steps += steps
            self.other_ns += waited
            return
        self.workers += started
        self.times += min(steps, max(1.0, started / max(1, live)))
        self.steps += steps
        self.fetches += step.fetches
        self.ns += waited
        self.pool = [total + ns for total, ns in zip(self.pool, step.made_of.pool())]

    @property
    def beyond_ns(self) -> float:
        """Waits in fetches of steps with new workers, beyond those of other steps."""
        usual = self.other_ns / self.other_steps if self.other_steps else 0.0
        return max(0.0, self.ns - self.steps * usual)

    @property
    def waited_for(self) -> bool:
        """Whether most waits in fetches are for them: then they work for as long as they are waited for, if at all."""
        return 2 * self.beyond_ns > self.ns + self.other_ns
