"""From which value on a figure is yellow or red, each with its reason; named once, used by all dashboards."""

from __future__ import annotations

from dataclasses import dataclass

GREEN, YELLOW, RED, BLUE = "green", "#EAB839", "red", "blue"


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


LOST_SHARE = Levels(0.02, 0.10)  # a checkpoint each half hour stays below 2 %; one tenth is worth somebody's time
PRODUCTIVE_SHARE = Levels(0.90, 0.75)
SECONDS_WITHOUT_STEP = Levels(60, 600)  # ten minutes: what TrainingNoProgress waits for
STEP_VARIATION = Levels(0.10, 0.30)  # a steady training varies by less than a tenth
STALLED_RUNS = Levels(1, 5)
FILL_SHARE = Levels(0.80, 0.95)  # memory, descriptors, /dev/shm, swap, disks: of what is there
EXHAUSTION_SECONDS = Levels(3600, 600)  # an hour is time to act, ten minutes are not
GPU_UTILIZATION = Levels(0.80, 0.50)
GPU_CELSIUS = Levels(80, 90)
PRESSURE = Levels(0.05, 0.20)
COUNT_OF_FAILURES = Levels(1, 2)
REPORT_AGE_SECONDS = Levels(10, 30)  # after these the exporter itself is not ready any more
EVENTS_LOST = Levels(1, 100)
DAEMON_CPU = Levels(0.02, 0.05)
SWAP_IN_PAGES = Levels(1, 1000)
