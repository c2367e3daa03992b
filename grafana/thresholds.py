"""From which value on a figure is yellow or red, each with its reason; named once, used by all dashboards."""

from __future__ import annotations

from dataclasses import dataclass

from grafana.rules import thresholds as limits
from trainprobe.model.vocabulary import REPORT_PAUSE_SECONDS, REPORT_STALE_SECONDS

GREEN, YELLOW, RED = "green", "#EAB839", "red"


@dataclass(frozen=True)
class Levels:
    """Yellow from ``warn`` and red from ``bad`` on; the other way round where less is worse (``bad`` < ``warn``)."""

    warn: float
    bad: float

    @property
    def steps(self) -> tuple[tuple[float | None, str], ...]:
        if self.bad > self.warn:
            return ((None, GREEN), (self.warn, YELLOW), (self.bad, RED))
        return ((None, RED), (self.bad, YELLOW), (self.warn, GREEN))


# Red is where an alert fires, for what has one; yellow is ours.
LOST_SHARE = Levels(0.02, limits.LOST_BUDGET_SHARE)  # a checkpoint each half hour stays below 2 %
SECONDS_WITHOUT_STEP = Levels(60, limits.NO_PROGRESS_SECONDS)
MEMORY_FILL = Levels(0.80, limits.CGROUP_FILL_SHARE)
SWAP_FILL = Levels(0.70, limits.SWAP_FILL_SHARE)
SHM_FILL = Levels(0.70, limits.SHM_FILL_SHARE)
FD_FILL = Levels(0.70, limits.FD_FILL_SHARE)
MEMORY_LEFT_SECONDS = Levels(3600, limits.MEMORY_EXHAUSTION_SECONDS)
FD_LEFT_SECONDS = Levels(4 * 3600, limits.FD_EXHAUSTION_SECONDS)
PRESSURE = Levels(0.05, limits.PRESSURE_SHARE)
SWAP_IN_PAGES = Levels(1, limits.SWAP_IN_PAGES_PER_SECOND)

LATE_SHARE = Levels(limits.LATE_SHARE, limits.STRAGGLER_SHARE)

# These have no alert.
PRODUCTIVE_SHARE = Levels(0.90, 0.75)
STEP_VARIATION = Levels(0.10, 0.30)  # a steady training varies by less than a tenth
STALLED_RUNS = Levels(1, 5)
GPU_UTILIZATION = Levels(0.80, 0.50)
GPU_CELSIUS = Levels(80, 90)
COUNT_OF_FAILURES = Levels(1, 2)
REPORT_AGE_SECONDS = Levels(REPORT_PAUSE_SECONDS, REPORT_STALE_SECONDS)  # then the exporter is not ready any more
EVENTS_LOST = Levels(1, 100)
DAEMON_CPU = Levels(0.02, 0.05)
