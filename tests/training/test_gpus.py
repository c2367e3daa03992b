"""Real trainings on a GPU that is on paper: NVML's part is told by the training itself, as it goes."""

from __future__ import annotations

import json
import random
import subprocess
from pathlib import Path
from typing import Any

import pytest

from benchmarks.programs import ROOT, environment, trainprobe

PROGRAM = ROOT / "benchmarks" / "limits" / "trainings" / "on_a_gpu.py"


def watch(folder: Path, library: Path, torch_python: str, *arguments: object) -> tuple[dict[str, Any], str]:
    """The rank's report, and what the training said."""
    report, state = folder / "report.json", folder / "gpus"
    state.write_text("99 count 1\n")
    command = trainprobe("run", "-o", str(report), "--", torch_python, str(PROGRAM), *map(str, arguments))
    paths = {"LD_LIBRARY_PATH": str(library), "FAKE_NVML": str(state)}
    ended = subprocess.run(
        command, capture_output=True, text=True, timeout=100, env={**environment(), **paths}, check=False,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    (rank,) = json.loads(report.read_text())["runs"][0]["ranks"]
    return rank, ended.stdout


@pytest.mark.timeout(120)
@pytest.mark.parametrize("waits", ["in Python", "in CUDA"])
def test_a_gpu_that_gets_too_hot(
    tmp_path: Path, torch_python: str, nvml_library: Path, cuda_libraries: Path, waits: str
) -> None:
    clock, reason = random.randrange(450, 700), random.choice([0x8, 0x20, 0x40, 0x80])
    cuda = cuda_libraries if waits == "in CUDA" else ""
    rank, said = watch(
        tmp_path, nvml_library, torch_python, "--steps", 200, "--throttle", 130, 40, clock, "--reason", reason,
        "--cuda", cuda,
    )  # fmt: skip
    assert (rank["ledger"].get("gpu_wait", 0.0) > 0.5 * rank["wall_seconds"]) == bool(cuda), rank["ledger"]
    truth = float(said.split()[2])
    assert rank["verdict"]["cause"] == "gpu_throttle", (rank["verdict"], rank["lost"], said)
    assert 0.6 * truth <= rank["lost"]["gpu_throttle"] <= 1.3 * truth, (rank["lost"], said)
    assert f"to {clock} MHz" in rank["verdict"]["summary"]
    (gpu,) = rank["gpus"]
    assert gpu["utilization_mean"] > 0.6


@pytest.mark.timeout(120)
def test_a_gpus_idle_time_belongs_to_the_save_that_it_waits_for(
    tmp_path: Path, torch_python: str, nvml_library: Path
) -> None:
    rank, _ = watch(tmp_path, nvml_library, torch_python, "--steps", 260, "--save", tmp_path, "--every", 60)
    saved = sum(stall["seconds"] for stall in rank["stalls"] if stall["cause"] == "checkpoint")
    (gpu,) = rank["gpus"]
    idle = gpu["idle_by_cause"].get("checkpoint", 0.0)
    assert saved > 0.2
    assert 0 < idle <= 2 * saved + 2, "readings come once a second"
    assert max(gpu["idle_by_cause"], key=gpu["idle_by_cause"].get) == "checkpoint", gpu


@pytest.mark.timeout(120)
def test_gpu_memory_that_grows_is_told(tmp_path: Path, torch_python: str, nvml_library: Path) -> None:
    leak = random.randrange(70, 90) << 20
    rank, _ = watch(tmp_path, nvml_library, torch_python, "--steps", 220, "--work", 0.1, "--leak-bytes", leak)
    (warning,) = [one for one in rank["warnings"] if one["cause"] == "gpu_memory"]
    assert "memory of GPU 0 grows by" in warning["summary"]
