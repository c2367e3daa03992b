"""A driver that lives on paper: it spends nanoseconds in cells, makes marks, and hands out the rows a kernel would."""

from __future__ import annotations

from dataclasses import dataclass, field

from trainprobe.model.cells import CELLS, COMPUTING, LEAVES, Leaf, Level, Region, RowKind, ThreadState, cell
from trainprobe.model.event import (
    Event,
    FileEvent,
    FileEventKind,
    GpuMemoryCalls,
    MarkRow,
    ProcessEvent,
    ProcessEventKind,
    RankSeen,
    RunStarted,
    StepFile,
    ThreadSample,
)
from trainprobe.model.frame import Frame
from trainprobe.model.moment import NS, Moment
from trainprobe.pipeline import Pipeline

PID = 1000
ON_CPU = tuple(cell(region, leaf) for region in Region for leaf in COMPUTING)
START = 10 * NS


def ns(seconds: float) -> int:
    """Seconds as whole nanoseconds."""
    return round(seconds * NS)


@dataclass
class Driver:
    """Spends time and makes marks; ``events`` collects everything in order."""

    pid: int = PID
    tid: int = PID
    now: int = START
    cells: list[int] = field(default_factory=lambda: [0] * CELLS)
    pool: list[int] = field(default_factory=lambda: [0] * LEAVES)
    files: dict[tuple[int, int], StepFile] = field(default_factory=dict)
    region: Region = Region.STEP
    steps: int = 0
    fetches: int = 0
    inline_fetches: int = 0
    backwards: int = 0
    gpu_memory: tuple[int, int, int] = (0, 0, 0)  # ns, allocations, frees
    major_faults: int = 0
    swap_faults: int | None = None  # of these, on no file; None: not told apart
    collected_ns: int = 0  # by the collector in other threads
    ran: float | None = None  # seconds beyond those on a CPU in `cells`, by the scheduler's own count; None: not told
    batch: int | None = None  # bytes of one in shared memory; None: not told
    ahead: int = 4  # batches that workers have made beyond those that were fetched
    events: list[Event] = field(default_factory=list)
    truth: dict[str, float] = field(default_factory=dict)

    def spend(self, seconds: float, leaf: Leaf = Leaf.CPU, region: Region | None = None) -> None:
        """Let time pass in one cell."""
        spent = ns(seconds)
        self.cells[cell(self.region if region is None else region, leaf)] += spent
        self.now += spent

    def work(self, seconds: float, leaf: Leaf = Leaf.CPU) -> None:
        """Let the workers have spent time (beside the driver's)."""
        self.pool[leaf] += ns(seconds)

    def row(self, kind: RowKind, name: str = "") -> None:
        """Emit the ledger as it stands."""
        self.events.append(
            MarkRow(
                kind,
                self.now,
                self.pid,
                self.tid,
                name,
                self.region,
                self.now - sum(self.cells),
                self.steps,
                self.fetches,
                self.inline_fetches,
                self.backwards,
                self.major_faults,
                tuple(self.cells),
                tuple(self.pool),
                tuple(self.files.values()),
                GpuMemoryCalls(*self.gpu_memory),
                shared_bytes=self.batch * (self.fetches + self.ahead) if self.batch is not None else None,
                swap_faults=self.swap_faults,
                collected_ns=self.collected_ns,
                ran_ns=0 if self.ran is None else 10 * NS + ns(self.ran) + sum(self.cells[at] for at in ON_CPU),
            )
        )
        self.files.clear()

    def fetch(self, seconds: float = 0.001, leaf: Leaf = Leaf.CPU, inline: bool = False) -> None:
        """One batch."""
        self.fetches += 1
        self.inline_fetches += inline
        self.spend(seconds, leaf, Region.FETCH)

    def backward(self, seconds: float = 0.02) -> None:
        """One outermost backward."""
        self.row(RowKind.BACKWARD)
        self.backwards += 1
        self.spend(seconds, Leaf.CPU, Region.BACKWARD)

    def optimizer(self, name: str = "Optimizer.step#Adam.step", seconds: float = 0.005) -> None:
        """One optimiser step."""
        self.steps += 1
        self.row(RowKind.OPTIMIZER, name)
        self.spend(seconds, Leaf.CPU, Region.OPTIMIZER)

    def step(self, forward: float = 0.024) -> None:
        """An ordinary step of 50 ms."""
        self.fetch()
        self.spend(forward)
        self.backward()
        self.optimizer()

    def train(self, count: int) -> None:
        """Ordinary steps."""
        for _ in range(count):
            self.step()

    def write(
        self,
        path: str,
        size: int,
        write: float,
        sync: float = 0.0,
        gap: float = 0.0,
        ino: int = 7,
        created: bool = True,
        queue: float = 0.0,
    ) -> None:
        """Write a file as torch.save does. ``queue``: seconds without a processor meanwhile."""
        opened = self.now
        self.file(FileEventKind.OPENED, path, ino, opened, created=created)
        self.spend(gap, Leaf.FILE_GAP)
        self.spend(write, Leaf.FILE_WRITE)
        self.spend(queue, Leaf.RUNQUEUE)
        self.spend(sync, Leaf.FILE_SYNC)
        old = self.files.get((1, ino), StepFile(1, ino, 0, 0, 0))
        self.files[1, ino] = StepFile(1, ino, old.io_ns + ns(write + sync), old.gap_ns + ns(gap), old.bytes + size)
        self.file(FileEventKind.CLOSED, path, ino, opened, size, ns(write), ns(sync), ns(gap), created=created)

    def file(
        self,
        kind: FileEventKind,
        path: str,
        ino: int = 7,
        opened: int = 0,
        size: int = 0,
        write: int = 0,
        sync: int = 0,
        gap: int = 0,
        *,
        created: bool = True,
        new_path: str = "",
        errno: int = 0,
        tid: int | None = None,
        pid: int | None = None,
        meta: int = 0,
    ) -> None:
        """Any file event."""
        self.events.append(
            FileEvent(
                kind,
                self.now,
                self.pid if pid is None else pid,
                self.tid if tid is None else tid,
                1,
                ino,
                path,
                new_path,
                opened,
                size,
                1,
                write,
                sync,
                meta,
                gap,
                errno,
                created,
            )
        )

    def fork(self, pid: int) -> None:
        """Start a worker."""
        self.events.append(ProcessEvent(ProcessEventKind.FORK, self.now, pid, self.pid, "python"))

    def die(self, pid: int, code: int | None = 0, signal: int | None = None, sender: int | None = None) -> None:
        """End a worker, by its own exit or by a signal."""
        if sender is not None:
            self.events.append(
                ProcessEvent(
                    ProcessEventKind.SIGNAL,
                    self.now,
                    pid,
                    signal=signal,
                    sender_pid=sender,
                    sender_comm="bash",
                    by_user=True,
                )
            )
        self.events.append(ProcessEvent(ProcessEventKind.EXIT, self.now, pid, self.pid, "pt_data_worker", code, signal))

    def signal(self, number: int, sender: int, name: str, by_user: bool = True, pid: int | None = None) -> None:
        """A signal to the driver, or to another process; not ``by_user``: the kernel's own."""
        told = ProcessEventKind.SIGNAL
        to = self.pid if pid is None else pid
        self.events.append(
            ProcessEvent(told, self.now, to, signal=number, sender_pid=sender, sender_comm=name, by_user=by_user)
        )

    def finalize(self) -> None:
        """The training's code is left: the interpreter begins to end."""
        self.row(RowKind.FINALIZE)

    def exit(self, code: int | None = 0, signal: int | None = None, shutdown: float = 0.6) -> None:
        """The end of the training."""
        self.spend(shutdown)
        self.row(RowKind.EXIT)
        self.events.append(ProcessEvent(ProcessEventKind.EXIT, self.now, self.pid, 1, "python", code, signal))

    def sample(self, leaf: Leaf = Leaf.CPU) -> ThreadSample:
        """The open ledger."""
        return ThreadSample(
            self.pid,
            self.tid,
            Level.FULL,
            ThreadState.ON,
            self.region,
            leaf,
            self.now,
            self.now,
            -1,
            -1,
            0,
            0,
            "",
            tuple(self.cells),
            self.fetches,
            self.backwards,
            major_faults=self.major_faults,
        )

    def begin(self) -> None:
        """A run with this driver as its one rank, then a second of start-up."""
        self.events.append(
            RunStarted("train.py-0123abcd", self.now, self.pid, ("python", "train.py"), "user", "/home/user")
        )
        self.events.append(RankSeen("train.py-0123abcd", self.now, self.pid, None, self.now))
        self.spend(1.0)


def moment(at: int) -> Moment:
    """A moment whose wall clock is the monotonic one plus a billion seconds."""
    return Moment(at, at + 1_000_000_000 * NS)


def played(driver: Driver, pipeline: Pipeline | None = None, **frame: object) -> Pipeline:
    """The pipeline after all of the driver's events, in one frame."""
    pipeline = pipeline or Pipeline()
    pipeline.step(Frame(moment(driver.now), tuple(driver.events), **frame))  # type: ignore[arg-type]
    driver.events.clear()
    return pipeline
