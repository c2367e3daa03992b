"""The processes of a rank: its workers, the signals that they get, and how the driver ends."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import field
from enum import Enum

from trainprobe.derive.steps.renewed_workers import RenewedWorkers
from trainprobe.derive.workers import Death, WorkerPool
from trainprobe.model.dataclass import dataclass
from trainprobe.model.event import CallFailed, MarkRow, ProcessEvent, ProcessEventKind, StartSeen
from trainprobe.model.report import Restore, Startup
from trainprobe.model.vocabulary import PASSES_ON

STOPS, CONTINUE = frozenset({19, 20}), 18  # SIGSTOP, SIGTSTP; SIGCONT
INTERRUPT = 2
SIGNALS = FAILURES = 16  # kept
DEATHS = 200
"""Kept, the latest: as many as a report lists."""
TIMERS = frozenset({"timeout", "slurmstepd", "pbs_mom", "sge_shepherd", "condor_starter"})
"""Programs that end what takes too long."""


class Sender(Enum):
    """Who sent a fatal signal, as seen from the training."""

    OUTSIDE = "outside"
    OF_THE_RUN = "of the run"
    LAUNCHER = "launcher"  # torchrun


@dataclass(frozen=True, slots=True)
class Sent:
    """A fatal signal to the driver."""

    event: ProcessEvent
    by: Sender

    @property
    def order(self) -> tuple[int, int]:
        """Of several signals that ended a process the first by this order names who did it: Python passes SIGINT on to
        itself, ``trainprobe run`` what it gets to its command."""
        passed_on = self.event.sender_comm == PASSES_ON
        by = 0 if self.event.sender_comm in TIMERS else 3 if self.by != Sender.OUTSIDE else 2 if passed_on else 1
        return by, self.event.at_ns


@dataclass(slots=True)
class Lives:
    """What became of a rank's processes so far: its workers, fatal signals, and the driver's own end."""

    workers: WorkerPool
    renewed: RenewedWorkers = field(default_factory=RenewedWorkers)
    deaths: list[Death] = field(default_factory=list)  # abnormal ones of workers while the driver lived
    forgotten: int = 0  # of these, no longer in the list
    signals: deque[Sent] = field(default_factory=lambda: deque(maxlen=SIGNALS))  # fatal ones, to the driver
    stopper: ProcessEvent | None = None  # the last signal that stopped the driver
    unsent: deque[CallFailed] = field(default_factory=lambda: deque(maxlen=FAILURES))  # of workers, for want of room
    oom_killed: bool = False
    exit_row: MarkRow | None = None  # the driver's last row: its end comes next
    exit_event: ProcessEvent | None = None
    finalize_row: MarkRow | None = None
    """When the interpreter began to finalize; None also where it cannot be probed."""
    start: StartSeen | None = None
    """What its process opened before the first step, until that is accounted for; None also where it was not watched
    from its begin."""
    startup: Startup = field(default_factory=Startup)
    restores: Sequence[Restore] = ()

    def add_event(self, event: ProcessEvent, *, by: Sender = Sender.OUTSIDE, late: bool = False) -> Death | None:
        """Take in an event of one of the processes; a worker's death comes back. ``by``: who sent the signal;
        ``late``: the driver's step is late."""
        if event.pid == self.workers.driver:
            self._add_driver_event(event, by)
        death = self.workers.add_event(event, driver_failed=late)
        if death is not None and death.abnormal and not self.workers.driver_ended:
            self.deaths.append(death)
            for gone in self.deaths[:-DEATHS]:
                self.forgotten += gone.reason != "oom_kill"  # of those there is a notice
            del self.deaths[:-DEATHS]
        return death

    def add_unsent(self, event: CallFailed) -> None:
        """A process of the rank could not send a batch: a worker's thread that sends them goes on without it."""
        if event.pid != self.workers.driver:
            self.unsent.append(event)

    def _add_driver_event(self, event: ProcessEvent, by: Sender) -> None:
        if event.kind == ProcessEventKind.EXIT:
            self.exit_event = event
        elif event.kind == ProcessEventKind.OOM:
            self.oom_killed = True
        elif event.kind == ProcessEventKind.SIGNAL and event.signal in STOPS:
            self.stopper = event
        elif event.kind == ProcessEventKind.SIGNAL and event.signal != CONTINUE:
            self.signals.append(Sent(event, by))

    @property
    def signalled(self) -> bool:
        return self.exit_event is not None and bool(self.exit_event.signal)

    @property
    def failed(self) -> bool:
        """Whether the driver ended with an exit code other than 0."""
        return self.exit_event is not None and bool(self.exit_event.code)

    def ended_by(self, since_ns: float) -> Sent | None:
        """The signal since then that ended the driver, or will."""
        return min(
            (sent for sent in self.signals if sent.event.at_ns >= since_ns), key=lambda sent: sent.order, default=None
        )

    def left_ns(self, since_ns: int) -> int | None:
        """When the training's code was left, if that was after ``since_ns``: by an interrupt, or as it ended."""
        finalized = (self.finalize_row.at_ns,) if self.finalize_row is not None else ()
        return min((at for at in (*self._interrupts, *finalized) if at > since_ns), default=None)

    def interrupted(self, at_ns: int) -> bool:
        """Whether it was left by an interrupt: a person wants it to end."""
        return at_ns in self._interrupts

    @property
    def _interrupts(self) -> list[int]:
        return [sent.event.at_ns for sent in self.signals if sent.event.signal == INTERRUPT]

    def stopper_in(self, start_ns: int, end_ns: int) -> ProcessEvent | None:
        """The last signal that stopped the driver, where it came in an interval."""
        return self.stopper if self.stopper is not None and start_ns <= self.stopper.at_ns <= end_ns else None
