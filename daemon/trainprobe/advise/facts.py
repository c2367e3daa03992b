"""A setting, and what proposals are computed from."""

from __future__ import annotations

from trainprobe.advise.loader import Loader
from trainprobe.advise.memory import MemoryDemand
from trainprobe.model.dataclass import dataclass
from trainprobe.model.message import Message
from trainprobe.model.report import Rank, Stall
from trainprobe.text.saying import Saying

CALLS = "fake_batching.fetches"  # the evidence of how often next() is called for a backward
NOT_READ = "logging.blocked_seconds"  # the evidence that whoever reads the output keeps the training waiting
HANDED_OVER = 0.0005
"""Seconds that the driver needs to take a batch from a worker: queue, unpickling, mapping."""
PART = 0.1  # of a stall: what a cause needs in it to be counted there
LEAST_GAIN = 0.01  # of the run: what gains less is not proposed


@dataclass(frozen=True, slots=True)
class ProposedSetting:
    """One line. ``proposed`` None: leave it. ``gain``: seconds of the watched run that are safe to promise;
    ``gain_at_most``: what they may be, where that is more; ``memory``: of the run, in bytes."""

    name: str
    now: Saying
    proposed: str | None
    gain: float
    reason: Saying
    limit: Saying | None = None
    memory: int | None = None
    verdict: str = ""  # of the memory: safe, tight, out of memory
    gain_at_most: float | None = None
    setting: Message | None = None  # what the framework calls it


@dataclass(frozen=True, slots=True)
class SettingsInput:
    rank: Rank
    loader: Loader | None
    memory: MemoryDemand | None

    @property
    def worth(self) -> float:
        """Seconds from which a gain is proposed."""
        return LEAST_GAIN * self.rank.wall_seconds

    @property
    def calls(self) -> int:
        """Of next() for a batch that the loop puts together; 1: it does not."""
        fake = (one for one in self.rank.bottlenecks if one.cause == "fake_batching")
        told = (one.value for found in fake for one in found.evidence if one.key == CALLS)
        return next((round(value) for value in told if isinstance(value, (int, float))), 1)

    @property
    def workers_beside(self) -> int:
        """Workers of other loaders, as an evaluation's, that live beside the training's at most."""
        if self.loader is None or self.memory is None or not self.loader.workers:
            return 0
        return max(0, self.memory.workers - self.loader.workers)

    def handed_over(self, gain: float) -> float:
        """Of what workers gain, what a loop that puts its batches together by itself does not get: each call costs."""
        if self.loader is None or self.loader.workers:
            return 0.0
        return min(gain / 2, HANDED_OVER * (self.calls - 1) * self.rank.ordinary.count)

    def stalls(self, *causes: str) -> list[Stall]:
        """Those that were mostly of these causes."""
        return [stall for stall in self.rank.stalls if stall.cause in causes]

    def sharing(self, cause: str) -> list[Stall]:
        """Those in which it has a part, whatever they were mostly of: beside other programs that may be contention."""
        return [stall for stall in self.rank.stalls if stall.shares.get(cause, 0.0) >= PART * stall.seconds > 0]

    def stalled(self, *causes: str) -> float:
        return sum(self.rank.counters.stall_seconds.get(cause, 0.0) for cause in causes)
