"""One look at the world: everything that the core is ever told. A recording is a sequence of frames."""

from __future__ import annotations

from dataclasses import dataclass, field

from trainprobe.model.event import Event, ThreadSample
from trainprobe.model.moment import Moment
from trainprobe.model.sample import (
    CostSample,
    CountSample,
    DescriptorSample,
    FileSizeSample,
    GpuSample,
    HostSample,
    Inspection,
    LimitSample,
    MemorySample,
    OrphanSample,
    ProcessSample,
    QuotaSample,
    RivalSample,
    SharedSample,
    SourceState,
    SpaceSample,
)


@dataclass(frozen=True, slots=True)
class Frame:
    """Events since the last frame in time order, and samples taken at ``at`` (empty when not due)."""

    at: Moment
    events: tuple[Event, ...] = ()
    threads: tuple[ThreadSample, ...] = ()
    processes: tuple[ProcessSample, ...] = ()
    memory: tuple[MemorySample, ...] = ()
    quotas: tuple[QuotaSample, ...] = ()
    rivals: tuple[RivalSample, ...] = ()  # who uses the processors, while a training waits for one
    inspections: tuple[Inspection, ...] = ()  # of threads that the core asked to have looked at
    counted: tuple[CountSample, ...] = ()  # of threads that the core asked to have counted
    limits: tuple[LimitSample, ...] = ()
    descriptors: tuple[DescriptorSample, ...] = ()
    shared: tuple[SharedSample, ...] = ()
    spaces: tuple[SpaceSample, ...] = ()
    sizes: tuple[FileSizeSample, ...] = ()  # of log files
    gpus: tuple[GpuSample, ...] = ()
    orphans: tuple[OrphanSample, ...] | None = None  # all of the host; None: not looked
    host: HostSample | None = None
    sources: tuple[SourceState, ...] = ()
    cost: CostSample | None = None
    events_lost: dict[str, int] = field(default_factory=dict)  # cumulative, by probe
