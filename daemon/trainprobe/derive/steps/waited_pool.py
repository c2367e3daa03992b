"""What the workers did while the driver waited for them in ordinary steps.

A first epoch from a cold disk, or a heavy part of the data, is soon outweighed by the work of steps that wait for
nothing: what all steps' workers did says little of the waits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from trainprobe.derive.steps.baseline import Ordinary
from trainprobe.derive.steps.interval import Interval
from trainprobe.model.cells import COMPUTING, LEAVES, Leaf, Region, cell
from trainprobe.model.dataclass import dataclass
from trainprobe.model.moment import NS

MUCH = 0.1
"""Of the work in the waits: a smaller kind says nothing of how much of it all was in them."""
LOOKS, MANY = 4, 8
"""At workers, so many at least say whether they work while they are waited for. A loader's may by chance: of those
more."""
SELDOM = 0.1
"""Of the looks."""
WAITS = tuple(cell(Region.FETCH, leaf) for leaf in Leaf if leaf not in COMPUTING)


@dataclass(slots=True)
class WaitedPool:
    """Of each second of steps the part that the driver waited in its fetches."""

    pool: list[float] = field(default_factory=lambda: [0.0] * LEAVES)
    worker_ns: float = 0.0  # live workers x time
    saturated_ns: float = 0.0  # of all steps: while a worker had no time left
    looks: int = 0  # that found the driver waiting in an ordinary step, while workers live
    idle_looks: int = 0  # of them: no worker worked
    _open: Interval | None = None
    _ns: int = 0
    _worker_ns: float = 0.0

    def add_look(self, *, works: bool) -> None:
        self.looks += 1
        self.idle_looks += not works

    @property
    def idle(self) -> bool:
        """Whether most looks found no worker at work: what they do, they do at other times."""
        return self.looks >= LOOKS and 2 * self.idle_looks > self.looks

    @property
    def busy(self) -> bool:
        """Whether nearly all of many looks found a worker at work."""
        return self.looks >= MANY and self.idle_looks <= SELDOM * self.looks

    def add_step(self, step: Ordinary, workers: int, *, saturated: bool = False) -> None:
        """Take in an ordinary step with so many live workers, one of which perhaps had no time left."""
        self.saturated_ns += step.ns if saturated else 0
        if self._open is None or not self._open.extend(step.made_of):
            self._close()
            self._open = step.made_of.copy()
        self._ns += step.ns
        self._worker_ns += workers * step.ns
        if self._ns >= NS:
            self._close()

    def _close(self) -> None:
        self.pool, self.worker_ns = self._sums()
        self._open, self._ns, self._worker_ns = None, 0, 0.0

    def _sums(self) -> tuple[list[float], float]:
        """With the open second."""
        if self._open is None or not self._ns:
            return self.pool, self.worker_ns
        part = min(1.0, sum(map(self._open.cell, WAITS)) / self._ns)
        pool = [total + part * ns for total, ns in zip(self.pool, self._open.pool())]
        return pool, self.worker_ns + part * self._worker_ns

    def of_all(self, pool: Sequence[float], worker_ns: float) -> tuple[list[float], float]:
        """Of what workers did in all steps (``pool``, ns by leaf, in ``worker_ns`` of live workers x time) the part
        that goes with the waits: all of it where the steps wait alike, or where none waits."""
        waited, waited_worker_ns = self._sums()
        much = max(0.0, MUCH * sum(waited))
        scale = min((all_ns / ns for all_ns, ns in zip(pool, waited) if ns > much), default=0.0)
        if not scale:
            return list(pool), worker_ns
        return [min(ns, scale * part) for ns, part in zip(pool, waited)], min(worker_ns, scale * waited_worker_ns)
