"""Real trainings that wait for a GPU on paper, in calls of CUDA: what becomes of their seconds and their verdict."""

from __future__ import annotations

import json
import random
import subprocess
from pathlib import Path
from typing import Any

import pytest

from benchmarks.programs import ROOT, environment, trainprobe

PROGRAM = ROOT / "tests" / "kernel" / "programs" / "train_gpu.py"


def watch(folder: Path, python: str, libraries: Path, **wanted: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The rank as its recording tells of it (and as was told at its end, the same), and the training's own truth."""
    asked = {"folder": str(libraries), "library": "libcudart.so.12", "caller": "libcaller.so", **wanted}
    report, recording, again = folder / "report.json", folder / "recording.jsonl", folder / "again.json"
    watched = trainprobe("run", "-o", str(report), "--record", str(recording), "--", python, str(PROGRAM))
    ended = subprocess.run(
        [*watched, json.dumps(asked)], capture_output=True, text=True, timeout=100, env=environment(), check=False,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert ended.returncode == (1 if wanted.get("gives_up") else 0), ended.stderr
    subprocess.run(trainprobe("replay", str(recording), "-o", str(again)), check=True, capture_output=True)
    (rank,) = json.loads(report.read_text())["runs"][0]["ranks"]
    (replayed,) = json.loads(again.read_text())["runs"][0]["ranks"]
    for name in ("verdict", "ledger", "lost"):
        assert replayed[name] == rank[name]
    return rank, json.loads(ended.stdout.splitlines()[1])


@pytest.mark.timeout(120)
def test_a_step_that_waits_long_for_the_gpu_has_lost_nothing(
    tmp_path: Path, torch_python: str, cuda_libraries: Path
) -> None:
    longer = {str(step): random.uniform(0.5, 1.5) for step in random.sample(range(40, 90), 3)}
    how = random.choice(["spin", "sleep"])
    rank, truth = watch(tmp_path, torch_python, cuda_libraries, steps=100, how=how, longer=longer)
    first = sum(truth["waited"][:10])
    assert rank["ledger"]["gpu_wait"] == pytest.approx(sum(truth["waited"]) - first / 2, rel=0.02, abs=0.1 + first / 2)
    lost = sum(rank["lost"].get(cause, 0.0) for cause in ("cpu_bound", "unknown", "gpu_memory"))
    assert lost < 0.1 * sum(longer.values()), (rank["lost"], rank["stalls"])
    assert rank["bound"]["by"] == "compute"


@pytest.mark.timeout(120)
def test_allocating_and_freeing_all_the_time_is_gpu_memory(
    tmp_path: Path, torch_python: str, cuda_libraries: Path
) -> None:
    churn = {str(step): 40 for step in range(60, 72)}
    rank, truth = watch(
        tmp_path, torch_python, cuda_libraries, steps=120, churn=churn, memory_seconds=0.002, work=[0.01, 0.012]
    )
    assert rank["verdict"]["cause"] == "gpu_memory", (rank["verdict"], rank["lost"])
    assert rank["lost"]["gpu_memory"] == pytest.approx(sum(truth["memory"]), rel=0.15)
    assert "in cudaMalloc and cudaFree: 40 allocations, 40 frees" in rank["verdict"]["summary"]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("gives_up", [True, False])
def test_memory_that_cuda_refuses(tmp_path: Path, torch_python: str, cuda_libraries: Path, gives_up: bool) -> None:
    """The end of a training that gives up; a warning where its allocator frees some and goes on."""
    wanted = {"steps": 90, "keep": 1 << 20, "keep_from": 40, "room": random.randrange(20, 30) << 20}
    rank, truth = watch(tmp_path, torch_python, cuda_libraries, gives_up=gives_up, work=[0.02, 0.03], **wanted)
    assert truth["refused"] >= 1
    if gives_up:
        assert (rank["verdict"]["kind"], rank["verdict"]["cause"]) == ("end", "gpu_memory"), rank["verdict"]
        assert "cudaMalloc: out of memory" in rank["verdict"]["summary"]
        assert rank["exit"]["reason"] == "exit code 1 after gpu_memory"
    else:
        (warning,) = rank["warnings"]
        assert warning["cause"] == "gpu_memory"
        assert rank["verdict"]["kind"] != "end"
