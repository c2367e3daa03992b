# SPDX-License-Identifier: Apache-2.0
"""Run a program under observation and collect what the kernel told of it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from trainprobe.bpf.probes import Candidate, MarksAttached, Probes
from trainprobe.model.cells import Leaf, Region, RowKind, cell
from trainprobe.model.event import Event, FileEvent, FileEventKind, MarkRow, ProcessEvent, ProcessEventKind

PROGRAMS = Path(__file__).parent / "programs"
_GATE = "import sys; sys.stdin.readline()\n"
_TORCH = re.compile(r"^([0-9a-f]+)-([0-9a-f]+) r-xp .* (/.*/libtorch_cpu\.so)$", re.MULTILINE)


@dataclass
class Told:
    """Everything about one program, from its start to its end."""

    pid: int
    output: str = ""
    status: int = 0
    events: list[Event | Candidate] = field(default_factory=list)

    def rows(self, *kinds: RowKind) -> list[MarkRow]:
        return [
            e for e in self.events if isinstance(e, MarkRow) and e.pid == self.pid and (not kinds or e.kind in kinds)
        ]

    def files(self, *kinds: FileEventKind) -> list[FileEvent]:
        return [e for e in self.events if isinstance(e, FileEvent) and (not kinds or e.kind in kinds)]

    def written(self, path: str) -> int:
        """Bytes told of a file, by the name it had when they were told."""
        return sum(e.bytes for e in self.files(FileEventKind.CLOSED) if e.path == path)

    def processes(self, *kinds: ProcessEventKind) -> list[ProcessEvent]:
        return [e for e in self.events if isinstance(e, ProcessEvent) and (not kinds or e.kind in kinds)]

    @property
    def last_row(self) -> MarkRow:
        """The main thread's last words: its whole ledger."""
        return next(row for row in self.rows(RowKind.EXIT) if row.tid == self.pid)

    def seconds(self, leaf: Leaf, *regions: Region) -> float:
        row = self.last_row
        return sum(row.cells[cell(region, leaf)] for region in (regions or tuple(Region))) / 1e9


class Observed:
    """A program held at a gate until it is watched; use as a context."""

    def __init__(self, probes: Probes, command: Sequence[str], **how: object) -> None:
        self.probes = probes
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **how)  # type: ignore[call-overload]
        self.told = Told(self.process.pid)

    @classmethod
    def python(cls, probes: Probes, body: str, *arguments: str, **how: object) -> Observed:
        """Python source, run by this interpreter behind the gate."""
        return cls(probes, [sys.executable, "-S", "-c", _GATE + body, *arguments], **how)

    @property
    def pid(self) -> int:
        return self.told.pid

    def go(self) -> Observed:
        """Watch it, then open the gate."""
        _await(lambda: _state(self.pid) == "S", "the program to reach its gate")
        self.probes.watch(self.pid)
        assert self.process.stdin
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return self

    def finish(self, limit: float = 60.0) -> Told:
        """Collect until it has ended."""
        deadline = time.monotonic() + limit
        while self.process.poll() is None:
            assert time.monotonic() < deadline, "the program does not end"
            time.sleep(0.02)
            self.collect()
        self.told.output = self.process.stdout.read() if self.process.stdout else ""
        self.told.status = self.process.returncode
        self.collect()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe:
                pipe.close()
        return self.told

    def collect(self) -> list[Event | Candidate]:
        told = self.probes.drain()
        self.told.events += told
        return told

    def attach_marks(self) -> MarksAttached:
        """To the libtorch that the program has mapped. Asks again where it cannot be read now, as the daemon does."""
        start, end, path = _TORCH.findall(Path(f"/proc/{self.pid}/maps").read_text())[0]
        until = time.monotonic() + 60
        while (attached := self._marks(path, int(start, 16), int(end, 16))) is None:
            assert time.monotonic() < until, "the library is not read"
            time.sleep(0.01)
        return attached

    def _marks(self, path: str, start: int, end: int) -> MarksAttached | None:
        try:
            return self.probes.attach_marks(self.pid, path, start, end)
        except BlockingIOError:
            return None


def observe(probes: Probes, body: str, *arguments: str, **how: object) -> Told:
    """Run Python source from gate to end."""
    return Observed.python(probes, body, *arguments, **how).go().finish()


def await_true(condition: Callable[[], object], what: str, limit: float = 10.0) -> None:
    _await(condition, what, limit)


def _await(condition: Callable[[], object], what: str, limit: float = 10.0) -> None:
    deadline = time.monotonic() + limit
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.01)


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def within(seconds: float, truth: float) -> bool:
    """The accuracy asked for: 2 % and 5 ms."""
    return abs(seconds - truth) <= 0.02 * truth + 0.005


def counted(told: Told) -> Counter[str]:
    return Counter(row.kind.name for row in told.rows())


def busy_machine() -> bool:
    """More to run than processors: what must run at once may wait for one."""
    return os.getloadavg()[0] > (os.cpu_count() or 1)
