"""The kit for a machine with a GPU, rehearsed on stand-ins for NVML, nvidia-smi and CUDA: it reports their truth."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gpu import nvml_fields, scenes, text
from benchmarks.gpu.parts import PARTS
from benchmarks.programs import ROOT, environment

pytestmark = pytest.mark.nightly
Json = dict[str, Any]


def run(*arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks.gpu", *arguments]
    return subprocess.run(
        command, cwd=ROOT, env=environment(**more), capture_output=True, text=True, timeout=200, check=False,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("gpu")


@pytest.fixture(scope="module")
def rehearsed(kept: Path, torch_python: str) -> tuple[Json, str]:
    """Every part: its report, and what it printed."""
    done = run("--rehearse", "--output", str(kept), "--python", torch_python)
    assert done.returncode in (0, 1), done.stderr
    return json.loads((kept / "report.json").read_text()), done.stdout


@pytest.mark.timeout(240)
def test_every_part_is_carried_out_in_time(rehearsed: tuple[Json, str]) -> None:
    report, said = rehearsed
    assert list(report["parts"]) == [part.name for part in PARTS]
    assert {name: part["error"] for name, part in report["parts"].items() if part["error"]} == {}
    assert all(f"{at}/{len(PARTS)} {part.what}" in said for at, part in enumerate(PARTS, 1))
    assert report["seconds"] < 240


def test_ebpf_works_here(rehearsed: tuple[Json, str]) -> None:
    part = rehearsed[0]["parts"]["check"]
    (programs,) = [one for one in part["findings"] if one["name"] == "eBPF programs"]
    assert (programs["state"], part["wrong"]) == ("ok", [])


def test_nvml_and_nvidia_smi_agree_in_every_field(rehearsed: tuple[Json, str]) -> None:
    part = rehearsed[0]["parts"]["nvml"]
    fields = part["gpus"]["0"]["fields"]
    assert set(fields) == {*nvml_fields.FIELDS, *nvml_fields.NOT_TOLD}
    assert {one["verdict"] for name, one in fields.items() if name in nvml_fields.FIELDS} == {"agrees"}, fields
    assert fields["tensor_active"]["ours"] > 0


def test_a_step_meets_one_wait_and_its_end(rehearsed: tuple[Json, str]) -> None:
    part = rehearsed[0]["parts"]["marks"]
    ((path, names),) = part["libraries"].items()
    assert path.endswith("libcudart.so.12")
    assert {"cudaStreamSynchronize", "cudaMalloc", "cudaGraphLaunch"} <= set(names["has"])
    assert {"cudaMemcpy2D", "cudaLaunchKernelExC"} <= set(names["lacks"])
    assert part["hits_per_step"] == {"on_gpu_wait": 1.0, "on_gpu_return": 1.0}
    assert part["added_ns"] > 300
    assert part["wrong"] == []


@pytest.mark.parametrize("scene", scenes.SCENES, ids=lambda scene: scene.name)
def test_what_a_training_planted_is_what_the_report_has(
    rehearsed: tuple[Json, str], kept: Path, scene: scenes.Scene
) -> None:
    part = rehearsed[0]["parts"][scene.name]
    assert part["wrong"] == [], part
    counted = {cause: row["times"] for cause, row in part["causes"].items() if row["times"]}
    assert sum(counted.values()) == sum(fault != "exhaust" for fault in scene.faults.values())
    recording = kept / "recordings" / f"{scene.name}.jsonl.gz"
    assert recording.stat().st_size == part["recording_bytes"] <= scenes.FIXTURE_BYTES
    assert b'"gpus"' in gzip.decompress(recording.read_bytes())


def test_the_cost_is_of_both_ways(rehearsed: tuple[Json, str]) -> None:
    spread = rehearsed[0]["parts"]["cost"]["step_ms"]
    assert all(2.0 < one["low"] <= one["median"] <= one["high"] < 50 for one in spread.values())
    assert set(spread) == {"bare", "watched"}


def test_the_text_has_what_the_json_has(rehearsed: tuple[Json, str], kept: Path) -> None:
    report, said = rehearsed
    written = (kept / "report.txt").read_text()
    assert written == text.told(report)
    assert written in said
    assert all(part["verdict"] in written for part in report["parts"].values() if "verdict" in part)


def test_without_a_gpu_it_says_what_is_missing(torch_python: str, tmp_path: Path) -> None:
    if list(Path("/dev").glob("nvidia[0-9]*")):
        pytest.skip("there is a GPU here")
    done = run("--output", str(tmp_path / "out"), "--python", torch_python)
    assert done.returncode == 3
    assert [line.split(":")[0].strip() for line in done.stderr.splitlines()[1:]] == ["a GPU", "NVML", "CUDA in PyTorch"]
    assert not (tmp_path / "out").exists()


def test_a_python_without_torch_is_named(tmp_path: Path) -> None:
    done = run("--rehearse", "--output", str(tmp_path), "--python", "/bin/false")
    assert done.returncode == 3
    assert "PyTorch: /bin/false" in done.stderr
