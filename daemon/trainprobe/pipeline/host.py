"""The host's part of the report: what frames say that belongs to no run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace

from trainprobe.model.dataclass import dataclass
from trainprobe.model.event import GpuXid
from trainprobe.model.frame import Frame
from trainprobe.model.message import template
from trainprobe.model.moment import NS, Moment
from trainprobe.model.report import BlockIo, Cost, Evidence, Host, Orphan, Report, Run, SharedMemory, Source
from trainprobe.model.sample import CostSample, HostSample, OrphanSample, SharedSample, SourceState
from trainprobe.pipeline.gpus import GpuTable

LEFT = template("shm_leak.left", "left")
LEAKED = 256
"""Dead processes that the report names, of all /dev/shm in equal parts: this part of it must fit in any case."""


@dataclass(slots=True)
class HostState:
    """The latest samples of the host, and what watching it costs."""

    host: Host
    sample: HostSample | None = None
    gpus: GpuTable = field(default_factory=GpuTable)
    sources: dict[str, SourceState] = field(default_factory=dict)
    shared: dict[tuple[str, str], SharedSample] = field(default_factory=dict)
    orphans: tuple[OrphanSample, ...] | None = None
    lost: Mapping[str, int] = field(default_factory=dict)  # events, by probe
    cost: CostSample | None = None
    cost_from: tuple[float, int] | None = None  # CPU seconds and ns at the first sample: compiling came before it

    def add_frame(self, frame: Frame) -> None:
        now_ns = frame.at.monotonic_ns
        self.sources.update({source.name: source for source in frame.sources})
        renewed = {run for shared in frame.shared for run in shared.runs}  # they may have mounted another one
        self.shared = {key: one for key, one in self.shared.items() if not renewed.intersection(one.runs)}
        self.shared.update({(shared.device, shared.container): shared for shared in frame.shared})
        if frame.orphans is not None:
            self.orphans = frame.orphans
        self.gpus.faults.clear()
        for sample in frame.gpus:
            self.gpus.add_sample(sample, now_ns)
        for event in frame.events:
            if isinstance(event, GpuXid):
                self.gpus.add_xid(event)
        self.sample = frame.host or self.sample
        self.cost = frame.cost or self.cost
        if frame.cost is not None and self.cost_from is None:
            self.cost_from = (frame.cost.cpu_seconds, now_ns)
        self.lost = frame.events_lost or self.lost

    @property
    def cpus(self) -> int:
        return self.sample.cpus if self.sample is not None else self.host.cpus

    def report(self, at: Moment, runs: list[Run]) -> Report:
        cost, orphans = self.cost or CostSample(0.0, 0), self.orphans
        return Report(
            generated=at.wall_ns / NS,
            generated_monotonic=at.monotonic_ns / NS,
            host=self._host(),
            sources={
                s.name: Source(s.state.value, s.reason, s.remedy, s.message, s.remedy_message, s.errors, s.seconds)
                for s in self.sources.values()
            },
            events_lost=sum(self.lost.values()),
            events_lost_by=dict(self.lost),
            cost=Cost(
                cost.cpu_seconds,
                cost.rss_bytes,
                cost.bpf_seconds,
                self._share(at),
                cost.bpf_runs,
                None if self.cost_from is None else self.cost_from[0],
                cost.stacks_seconds,
            ),
            runs=runs,
            gpus=self.gpus.states(),
            shared_memory=[_shared(sample, max(1, LEAKED // len(self.shared))) for sample in self.shared.values()],
            orphans=None
            if orphans is None
            else [Orphan(one.pid, one.comm, one.pss_bytes, one.shm_bytes, one.gpu_files) for one in orphans],
        )

    def _share(self, at: Moment) -> float | None:
        """What watching costs since it began, as a part of one CPU over that time."""
        if self.cost is None or self.cost_from is None or at.monotonic_ns <= self.cost_from[1]:
            return None
        spent = self.cost.cpu_seconds - self.cost_from[0] + (self.cost.bpf_seconds or 0.0)
        return spent / ((at.monotonic_ns - self.cost_from[1]) / NS)

    def _host(self) -> Host:
        host, sample = self.host, self.sample
        if sample is None:
            return host
        return replace(
            host,
            cpus=sample.cpus or host.cpus,
            memory_bytes=sample.memory_bytes if sample.memory_bytes is not None else host.memory_bytes,
            swap_used_bytes=sample.swap_used_bytes,
            swap_size_bytes=sample.swap_size_bytes,
            swap_in_pages=sample.swap_in_pages,
            pressure_seconds=sample.pressure,
            block_io=_block_io(sample),
        )


def _block_io(sample: HostSample) -> list[BlockIo]:
    names = {disk.dev: disk.device for disk in sample.disks}
    return [
        BlockIo(names[one.dev], one.operation, list(one.counts), one.ns / NS)
        for one in sample.block_io
        if one.dev in names
    ]


def _shared(sample: SharedSample, named: int) -> SharedMemory:
    leaks = sorted(sample.leaks, key=lambda leak: -leak.bytes)[:named]
    leaked = [Evidence.of(LEFT(), leak.bytes, "bytes", leak.pid, f"/dev/shm/{leak.name}") for leak in leaks]
    used, size = sample.used_bytes, sample.size_bytes
    return SharedMemory(sample.device, sample.container, used, size, sample.leaked_bytes, leaked)
