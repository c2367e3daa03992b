"""What watching costs a training on the GPU: its step time with and without a daemon, by turns."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from benchmarks import bpf_programs
from benchmarks.gpu.caller import Caller, steps_until_watched
from benchmarks.gpu.place import Place
from benchmarks.overhead import Spread
from benchmarks.programs import Daemon

STEPS, WINDOWS, TURNS = 40, 25, 4
"""Of a window; windows of a turn; turns of each way."""


def measure(place: Place) -> dict[str, Any]:
    """Milliseconds a step, of windows of some steps. Raises ProgramError."""
    took: dict[str, list[float]] = {"bare": [], "watched": []}
    turns, windows = (1, 4) if place.paper else (TURNS, WINDOWS)
    with Caller(place) as caller:
        caller.do("step", 5 * STEPS)
        for _ in range(turns):
            took["bare"] += [caller.do("step", STEPS) / 1e6 for _ in range(windows)]
            with (
                bpf_programs.gone_afterwards(),
                tempfile.TemporaryDirectory(dir="/dev/shm") as directory,
                Daemon(Path(directory)) as daemon,
            ):
                steps_until_watched(caller, daemon)
                took["watched"] += [caller.do("step", STEPS) / 1e6 for _ in range(windows)]
    spread = {way: Spread.of(values) for way, values in took.items()}
    added = spread["watched"].median / spread["bare"].median - 1
    return {
        "step_ms": {way: {"median": one.median, "low": one.low, "high": one.high} for way, one in spread.items()},
        "added_share": round(added, 4), "wrong": [],
    }  # fmt: skip
