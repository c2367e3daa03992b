"""One training, run as a user runs it, and the advice that it gets."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import programs
from benchmarks.advice.cases import Case, Settings
from benchmarks.advice.memory import Peak
from benchmarks.limits import groups
from benchmarks.programs import ProgramError
from benchmarks.stalls import quiet

TRAINING = Path(__file__).parent / "training.py"
GROUP = f"trainprobe-advice-{os.getpid()}"
TIME_LIMIT = 500.0


@dataclass(frozen=True)
class Ran:
    """Seconds of the loop by the training's own clock, peak bytes, cores that other programs used."""

    seconds: float
    memory: int
    others: float


def run(case: Case, settings: Settings, python: str, folder: Path, *, watched: bool = True) -> Ran:
    """One training, under observation where it is ``watched``: the report is in ``folder``. Raises ProgramError."""
    busy = quiet.now()
    settings = settings | {"directory": str(folder)}
    with contextlib.ExitStack() as stack:
        command = [python, str(TRAINING), json.dumps(settings)]
        if case.limit is not None:
            command = groups.inside(stack.enter_context(groups.memory(GROUP, case.limit)), command)
        if watched:
            command = programs.trainprobe("run", "-o", str(folder / "report.json"), "--", *command)
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env=programs.environment(OMP_NUM_THREADS="1"),
        )  # fmt: skip
        with Peak(process.pid) as peak:
            try:
                out, said = process.communicate(timeout=TIME_LIMIT)
            except subprocess.TimeoutExpired:
                programs.end(process)
                raise
    if process.returncode:
        raise ProgramError(f"the training ended with {process.returncode}: {said.decode(errors='replace')[-2000:]}")
    return Ran(json.loads(out)["seconds"], peak.bytes, quiet.others(busy, quiet.now()))


def advice_of(folder: Path) -> dict[str, Any]:
    """What a user then gets."""
    asked = programs.trainprobe("advise", "--json", str(folder / "report.json"))
    answer = subprocess.run(asked, check=True, capture_output=True, env=programs.environment()).stdout
    advice: dict[str, Any] = json.loads(answer)
    return advice
