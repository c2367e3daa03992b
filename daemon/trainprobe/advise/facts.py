"""A setting, and what proposals are computed from."""

from __future__ import annotations

from dataclasses import dataclass

from trainprobe.advise.loader import Loader
from trainprobe.advise.memory import MemoryDemand
from trainprobe.model.message import Message
from trainprobe.model.report import Rank, Stall
from trainprobe.text.saying import Saying

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

    def stalls(self, *causes: str) -> list[Stall]:
        """Those that were mostly of these causes."""
        return [stall for stall in self.rank.stalls if stall.cause in causes]

    def stalled(self, *causes: str) -> float:
        return sum(self.rank.counters.stall_seconds.get(cause, 0.0) for cause in causes)
