"""A training that does what it is asked for, so that it can be timed with and without a daemon beside it."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from benchmarks import programs
from benchmarks.gpu.place import TRAINING, Place
from benchmarks.programs import Daemon, Json, ProgramError


class Caller:
    """``plan``: see trainings/gpu_training.py."""

    def __init__(self, place: Place, **plan: Any) -> None:
        asked = {"paper": place.libraries, "scene": "plain", "work": 0.002} | plan
        self.process = subprocess.Popen(
            [place.python, str(TRAINING), json.dumps(asked)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __enter__(self) -> Caller:
        self._line()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.close()
        programs.end(self.process)

    def do(self, kind: str, count: int) -> float:
        """Nanoseconds of each."""
        self.ask(kind, count)
        return float(self._line())

    def ask(self, kind: str, count: int) -> None:
        """Without waiting for it."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{kind} {count}\n")
        self.process.stdin.flush()

    def _line(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise ProgramError(f"the training ended: {self.process.wait()}")
        return line

    def maps(self) -> list[Path]:
        """The files that it maps."""
        lines = Path(f"/proc/{self.process.pid}/maps").read_text(errors="replace").splitlines()
        return sorted({Path(line.split(maxsplit=5)[5]) for line in lines if "/" in line})


def steps_until_watched(caller: Caller, daemon: Daemon, seconds: float = 40.0) -> Json:
    """The rank, once steps of it have been counted. Raises ProgramError."""
    deadline = time.monotonic() + seconds
    while not (found := daemon.rank_of(caller.process.pid)) or found[1]["steps"]["count"] < 20:
        if time.monotonic() > deadline:
            raise ProgramError(f"the daemon counts no steps of the training: {daemon.said()}")
        caller.do("step", 10)
    return found[1]
