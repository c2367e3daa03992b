"""One launch of a training: what a frame holds of it goes to its ranks and to its limits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from trainprobe.causes.policy import Policy
from trainprobe.causes.situation import GpuFault
from trainprobe.derive.host.devices import Devices
from trainprobe.derive.workers import CRASHES
from trainprobe.model.cells import Level
from trainprobe.model.dataclass import dataclass
from trainprobe.model.event import (
    CallFailed,
    FileEvent,
    FileLooked,
    MarkRow,
    ProcessEvent,
    ProcessEventKind,
    RankSeen,
    RunStarted,
    StackSeen,
    StartSeen,
    ThreadSample,
)
from trainprobe.model.frame import Frame
from trainprobe.model.moment import Moment
from trainprobe.model.resume_state import KeptRank, ResumedRun
from trainprobe.model.sample import (
    CountSample,
    GpuSample,
    HostSample,
    Inspection,
    LimitSample,
    MemorySample,
    ProcessSample,
)
from trainprobe.model.steprow import RankSteps
from trainprobe.pipeline.busy import OtherPrograms
from trainprobe.pipeline.culprit import name_culprits
from trainprobe.pipeline.limits import DESCRIPTORS, RunLimits, renew
from trainprobe.pipeline.rank import event_handlers
from trainprobe.pipeline.rank.collectives import match
from trainprobe.pipeline.rank.ending import end
from trainprobe.pipeline.rank.lives import Sender
from trainprobe.pipeline.rank.resume import kept_of, resume
from trainprobe.pipeline.rank.steps import judge_open_step, note_waited_workers
from trainprobe.pipeline.rank.wait_baseline_judge import judge_second
from trainprobe.pipeline.report.restart_merge import open_stall
from trainprobe.pipeline.run.ranks import Ranks

SIGBUS = 7
TORCHRUN = ("torchrun", "torch.distributed")


@dataclass(slots=True)
class RunState:
    """A run. ``add_*`` take what a frame holds, in time order; those of events return whether it is its own."""

    started: RunStarted
    policy: Policy
    devices: Devices = field(default_factory=Devices)
    limits: RunLimits = field(default_factory=RunLimits)
    others: OtherPrograms = field(default_factory=OtherPrograms)
    memory: MemorySample | None = None
    end_ns: int | None = None
    kept: ResumedRun | None = None  # what an earlier daemon kept of it
    stack_ns: int = 0  # when a stack was asked for last
    ranks: Ranks = field(init=False)

    def __post_init__(self) -> None:
        self.ranks = Ranks(self.policy, self.started.attached, self.devices)

    # ---- events ----
    def add_rank(self, seen: RankSeen) -> None:
        self.ranks.add(seen)
        for rank in self.ranks.by_pid.get(seen.pid, ()):
            self.limits.hand_over(rank)

    def add_row(self, row: MarkRow) -> bool:
        if row.pid not in self.ranks.by_pid:
            return False
        rank = self.ranks.of_row(row)
        if rank is None:
            return True
        stepped = rank.stepped
        event_handlers.add_row(rank, row)
        if rank.stepped and not stepped:
            self.ranks.count_stepping()
        return True

    def add_file_event(self, event: FileEvent) -> bool:
        ranks = self.ranks.of(event.pid)
        for rank in ranks:
            if not rank.lives.workers.compiles(event.pid):  # what a compiler writes is neither save nor log
                rank.files.add_event(event)
        return bool(ranks)

    def add_process_event(self, event: ProcessEvent) -> bool:
        """False also of an OOM victim, which may concern several runs."""
        ranks = self.ranks.of(event.pid) or (self.ranks.of(event.ppid) if event.ppid else [])
        if not ranks:
            return False
        if event.kind == ProcessEventKind.OOM:
            self.limits.add_victim(event, ranks[0])
        elif event.kind == ProcessEventKind.SIGNAL and event.signal == SIGBUS and not event.by_user:
            self.limits.add_bus_error(event)
        by = self._sender(event)
        for rank in ranks:
            event_handlers.add_process_event(rank, event, by)
        if event.kind == ProcessEventKind.EXIT and event.pid == ranks[0].seen.pid:
            self.limits.add_end()
        return event.kind != ProcessEventKind.OOM

    def _sender(self, event: ProcessEvent) -> Sender:
        """Who sent a signal. For the kernel's own any process may be on the CPU, except for what one did itself."""
        sender = event.sender_pid
        if sender is None or not (event.by_user or (sender == event.pid and event.signal in CRASHES)):
            return Sender.OUTSIDE
        if self.ranks.owns(sender):
            return Sender.OF_THE_RUN
        if sender != self.started.launcher_pid:
            return Sender.OUTSIDE
        torchrun = any(name in word for word in self.started.command for name in TORCHRUN)
        return Sender.LAUNCHER if torchrun else Sender.OF_THE_RUN

    def add_stack(self, event: StackSeen) -> bool:
        """False also of its own: a stack may concern several runs."""
        for rank in self.ranks.by_pid.get(event.pid) or self.ranks.of(event.pid)[:1]:
            event_handlers.add_stack(rank, event)
        return False

    def add_start(self, event: StartSeen) -> bool:
        for rank in self.ranks.by_pid.get(event.pid, ())[:1]:
            rank.lives.start = event
            rank.open.framework.add_imported(event.loops)
        return event.pid in self.ranks.by_pid

    def add_look(self, event: FileLooked) -> bool:
        for rank in self.ranks.by_pid.get(event.pid, ()):
            event_handlers.add_look(rank, event)
        return event.pid in self.ranks.by_pid

    def add_failure(self, event: CallFailed) -> bool:
        ranks = self.ranks.of(event.pid)
        if not ranks:
            return False
        self.limits.add_failure(event, ranks[0].seen.pid)
        if self.limits.keeps_from_sending(event):
            for rank in ranks:
                rank.lives.add_unsent(event)
        return True

    def add_end(self, at_ns: int) -> None:
        self.end_ns = at_ns
        for rank in self.ranks:
            end(rank, at_ns)
            self.limits.end_gpus(rank)

    # ---- samples ----
    def add_inspection(self, seen: Inspection, at_ns: int) -> None:
        for rank in self.ranks.of(seen.pid):
            event_handlers.add_inspection(rank, seen, at_ns)

    def add_thread_sample(self, sample: ThreadSample, at_ns: int) -> None:
        drivers = self.ranks.by_pid.get(sample.pid, ())
        for rank in drivers:
            event_handlers.add_thread_sample(rank, sample, at_ns)
            if sample.tid == rank.tid:
                judge_second(rank, sample, at_ns)
        if not drivers and sample.level == Level.COARSE:
            for rank in self.ranks.of(sample.pid)[:1]:
                event_handlers.add_thread_sample(rank, sample, at_ns)

    def add_host_sample(self, host: HostSample, at_ns: int) -> None:
        self.others.add_sample(host, at_ns)
        for rank in self.ranks.live:
            if rank.progress.baseline.stands:
                rank.surroundings.busy.add_sample(host, at_ns)
            if host.pace_ns:
                rank.ordinary.growth.trend.add_pace(host.pace_ns)
            event_handlers.add_host_sample(rank, host, at_ns)

    def add_process_sample(self, sample: ProcessSample) -> None:
        for rank in self.ranks.of(sample.pid)[:1]:
            event_handlers.add_process_sample(rank, sample)

    def end_reading(self, at_ns: int) -> None:
        """All processes of this frame have been added."""
        read = (sample for rank in self.ranks for sample in rank.memory.processes.values())
        cpu_ns = {(one.pid, one.started_ns): one.cpu_ns for one in read if one.cpu_ns is not None}
        others = self.others.read(cpu_ns, at_ns)
        used = self.memory.used_bytes if self.memory is not None else None
        for rank in self.ranks:
            event_handlers.end_reading(rank, at_ns, used)
            rank.ordinary.growth.trend.surroundings(others)
        self.ranks.count_threads()

    def add_count(self, count: CountSample) -> None:
        for rank in self.ranks:
            if rank.tid == count.tid:
                rank.ordinary.counting.add_sample(count)

    def add_gpus(self, samples: Sequence[GpuSample], faults: Sequence[GpuFault], now_ns: int) -> None:
        self.limits.add_gpu_faults(faults)
        for rank in self.ranks.live if samples else ():
            self.limits.add_gpus(rank, samples, now_ns)

    def add_limits(self, frame: Frame, open_fds: Sequence[LimitSample], now_ns: int) -> None:
        """What a frame has of the things that a limit is for: descriptors, room, memory by role. ``open_fds``: those of
        the run's processes."""
        limits, ranks = self.limits, self.ranks
        limits.forget_all_but(ranks.by_pid)
        renew(limits.descriptors, {d.pid: d for d in frame.descriptors if ranks.owns(d.pid)}, DESCRIPTORS)
        limits.add_spaces({s.path: s for s in frame.spaces if ranks.owns(s.pid)})
        for rank in ranks:
            sizes = {(s.dev, s.ino): s.bytes for s in frame.sizes if s.pid == rank.seen.pid}
            rank.files.saves.logs.feed_sizes(sizes)
            for reading in open_fds:
                if rank.lives.workers.owns(reading.pid):
                    rank.memory.add_open_fds(reading.used)
            if frame.processes and rank.end_ns is None:
                limits.add_processes(rank, now_ns)
        if frame.orphans is not None:
            limits.add_orphans(frame.orphans, ranks.by_pid)

    # ---- judging ----
    def judge(self, now_ns: int) -> bool:
        """Judge open steps and limits; whether a limit has news."""
        for rank in self.ranks.live:
            note_waited_workers(rank, now_ns)
            judge_open_step(rank, now_ns)
        match(
            {
                name: rank.ordinary.collectives
                for rank, _, name in self.ranks.named()
                if rank.stepped and rank.end_ns is None
            }
        )
        every = list(self.ranks)
        name_culprits(every, now_ns)
        return self.limits.judge(every, now_ns, over=self.end_ns is not None)

    def go_on(self, kept: ResumedRun) -> None:
        """An earlier process of ours watched this run."""
        self.kept = kept
        ids = {told.pid: stall.id for told in kept.told if (stall := open_stall(told)) is not None}
        for found in kept.ranks:
            if (ranks := self.ranks.by_pid.get(found.pid)) and not ranks[0].stepped:
                resume(ranks[0], found, kept.at_ns, ids.get(found.pid, ""))
        self.ranks.count_stepping()

    def kept_ranks(self) -> dict[str, KeptRank]:
        """By the ranks' names, what another process would need to go on with them."""
        named = ((name, kept_of(rank)) for rank, _, name in self.ranks.named())
        return {name: kept for name, kept in named if kept is not None}

    def take_steps(self, at: Moment) -> list[RankSteps]:
        taken = ((name, rank.progress.buffer.drain_rows(at)) for rank, _, name in self.ranks.named())
        return [RankSteps(self.started.run, name, rows) for name, rows in taken if rows]
