"""Probes on CUDA: which functions of the tables the mapped libraries export, hits per step, cost of a hit."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.footprint import STATISTICS
from benchmarks.gpu.caller import Caller, steps_until_watched
from benchmarks.gpu.place import Place
from benchmarks.programs import Daemon, Json, ProgramError
from trainprobe.bpf.attach.cuda import DRIVER, IN_DRIVER, IN_DRIVER_ALONE, IN_RUNTIME, OFTEN, RARE, RUNTIME
from trainprobe.bpf.attach.symbols import Unreadable, find_in_file

TABLES = (
    (RUNTIME, (*IN_RUNTIME, *RARE, *OFTEN), "cuda"),
    (DRIVER, (*IN_DRIVER, *IN_DRIVER_ALONE, *RARE, *OFTEN), "cu"),
)
CALLS, TURNS, STEPS = 5_000, 5, 200
PROGRAMS = "on_gpu_"


def symbols(files: list[Path]) -> dict[str, Any]:
    """file -> names that it exports, and names that it does not. A variant that is missing is no fault by itself."""
    found: dict[str, Any] = {}
    for pattern, marks, family in TABLES:
        wanted = sorted({prefix for mark in marks for prefix in mark.prefixes})
        wanted = [name for name in wanted if name[1:].startswith(b"cuda") == (family == "cuda")]
        for path in files:
            if not pattern.fullmatch(os.fsencode(path.name)):
                continue
            told = find_in_file(str(path), wanted)
            if isinstance(told, Unreadable):
                found[str(path)] = {"unreadable": told.reason}
                continue
            names = {name.removeprefix("="): bool(places) for name, places in told.items()}
            found[str(path)] = {
                "has": [n for n, has in names.items() if has],
                "lacks": [n for n, h in names.items() if not h],
            }
    return found


def measure(place: Place) -> dict[str, Any]:
    """Raises ProgramError. ``hits_per_step``: runs of each program; nanoseconds are of a call that does not wait."""
    before = STATISTICS.read_text()
    calls = CALLS // 5 if place.paper else CALLS
    with Caller(place) as caller, tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        caller.do("step", 20)
        exported = symbols(caller.maps())
        bare = [caller.do("sync", calls) for _ in range(TURNS)]
        try:
            STATISTICS.write_text("1")
            with Daemon(Path(directory)) as daemon:
                steps_until_watched(caller, daemon)
                caller.do("sync", 2)  # the place that it returns to gets its probe
                time.sleep(1)
                first = _runs(daemon)
                caller.do("step", STEPS)
                second = _runs(daemon)
                watched = [caller.do("sync", calls) for _ in range(TURNS)]
                gpu_wait = (daemon.rank_of(caller.process.pid) or ({}, {"ledger": {}}))[1]["ledger"].get("gpu_wait")
        finally:
            STATISTICS.write_text(before)
    hits = {name: (second[name] - first.get(name, 0)) / STEPS for name in second if name.startswith(PROGRAMS)}
    wrong = [] if exported else ["no libcudart and no libcuda is mapped"]
    if not any(hits.values()):
        wrong.append("no probe on CUDA was met in any step")
    if not gpu_wait:
        wrong.append("no second of the ledger is gpu_wait")
    return {
        "libraries": exported, "hits_per_step": {name: round(count, 2) for name, count in hits.items() if count},
        "bare_ns": round(statistics.median(bare)), "watched_ns": round(statistics.median(watched)),
        "added_ns": round(statistics.median(watched) - statistics.median(bare)), "gpu_wait_seconds": gpu_wait,
        "wrong": wrong,
    }  # fmt: skip


def _runs(daemon: Daemon) -> Json:
    """From a report in which the cost was read anew."""
    old, deadline = daemon.report()["cost"]["bpf_runs"], time.monotonic() + 40
    while (runs := daemon.report()["cost"]["bpf_runs"]) == old or not runs:
        if time.monotonic() > deadline:
            raise ProgramError("the daemon does not tell how often its programs ran")
        time.sleep(0.2)
    told: Json = runs
    return told
