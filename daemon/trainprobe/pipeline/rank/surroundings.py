"""What surrounds a rank: the host, its devices, the run's CPU quota and the rank's GPUs."""

from __future__ import annotations

from dataclasses import field

from trainprobe.derive.host.devices import Devices
from trainprobe.derive.host.gpu_speed import GpuSpeed
from trainprobe.derive.host.quota import Quota
from trainprobe.derive.memory.swapping import Swapping
from trainprobe.model.dataclass import dataclass
from trainprobe.pipeline.busy import ComputeThreads, CpuInUse, RunProcesses


@dataclass(slots=True)
class GpuInOrdinary:
    """How busy the rank's GPUs were in readings without a stall, after its first step."""

    busy_ns: float = 0.0
    seen_ns: int = 0

    def add(self, busy_ns: float, seen_ns: int) -> None:
        self.busy_ns += busy_ns
        self.seen_ns += seen_ns

    @property
    def share(self) -> float | None:
        """None: no reading tells."""
        return self.busy_ns / self.seen_ns if self.seen_ns else None


@dataclass(slots=True)
class Surroundings:
    """Shared by all ranks: ``devices`` of the host, ``quota`` and ``company`` of the run."""

    devices: Devices = field(default_factory=Devices)
    quota: Quota = field(default_factory=Quota)
    company: RunProcesses = field(default_factory=RunProcesses)
    threads: ComputeThreads = field(default_factory=ComputeThreads)
    busy: CpuInUse = field(default_factory=CpuInUse)
    swapping: Swapping = field(default_factory=Swapping)
    gpu_pace: GpuSpeed = field(default_factory=GpuSpeed)
    gpu_ns: tuple[float, int] = (0.0, 0)  # of all its GPUs: busy, and of how long that is known
    gpu_worked_ns: int = 0  # while all of them were busy, of …
    gpu_seen_ns: int = 0
    gpu_in_ordinary: GpuInOrdinary = field(default_factory=GpuInOrdinary)
    _gpu_read_ns: tuple[float, int] = (0.0, 0)

    def gpu_utilization(self) -> float | None:
        """Of the rank's GPUs since the last call; None: not measured."""
        (busy, seen), (busy_before, seen_before) = self.gpu_ns, self._gpu_read_ns
        self._gpu_read_ns = self.gpu_ns
        return (busy - busy_before) / (seen - seen_before) if seen > seen_before else None
