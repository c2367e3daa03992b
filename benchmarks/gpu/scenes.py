"""Trainings on the GPU under ``trainprobe run``: what the report says beside what the training's own clock knows."""

from __future__ import annotations

import gzip
import json
import shutil
import subprocess
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.gpu.place import TRAINING, Place
from benchmarks.programs import Json, ProgramError, environment, trainprobe

FIXTURE_BYTES = 150_000
"""A recording, compressed, is a fixture up to so many."""
PART, SECONDS = 0.3, 0.4
"""What the report may differ by in seconds of a cause: a part of them, and absolutely."""
READING = 1.5
"""NVML's figures come once a second: idle seconds may differ by so many for each stall."""
STRAY = 0.05
"""Of the wall time, that may be lost to what nobody planted: other programs, the disk."""
PLANTED = frozenset({"checkpoint", "data_cpu", "cpu_bound", "gpu_memory"})
"""Causes that only a planted fault has."""
CONTENTION = "cpu_contention"
"""Other programs of this machine: their part of a stall, whoever planted it."""


@dataclass(frozen=True)
class Scene:
    """``plan``: of trainings/gpu_training.py; ``warns``: causes of warnings that must be there."""

    name: str
    limit: float
    plan: dict[str, Any] = field(default_factory=dict)
    faults: dict[int, str] = field(default_factory=dict)
    warns: frozenset[str] = frozenset()


def _by_turns(*kinds: str, steps: int, first: int = 60, every: int = 45) -> dict[int, str]:
    return {step: kinds[at % len(kinds)] for at, step in enumerate(range(first, steps - 5, every))}


SCENES = (
    Scene("stalls", 90, {"steps": 250, "loader": True}, _by_turns("checkpoint", "loader", "python", steps=250)),
    Scene("profiled", 90, {"steps": 150, "profile": True}, _by_turns("checkpoint", "python", steps=150)),
    Scene("memory", 60, {"steps": 200}, dict.fromkeys(range(80, 92), "churn") | {150: "exhaust"},
          frozenset({"gpu_memory"})),
    Scene("streams", 60, {"steps": 150, "scene": "streams"}),
    Scene("compile", 120, {"steps": 150, "scene": "compile"}, {120: "checkpoint"}),
    Scene("ddp", 60, {"steps": 150, "scene": "ddp"}, {120: "python"}),
)  # fmt: skip
"""Two streams are with AMP; graphs of CUDA with compile; NCCL, on one GPU, with DDP."""


def measure(place: Place, scene: Scene) -> dict[str, Any]:
    """Raises ProgramError when the training failed."""
    folder = place.output / scene.name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    plan = {
        "paper": place.libraries, "scene": "plain", "work": 0.015 if place.paper else 0.03, "seconds": 1.2,
        "faults": scene.faults, "folder": str(folder), "truth": str(folder / "truth.json"),
    } | scene.plan  # fmt: skip
    report, recording, errors = folder / "report.json", folder / "recording.jsonl", folder / "stderr"
    training = [place.python, str(TRAINING), json.dumps(plan)]
    watched = trainprobe("run", "-o", str(report), "--record", str(recording), "--", *training)
    with errors.open("w") as told:
        done = subprocess.run(
            watched, stdin=subprocess.DEVNULL, stdout=told, stderr=told, env=environment(), check=False
        )
    if done.returncode != 0:
        raise ProgramError(f"exit code {done.returncode}: {errors.read_text(errors='replace')[-2000:]}")
    truth = json.loads((folder / "truth.json").read_text())
    (run,) = json.loads(report.read_text())["runs"]
    rank: Json = run["ranks"][0]
    found = compared(rank, truth)
    found["wrong"] += [f"no warning of {cause}" for cause in scene.warns - {one["cause"] for one in rank["warnings"]}]
    found["wrong"] += _replayed(recording, rank)
    kept = _kept(recording, place.output / "recordings" / f"{scene.name}.jsonl.gz")
    return found | {"recording_bytes": kept, "fixture": kept <= FIXTURE_BYTES}


