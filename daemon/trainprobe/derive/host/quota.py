"""What a run's cgroup allows: how long its CPU quota throttled in an interval, and how fast devices may be."""

from __future__ import annotations

from collections import deque
from dataclasses import field

from trainprobe.model.dataclass import dataclass
from trainprobe.model.sample import IoLimitSample, QuotaSample

KEEP = 64


@dataclass(frozen=True, slots=True)
class ThrottledInterval:
    """What the quota did between two samples about an interval. ``throttled_ns`` is summed over processors."""

    quota_cpus: float | None
    periods: int
    throttled_periods: int
    throttled_ns: int
    cgroup: str


@dataclass(slots=True)
class Quota:
    """The last samples of one run."""

    io_limits: tuple[IoLimitSample, ...] = ()  # as last read
    samples: deque[tuple[int, QuotaSample]] = field(default_factory=lambda: deque(maxlen=KEEP))

    def add_sample(self, sample: QuotaSample, at_ns: int) -> None:
        """Adds a sample; one of another cgroup starts over."""
        if self.samples and self.samples[-1][1].cgroup != sample.cgroup:
            self.samples.clear()
        self.samples.append((at_ns, sample))

    def over(self, start_ns: int, end_ns: int) -> ThrottledInterval | None:
        """From the last sample before the interval to the first one after it, where they exist; None with fewer than
        two samples."""
        if len(self.samples) < 2:
            return None
        before = [s for at, s in self.samples if at <= start_ns]
        after = [s for at, s in self.samples if at >= end_ns]
        first = before[-1] if before else self.samples[0][1]
        last = after[0] if after else self.samples[-1][1]
        if last is first:
            return None
        return ThrottledInterval(
            last.quota_cpus if last.quota_cpus is not None else first.quota_cpus,
            last.periods - first.periods,
            last.throttled_periods - first.throttled_periods,
            last.throttled_ns - first.throttled_ns,
            last.cgroup,
        )
