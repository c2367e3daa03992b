"""The core's only input: one frame per sampling pass. A recording is a sequence of frames."""

from __future__ import annotations

from dataclasses import field

from trainprobe.model import sample
from trainprobe.model.dataclass import dataclass
from trainprobe.model.event import Event, ThreadSample
from trainprobe.model.moment import Moment


@dataclass(frozen=True, slots=True)
class FrameSamples:
    """What the collectors read in one pass (empty or None: not due). A new sample is declared only here:
    the observer, the wire format and the recorder take the fields from this class."""

    processes: tuple[sample.ProcessSample, ...] = field(default=(), kw_only=True)
    memory: tuple[sample.MemorySample, ...] = field(default=(), kw_only=True)
    quotas: tuple[sample.QuotaSample, ...] = field(default=(), kw_only=True)
    io_limits: tuple[sample.IoLimitSample, ...] | None = field(
        default=None, kw_only=True
    )  # of all runs; None: not read
    counted: tuple[sample.CountSample, ...] = field(
        default=(), kw_only=True
    )  # threads whose instructions the core asked for
    limits: tuple[sample.LimitSample, ...] = field(default=(), kw_only=True)
    descriptors: tuple[sample.DescriptorSample, ...] = field(default=(), kw_only=True)
    shared: tuple[sample.SharedSample, ...] = field(default=(), kw_only=True)
    spaces: tuple[sample.SpaceSample, ...] = field(default=(), kw_only=True)
    sizes: tuple[sample.FileSizeSample, ...] = field(default=(), kw_only=True)  # of log files
    gpus: tuple[sample.GpuSample, ...] = field(default=(), kw_only=True)
    orphans: tuple[sample.OrphanSample, ...] | None = field(
        default=None, kw_only=True
    )  # all of the host; None: not read
    host: sample.HostSample | None = field(default=None, kw_only=True)


@dataclass(frozen=True, slots=True)
class Frame(FrameSamples):
    """Events since the last frame in time order, and samples taken at ``at``."""

    at: Moment
    events: tuple[Event, ...] = ()
    threads: tuple[ThreadSample, ...] = ()
    rivals: tuple[sample.RivalSample, ...] = ()  # the processes that use the CPUs, while a training waits for one
    inspections: tuple[sample.Inspection, ...] = ()  # of threads that the core asked to inspect
    sources: tuple[sample.SourceState, ...] = ()
    cost: sample.CostSample | None = None
    events_lost: dict[str, int] = field(default_factory=dict)  # cumulative, by probe