def compared(rank: Json, truth: Json) -> dict[str, Any]:
    """Seconds lost in stalls, and seconds in which the GPU was idle, by cause: planted, and as the report has them."""
    planted, idle, counts = defaultdict(float), defaultdict(float), defaultdict(int)
    for one in truth["planted"]:
        planted[one["cause"]] += (one["end"] - one["begin"]) / 1e9
        idle[one["cause"]] += one["idle_seconds"]
        counts[one["cause"]] += 1
    gpu = rank["gpus"][0] if rank["gpus"] else {}
    lost = defaultdict(float)
    for cause, seconds in (pair for stall in rank["stalls"] for pair in stall["shares"].items()):
        lost[cause] += seconds
    told_idle = gpu.get("idle_by_cause") or {}
    causes = sorted(set(planted) | set(lost))
    rows = {
        cause: {
            "planted": round(planted[cause], 2), "lost": round(lost[cause], 2),
            "idle": round(idle[cause], 2), "idle_told": round(told_idle.get(cause, 0.0), 2), "times": counts[cause],
        }
        for cause in causes
    }  # fmt: skip
    return {
        "verdict": rank["verdict"]["summary"], "steps": truth["steps"], "steps_told": rank["steps"]["count"],
        "steps_source": rank["steps"]["source"], "wall_seconds": rank["wall_seconds"],
        "gpu_wait_seconds": rank["ledger"].get("gpu_wait", 0.0), "utilization": gpu.get("utilization_mean"),
        "causes": rows, "refused": truth["refused"], "profiled_gaps": truth.get("profiled_gaps"),
        "wrong": list(_wrong(rank, truth, rows)),
    }  # fmt: skip


def _wrong(rank: Json, truth: Json, rows: dict[str, dict[str, Any]]) -> list[str]:
    wrong = []
    if abs(rank["steps"]["count"] - truth["steps"]) > 2:
        wrong.append(f"{truth['steps']} steps were made, {rank['steps']['count']} are told")
    if not rank["gpus"]:
        wrong.append("no GPU is told as the training's")
    if not rank["ledger"].get("gpu_wait"):
        wrong.append("no second of the ledger is gpu_wait")
    others = rows.get(CONTENTION, {}).get("lost", 0.0) + truth.get("profiler_seconds", 0.0)
    for cause, row in rows.items():
        if cause in PLANTED and abs(row["lost"] - row["planted"]) > max(SECONDS, PART * row["planted"]) + others:
            wrong.append(f"{cause}: {row['planted']} s were planted, {row['lost']} s are told as lost")
        if (
            rank["gpus"]
            and cause != "gpu_memory"
            and abs(row["idle_told"] - row["idle"]) > READING * max(row["times"], 1)
        ):
            wrong.append(f"{cause}: the GPU was idle for {row['idle']} s, {row['idle_told']} s are told")
    stray = -truth.get("profiler_seconds", 0.0) + sum(
        row["lost"] for cause, row in rows.items() if cause not in (*PLANTED, CONTENTION)
    )
    if stray > STRAY * rank["wall_seconds"]:
        wrong.append(f"{stray:.1f} s are lost to what was not planted")
    return wrong + _against_profile(truth)


def _against_profile(truth: Json) -> list[str]:
    """The pauses of the profiler's kernels are those of the training's own clock, one by one."""
    gaps, planted = truth.get("profiled_gaps"), [one["idle_seconds"] for one in truth["planted"]]
    if gaps is None:
        return []
    if len(gaps) != len(planted):
        return [f"the profiler has {len(gaps)} pauses, {len(planted)} were planted"]
    pairs = zip(gaps, planted)
    return [f"the profiler's pause is {gap} s, by events {idle:.3f} s" for gap, idle in pairs if abs(gap - idle) > 0.1]


def _replayed(recording: Path, rank: Json) -> list[str]:
    """A recording says what the live report says."""
    again = recording.with_name("again.json")
    subprocess.run(
        trainprobe("replay", str(recording), "-o", str(again)), check=True, capture_output=True, env=environment()
    )
    (run,) = json.loads(again.read_text())["runs"]
    names = ("verdict", "ledger", "lost", "gpus")
    return [f"the replayed {name} differs" for name in names if run["ranks"][0][name] != rank[name]]


def _kept(recording: Path, target: Path) -> int:
    """Bytes of the compressed copy."""
    target.parent.mkdir(exist_ok=True)
    target.write_bytes(gzip.compress(recording.read_bytes(), mtime=0))
    return target.stat().st_size
