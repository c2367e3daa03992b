"""What reaches a training from outside: a kill, and a reader of its stdout that takes its time."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO


@dataclass
class Killed:
    """A worker that was killed, and when (UNIX seconds, just before the kill)."""

    pid: int
    at: float


class Killer(threading.Thread):
    """Sends SIGKILL to one worker, ``after`` seconds after the first one is there."""

    def __init__(self, script: str, plan: str, after: float, seed: int) -> None:
        super().__init__(daemon=True)
        self._script, self._plan, self._after = script, plan, after
        self._choice = random.Random(seed)
        self._ended = threading.Event()
        self.killed: Killed | None = None

    def run(self) -> None:
        while not find_workers(self._script, self._plan):
            if self._ended.wait(0.1):
                return
        if self._ended.wait(self._after):
            return
        workers = find_workers(self._script, self._plan)
        if workers:
            pid, at = self._choice.choice(workers), time.time()
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                return
            self.killed = Killed(pid, at)

    def stop(self) -> None:
        self._ended.set()
        self.join()


class SlowReader(threading.Thread):
    """Reads a pipe to its end at no more than ``rate`` bytes/s (None: as fast as it comes)."""

    def __init__(self, pipe: IO[bytes], rate: int | None) -> None:
        super().__init__(daemon=True)
        self._pipe, self._rate = pipe, rate

    def run(self) -> None:
        descriptor = self._pipe.fileno()
        while data := os.read(descriptor, 4096):
            if self._rate:
                time.sleep(len(data) / self._rate)


def find_workers(script: str, plan: str) -> list[int]:
    """Processes that a training forked (they keep its command line) or spawned, itself left out."""
    family: dict[int, int] = {}
    trainings: set[int] = set()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            arguments = (entry / "cmdline").read_bytes().split(b"\0")
            parent = int((entry / "stat").read_text(errors="replace").rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            continue
        family[int(entry.name)] = parent
        if len(arguments) > 2 and arguments[1].decode(errors="replace").endswith(script) and plan.encode() in arguments:
            trainings.add(int(entry.name))
    heads = {pid for pid in trainings if family[pid] not in trainings}
    return sorted(pid for pid, parent in family.items() if parent in heads)
