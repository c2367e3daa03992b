"""The kit for a machine with a GPU: what it says of figures that differ and of reports that are wrong."""

from __future__ import annotations

import os
import subprocess
import sys
import xml.etree.ElementTree as Xml
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gpu import nvml_fields, scenes
from benchmarks.gpu.place import SMI
from trainprobe.model.sample import GpuSample

Json = dict[str, Any]


@pytest.fixture
def described(tmp_path: Path) -> Xml.Element:
    """What nvidia-smi says."""
    (tmp_path / "gpus").write_text(FIGURES)
    command = [sys.executable, str(SMI), "-q", "-x"]
    environment = os.environ | {"FAKE_NVML": str(tmp_path / "gpus")}
    done = subprocess.run(command, capture_output=True, check=True, env=environment)
    (gpu,) = Xml.fromstring(done.stdout).findall("gpu")
    return gpu


FIGURES = (
    "0 memory_total 85899345920\n0 memory_used 1073741824\n0 utilization 90\n0 power 300000\n"
    "0 temperature 60\n0 clock 1700\n0 clock_max 1980\n0 pcie 10\n0 reasons 0x44\n0 ecc 2\n0 mig 0\n0 rows 1\n"
    "0 pid 7\n0 pid_memory 1048576\n"
)
SAMPLE = GpuSample(
    0, "GPU-0000", "00000000:01:00.0", 2, 1, utilization=0.9, memory_used_bytes=1 << 30, memory_total_bytes=80 << 30,
    power_watts=300.0, temperature_celsius=60, sm_clock_hertz=1_700_000_000, sm_clock_max_hertz=1_980_000_000,
    pcie_receive_bytes_per_second=10_240, pcie_transmit_bytes_per_second=10_240,
    reasons=("sw_power_cap", "hw_thermal"), ecc_errors=2, remapped_rows=1, holders=(),
)  # fmt: skip


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("utilization", 0.3), ("memory_total_bytes", 81920), ("power_watts", 300_000.0), ("temperature_celsius", 88),
        ("sm_clock_hertz", 1700), ("sm_clock_max_hertz", 1_700_000_000), ("reasons", ("sw_power_cap",)),
        ("ecc_errors", 0), ("remapped_rows", 0), ("mig", True), ("bus_id", "01:00.0"),
    ],
)  # fmt: skip
def test_a_figure_that_is_read_wrongly_differs(described: Xml.Element, field: str, value: Any) -> None:
    right = nvml_fields.compare(SAMPLE, described)
    assert {one["verdict"] for name, one in right.items() if name not in ("holders", "tensor_active")} == {"agrees"}
    wrong = nvml_fields.compare(replace(SAMPLE, **{field: value}), described)
    assert wrong[field]["verdict"] == "DIFFERS"


RANK: Json = {
    "verdict": {"summary": ""}, "steps": {"count": 200, "source": "autograd"}, "wall_seconds": 20.0, "warnings": [],
    "ledger": {"gpu_wait": 5.0}, "stalls": [{"shares": {"checkpoint": 1.2}}, {"shares": {"checkpoint": 1.2}}],
    "gpus": [{"idle_by_cause": {"checkpoint": 2.0}, "utilization_mean": 0.5}],
}  # fmt: skip
TRUTH: Json = {
    "steps": 200, "refused": 0, "profiled_gaps": [1.2, 1.25],
    "planted": [{"cause": "checkpoint", "begin": 0, "end": 1_200_000_000, "idle_seconds": 1.2}] * 2,
}  # fmt: skip


def test_a_report_that_is_right_passes() -> None:
    assert scenes.compared(RANK, TRUTH)["wrong"] == []


@pytest.mark.parametrize(
    ("rank", "truth", "said"),
    [
        ({"steps": {"count": 180, "source": "rhythm"}}, {}, "200 steps were made"),
        ({"stalls": [{"shares": {"checkpoint": 1.0}}]}, {}, "checkpoint: 2.4 s were planted"),
        ({"stalls": [{"shares": {"checkpoint": 2.4, "cpu_bound": 1.5}}]}, {}, "cpu_bound: 0.0 s were planted"),
        ({"stalls": [{"shares": {"checkpoint": 2.4, "unknown": 1.5}}]}, {}, "1.5 s are lost to what was not planted"),
        ({"ledger": {}}, {}, "gpu_wait"),
        ({"gpus": []}, {}, "no GPU is told"),
        ({"gpus": [{"idle_by_cause": {"checkpoint": 9.0}}]}, {}, "the GPU was idle for 2.4 s"),
        ({}, {"profiled_gaps": [2.4]}, "the profiler has 1 pauses"),
        ({}, {"profiled_gaps": [1.2, 2.0]}, "the profiler's pause is 2.0 s"),
    ],
)
def test_a_report_that_is_wrong_is_told(rank: Json, truth: Json, said: str) -> None:
    (wrong,) = scenes.compared(RANK | rank, TRUTH | truth)["wrong"]
    assert said in wrong
