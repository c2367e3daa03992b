"""One training that is watched while it uses something up."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from benchmarks.limits.cases import Case, kill_later
from benchmarks.limits.places import TRAININGS
from benchmarks.programs import end, environment, trainprobe


def watched(case: Case, folder: Path, python: str) -> tuple[dict[str, Any] | None, str]:
    """The rank that the report tells of, and what was said."""
    report, recording = folder / "report.json", folder / "recording.jsonl"
    training = [python, str(TRAININGS / f"{case.program}.py"), *map(str, case.arguments)]
    errors = folder / "stderr"  # no pipe: workers may outlive the run that they belong to
    with case.around(folder) as around, errors.open("w") as told:
        command = trainprobe("run", "-o", str(report), "--record", str(recording), "--", *around(training))
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=told, env=environment()
        )
        if case.kill_after is not None:
            kill_later(lambda: training_below(process.pid), case.kill_after)
        try:
            process.wait(110)
        except subprocess.TimeoutExpired:
            process.terminate()
            process.wait()
        except BaseException:
            end(process)
            raise
    said = errors.read_text(errors="replace")
    if not report.exists():
        return None, said
    runs = json.loads(report.read_text())["runs"]
    return (runs[0]["ranks"][0] if runs and runs[0]["ranks"] else None), said


def training_below(pid: int) -> int | None:
    """The training that ``trainprobe run``, or a shell that this has started, runs: not its workers."""
    children = [pid]
    for one in children:
        try:
            found = Path(f"/proc/{one}/task/{one}/children").read_text().split()
            words = Path(f"/proc/{one}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if any(word.endswith(b"exhaust.py") for word in words[1:2]):
            return one
        children += map(int, found)
    return None
