"""Which run an event, a sample or a row belongs to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from trainprobe.model.dataclass import dataclass
from trainprobe.model.event import (
    CallFailed,
    FileEvent,
    FileLooked,
    MarkRow,
    ProcessEvent,
    ProcessEventKind,
    StackSeen,
    StartSeen,
)
from trainprobe.pipeline.run.state import RunState

ProcessesEvent = MarkRow | FileEvent | ProcessEvent | StackSeen | StartSeen | CallFailed | FileLooked
"""What a process of a run did, or what was done to it."""


@dataclass(slots=True)
class Routing:
    """Runs by name; by pid the run that took a process's last event, which takes the next one, mostly."""

    runs: Mapping[str, RunState]
    takers: dict[int, str] = field(default_factory=dict)

    def add_row(self, row: MarkRow) -> bool:
        """Whether the run that took the last event of its process takes this row, too. Most events are such."""
        run = self.runs.get(self.takers.get(row.pid, ""))
        return run is not None and run.add_row(row)

    def add_event(self, event: ProcessesEvent) -> None:
        """To one run after the other until one says that it is its own; first to the one that took the last event of
        the same process, or of the parent of one that is born."""
        kind = event.kind if isinstance(event, ProcessEvent) else None
        known = event.ppid if isinstance(event, ProcessEvent) and kind is ProcessEventKind.FORK else event.pid
        taker = self.takers.get(known, "")
        likely = self.runs.get(taker)
        if likely is None or not _add(likely, event):
            others = ((name, run) for name, run in self.runs.items() if run is not likely)
            taker = next((name for name, run in others if _add(run, event)), "")
        if kind is ProcessEventKind.EXIT:
            self.takers.pop(event.pid, None)
        elif taker:
            self.takers[event.pid] = taker

    def forget(self, name: str) -> None:
        self.takers = {pid: taker for pid, taker in self.takers.items() if taker != name}

    def owners(self) -> dict[int, list[RunState]]:
        """By pid the runs that a process belongs to, which is one, mostly."""
        owners: dict[int, list[RunState]] = {}
        for run in self.runs.values():
            for pid in run.ranks.pids():
                owners.setdefault(pid, []).append(run)
        return owners


def _add(run: RunState, event: ProcessesEvent) -> bool:
    if isinstance(event, MarkRow):
        return run.add_row(event)
    if isinstance(event, FileEvent):
        return run.add_file_event(event)
    if isinstance(event, ProcessEvent):
        return run.add_process_event(event)
    if isinstance(event, StackSeen):
        return run.add_stack(event)
    if isinstance(event, StartSeen):
        return run.add_start(event)
    if isinstance(event, FileLooked):
        return run.add_look(event)
    return run.add_failure(event)
