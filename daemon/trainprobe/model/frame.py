"""The core's only input: one frame per sampling pass. A recording is a sequence of frames."""

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
class FrameSamples:
    """What the collectors read in one pass (empty or None: not due). A new sample is declared only here:
    the observer, the wire format and the recorder take the fields from this class."""

    processes: tuple[ProcessSample, ...] = field(default=(), kw_only=True)
    memory: tuple[MemorySample, ...] = field(default=(), kw_only=True)
    quotas: tuple[QuotaSample, ...] = field(default=(), kw_only=True)
    counted: tuple[CountSample, ...] = field(default=(), kw_only=True)  # threads whose instructions the core asked for
    limits: tuple[LimitSample, ...] = field(default=(), kw_only=True)
    descriptors: tuple[DescriptorSample, ...] = field(default=(), kw_only=True)
    shared: tuple[SharedSample, ...] = field(default=(), kw_only=True)
    spaces: tuple[SpaceSample, ...] = field(default=(), kw_only=True)
    sizes: tuple[FileSizeSample, ...] = field(default=(), kw_only=True)  # of log files
    gpus: tuple[GpuSample, ...] = field(default=(), kw_only=True)
    orphans: tuple[OrphanSample, ...] | None = field(default=None, kw_only=True)  # all of the host; None: not read
    host: HostSample | None = field(default=None, kw_only=True)


@dataclass(frozen=True, slots=True)
class Frame(FrameSamples):
    """Events since the last frame in time order, and samples taken at ``at``."""

    at: Moment
    events: tuple[Event, ...] = ()
    threads: tuple[ThreadSample, ...] = ()
    rivals: tuple[RivalSample, ...] = ()  # the processes that use the CPUs, while a training waits for one
    inspections: tuple[Inspection, ...] = ()  # of threads that the core asked to inspect
    sources: tuple[SourceState, ...] = ()
    cost: CostSample | None = None
    events_lost: dict[str, int] = field(default_factory=dict)  # cumulative, by probe
