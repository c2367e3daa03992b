"""What the observer is made of, as far as it knows: the kernel, the targets, the collectors, the core."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Protocol

from trainprobe.model.armed import Armed, Progress
from trainprobe.model.event import Event, FileEvent, StackSeen, ThreadSample
from trainprobe.model.frame import Frame
from trainprobe.model.moment import Moment
from trainprobe.model.report import Report
from trainprobe.model.sample import BlockIoSample, Inspection, RivalSample, WrittenFile
from trainprobe.runtime.sampling import Samples


class Kernel(Protocol):
    """Our programs in the kernel (``trainprobe.bpf.probes.Probes``)."""

    def fileno(self) -> int: ...
    def drain(self) -> Sequence[Any]: ...
    def threads(self, pids: Collection[int] | None = None) -> Sequence[ThreadSample]: ...
    def progress(self, tid: int) -> Progress | None: ...
    def alarm(self, steps: Collection[Armed], *, ended: bool, together: bool) -> bool:
        """Whether it wakes us itself from now on when one of these drivers is late (``ended``: or has been). Steps that
        are in time may be told ``together``."""

    def open_files(self) -> Sequence[FileEvent]: ...
    def fault_tracing(self, on: bool) -> None: ...
    def lost(self) -> dict[str, int]: ...
    def block_io(self) -> tuple[BlockIoSample, ...]: ...
    def cost(self) -> tuple[float | None, dict[str, int]]: ...
    def close(self) -> None: ...


class Finder(Protocol):
    """Which processes are trainings (``trainprobe.runtime.targets.Targets``)."""

    def step(self, now: Moment, events: Sequence[Any]) -> Sequence[Event]: ...
    def processes(self) -> Sequence[Any]: ...
    def gpu_users(self, now: Moment, pids: Collection[int]) -> None: ...
    def refusal(self) -> str: ...
    def due_ns(self) -> int | None: ...


class Sampler(Protocol):
    """The collectors, each at its own pace (``trainprobe.runtime.sampling.Collectors``)."""

    def read(self, now: Moment, watched: Sequence[Any], events: Sequence[Event], /) -> Samples:
        """Those samples that are due, and those that the turn's events ask for."""

    def look_at(self, directories: tuple[tuple[int, str], ...], files: tuple[WrittenFile, ...], /) -> None:
        """(pid, directory) whose file systems' room is of interest, and files whose size is."""

    def seldom(self, times: int, /) -> None:
        """Make the pauses between regular samples so many times as long from now on."""

    def due_ns(self) -> int | None:
        """When something wants a turn of its own; None: nothing does."""

    def glance(self, now: Moment, watched: Sequence[Any], /) -> None:
        """Read limits alone, for ``far``; the next ``read`` gives them."""

    def count(self, threads: Sequence[tuple[int, int]], /) -> None:
        """Count the instructions of these threads (pid, tid) from now on, and of no others."""

    def inspect(self, now: Moment, threads: Sequence[tuple[int, int]], /) -> tuple[Inspection, ...]:
        """A look at threads whose step is late."""

    @property
    def far(self) -> bool:
        """Whether nothing that can run out comes near its limit soon, and no GPU is to be asked."""

    def rivals(self, now: Moment, /) -> tuple[RivalSample, ...]:
        """Who uses the processors."""


class Stacks(Protocol):
    """Python stacks, taken beside the loop (``trainprobe.collect.pystack.PyStack``)."""

    def start(self, pid: int, tid: int, now_ns: int, run: str = "") -> bool: ...
    def fileno(self) -> int | None: ...
    def poll(self, now_ns: int) -> StackSeen | None: ...
    def close(self) -> None: ...


class Wants(Protocol):
    """What the core would like to be told from now on."""

    @property
    def detail(self) -> bool: ...
    @property
    def stacks(self) -> tuple[tuple[int, int], ...]: ...
    @property
    def inspect(self) -> tuple[tuple[int, int], ...]: ...
    @property
    def count(self) -> tuple[tuple[int, int], ...]: ...
    @property
    def rivals(self) -> bool: ...
    @property
    def faults(self) -> bool: ...
    @property
    def spaces(self) -> tuple[tuple[int, str], ...]: ...
    @property
    def files(self) -> tuple[WrittenFile, ...]: ...
    @property
    def tell(self) -> bool: ...
    @property
    def calm_ns(self) -> int: ...


class Core(Protocol):
    """The pure part (``trainprobe.pipeline.Pipeline``)."""

    def step(self, frame: Frame) -> None: ...
    def report(self, at: Moment) -> Report: ...
    def armed(self) -> Sequence[Armed]: ...
    def wants(self) -> Wants: ...
