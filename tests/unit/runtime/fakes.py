"""Stand-ins for the kernel, the targets, the collectors and the core: they say what they are told to say."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from trainprobe.collect.source import Failed
from trainprobe.model.event import Event, FileEvent, StackSeen, ThreadSample
from trainprobe.model.frame import Frame, FrameSamples
from trainprobe.model.moment import NS, Moment
from trainprobe.model.report import Report
from trainprobe.model.sample import BlockIoSample, Inspection, RivalSample, WrittenFile
from trainprobe.model.step_deadline import Armed, DriverProgress
from trainprobe.model.steprow import RankSteps


class FakeClock:
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self.ns = 100 * NS

    def __call__(self) -> Moment:
        return Moment(self.ns, 1_760_000_000 * NS + self.ns)


class FakeKernel:
    def __init__(self) -> None:
        self.ring: list[Event] = []
        self.open: list[FileEvent] = []
        self.samples: list[ThreadSample] = []
        self.faults: list[bool] = []
        self.looks: list[bool] = []
        self.closed = False
        self.broken: Exception | None = None
        self.reached: dict[int, DriverProgress] = {}
        self.alarms: list[int] = []
        self.tells_ended = self.tells_together = False
        self.has_clock = True
        self.disks: tuple[BlockIoSample, ...] = ()
        self.refused = ""
        self.unread: list[tuple[int, int]] = []

    def fileno(self) -> int:
        return -1

    def progress(self, tid: int) -> DriverProgress | None:
        return self.reached.get(tid)

    def alarm(self, steps: Collection[Armed], *, ended: bool, together: bool) -> bool:
        self.tells_ended, self.tells_together = ended, together
        self.alarms = [one.tid for one in steps] if self.has_clock else []
        return self.has_clock

    def drain(self) -> list[Event]:
        if self.broken:
            raise self.broken
        taken, self.ring = self.ring, []
        return taken

    def threads(self, pids: Collection[int] | None = None) -> list[ThreadSample]:
        if self.broken:
            raise self.broken
        return self.samples

    def open_files(self) -> list[FileEvent]:
        return self.open

    def fault_tracing(self, on: bool) -> None:
        self.faults.append(on)

    def look_tracing(self, on: bool) -> None:
        self.looks.append(on)

    def lost(self) -> dict[str, int]:
        return {"ring": 0}

    def block_io(self) -> tuple[BlockIoSample, ...]:
        return self.disks

    def cost(self) -> tuple[float | None, dict[str, int]]:
        return None, {}

    def refusal(self) -> str:
        return self.refused

    def hung(self) -> list[tuple[int, int]]:
        return self.unread

    def close(self) -> None:
        self.closed = True


@dataclass(frozen=True)
class FakeWatched:
    pid: int = 7
    ticks: int = 1
    started_ns: int = 1
    role: str = "driver"
    run: str = "r"


@dataclass
class FakeTargets:
    """Lets every event through."""

    due: int | None = None
    refused: str = ""
    silent: tuple[int, ...] = ()
    found: list[Event] = field(default_factory=list)  # by the next search
    watched: list[FakeWatched] = field(default_factory=lambda: [FakeWatched()])

    def step(self, now: Moment, events: Sequence[Any]) -> list[Event]:
        found, self.found = self.found, []
        return [*found, *events]

    def processes(self) -> list[FakeWatched]:
        return self.watched

    def gpu_users(self, now: Moment, pids: Collection[int]) -> None:
        self.users = set(pids)

    def refusal(self) -> str:
        return self.refused

    def hanging(self) -> tuple[int, ...]:
        return self.silent

    def died(self) -> tuple[int, ...]:
        return ()

    def abandoned(self) -> tuple[tuple[int, int, int], ...]:
        return ()

    def seconds(self) -> float:
        return 0.0

    def due_ns(self) -> int | None:
        return self.due


class FakeSampler:
    broken = False
    inspected: list[tuple[int, int]] = []
    samples = FrameSamples()
    times = 1
    far = True
    glances = 0
    counted: tuple[tuple[int, int], ...] = ()
    due: int | None = None

    def due_ns(self) -> int | None:
        return self.due

    def read(self, now: Moment, watched: Sequence[Any], events: Sequence[Event]) -> FrameSamples:
        if self.broken:
            raise OSError(5, "Input/output error")
        return self.samples

    def logged(self, now: Moment) -> Sequence[Any]:
        return ()

    def read_limits(self, now: Moment, watched: Sequence[Any]) -> None:
        self.glances += 1

    def lengthen_pauses(self, times: int) -> None:
        self.times = times

    def count(self, threads: Sequence[tuple[int, int]]) -> None:
        self.counted = tuple(threads)

    def inspect(self, now: Moment, threads: Sequence[tuple[int, int]]) -> tuple[Inspection, ...]:
        self.inspected = [*self.inspected, *threads]
        return tuple(Inspection(pid, tid, "D") for pid, tid in threads)

    def look_at(self, directories: tuple[tuple[int, str], ...], files: tuple[WrittenFile, ...]) -> None:
        self.directories = directories

    def rivals(self, now: Moment) -> tuple[RivalSample, ...]:
        return (RivalSample(9, "stress", 1.0, 1),)


class FakeStacks:
    def __init__(self) -> None:
        self.asked: list[tuple[int, int, str]] = []
        self.answer: StackSeen | None = None
        self.hung: Failed | None = None
        self.closed = False
        self.cpu_seconds = 0.0

    def in_turn(self, threads: Sequence[tuple[int, int]]) -> Sequence[tuple[int, int]]:
        return threads

    def start(self, pid: int, tid: int, now_ns: int, run: str = "") -> bool:
        self.asked.append((pid, tid, run))
        return True

    def fileno(self) -> int | None:
        return None

    def poll(self, now_ns: int) -> StackSeen | None:
        answer, self.answer = self.answer, None
        return answer

    def trouble(self, now_ns: int) -> Failed | None:
        return self.hung

    def close(self) -> None:
        self.closed = True


@dataclass
class FakeWants:
    detail: bool = False
    stacks: tuple[tuple[int, int], ...] = ()
    inspect: tuple[tuple[int, int], ...] = ()
    rivals: bool = False
    faults: bool = False
    looks: bool = False
    spaces: tuple[tuple[int, str], ...] = ()
    files: tuple[WrittenFile, ...] = ()
    tell: bool = False
    stable_ns: int = 0
    count: tuple[tuple[int, int], ...] = ()


@dataclass
class FakeCore:
    """Keeps every frame that it sees."""

    frames: list[Frame] = field(default_factory=list)
    wanted: FakeWants = field(default_factory=FakeWants)
    alarms: list[Armed] = field(default_factory=list)
    broken: Exception | None = None

    def step(self, frame: Frame) -> None:
        if self.broken:
            raise self.broken
        self.frames.append(frame)

    def report(self, at: Moment, *, reuse: bool = False) -> Report:
        return Report(generated=at.wall_ns / NS, events_lost=len(self.frames))

    def take_steps(self, at: Moment) -> list[RankSteps]:
        del at
        return []

    def armed(self) -> list[Armed]:
        return self.alarms

    def wants(self) -> FakeWants:
        return self.wanted
