# SPDX-License-Identifier: Apache-2.0
"""Real trainings that wait for a GPU on paper: libcudart and libcuda are ours, the waits are real."""

from __future__ import annotations

import json
import random
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from benchmarks.limits.fake_cuda import CALLERS
from tests.kernel.observing import PROGRAMS, Observed, Told
from trainprobe.bpf.attach import gpu_clocks
from trainprobe.bpf.probes import Probes
from trainprobe.model.cells import Leaf, Region, RowKind, cell
from trainprobe.model.event import CallFailed, MarkRow
from trainprobe.model.moment import NS

FIRST = 8
"""Steps that may pass until the libraries of a training that has just begun are found."""


def train(probes: Probes, python: str, folder: Path, **wanted: Any) -> tuple[Told, dict[str, Any]]:
    """Watched from its gate to its end: (what was told, its own truth)."""
    library = wanted.setdefault("library", "libcudart.so.12")
    asked = {"folder": str(folder), "caller": CALLERS[library], **wanted}
    program = Observed(probes, [python, str(PROGRAMS / "train_gpu.py"), json.dumps(asked)])
    assert program.process.stdout
    assert int(program.process.stdout.readline()) == program.pid
    program.attach_marks()
    told = program.go().finish()
    return told, json.loads(told.output)


def gpu_seconds(earlier: MarkRow, later: MarkRow) -> float:
    places = [cell(region, Leaf.GPU) for region in Region]
    return sum(later.cells[place] - earlier.cells[place] for place in places) / 1e9


def steps(told: Told) -> list[float]:
    """Seconds of gpu_wait from each optimiser step to the next."""
    rows = told.rows(RowKind.OPTIMIZER)
    return [gpu_seconds(a, b) for a, b in pairwise(rows)]


@pytest.mark.parametrize(
    ("library", "how"),
    [("libcudart.so.12", "spin"), ("libcuda.so.1", "spin"), ("libcudart.so.12", "yield"), ("libcuda.so.1", "sleep")],
)
def test_what_is_waited_for_the_gpu_is_told(
    probes: Probes, torch_python: str, cuda_libraries: Path, library: str, how: str
) -> None:
    call = random.choice(["synchronize_stream", "synchronize_device", "synchronize_event"])
    told, truth = train(probes, torch_python, cuda_libraries, library=library, how=how, calls=[call])
    seen, planted = steps(told)[FIRST:], truth["waited"][1 + FIRST :]
    assert len(seen) == len(planted)
    assert sum(seen) == pytest.approx(sum(planted), rel=0.02, abs=0.002 + told.seconds(Leaf.RUNQUEUE)), call
    for row in told.rows():
        assert sum(row.cells) == row.at_ns - row.opened_ns


def test_copies_and_calls_within_calls(probes: Probes, torch_python: str, cuda_libraries: Path) -> None:
    """.item() waits in cudaMemcpyAsync, which calls cudaMemcpy and that the rest; an upload does not wait."""
    calls = ["upload", "item", "launch", "copy"]
    told, truth = train(probes, torch_python, cuda_libraries, calls=calls, how=random.choice(["spin", "sleep"]))
    seen, planted = steps(told)[FIRST:], truth["waited"][1 + FIRST :]
    assert sum(seen) == pytest.approx(sum(planted), rel=0.02, abs=0.002 + told.seconds(Leaf.RUNQUEUE))


def test_allocations_are_counted_with_what_they_take(probes: Probes, torch_python: str, cuda_libraries: Path) -> None:
    """The first ones may pass before the place that they return to is watched."""
    churn = {str(step): 5 for step in range(60)}
    told, truth = train(
        probes, torch_python, cuda_libraries, memory_seconds=0.004, churn=churn, work=[0.001, 0.002], steps=60
    )
    late, last = told.rows(RowKind.OPTIMIZER)[40], told.rows(RowKind.OPTIMIZER)[-1]
    before, after = late.gpu_memory, last.gpu_memory
    made = after.allocations - before.allocations, after.frees - before.frees
    assert made == (95, 95), truth["allocations"]
    taken = (after.ns - before.ns) / 1e9
    assert taken == pytest.approx(sum(truth["memory"][41:]), rel=0.05, abs=0.005)


def test_an_allocation_that_is_refused_is_told(probes: Probes, torch_python: str, cuda_libraries: Path) -> None:
    """Each one, where steps lie between them: one that ends the training may follow one that was healed."""
    told, truth = train(probes, torch_python, cuda_libraries, keep=1 << 20, room=15 << 20, work=[0.01, 0.02])
    failed = [event for event in told.events if isinstance(event, CallFailed)]
    assert truth["refused"] >= 2
    assert {(event.call, event.errno) for event in failed} == {("cudaMalloc", 12)}
    assert len(failed) == failed[-1].count == truth["refused"]
    assert failed[0].pid == told.pid


@pytest.mark.parametrize(
    ("kind", "library"), [("waits", "libcudart.so.12"), ("graphs", "libcuda.so.1"), ("kernels", "libcudart.so.12")]
)
def test_calls_that_come_once_a_step_are_its_marks(
    probes: Probes, cuda_libraries: Path, monkeypatch: pytest.MonkeyPatch, kind: str, library: str
) -> None:
    """Without PyTorch. Each step from the first row on is one, and rows tell how many there were before."""
    monkeypatch.setattr(gpu_clocks, "LEARN_NS", 2 * NS)
    asked = {"folder": str(cuda_libraries), "library": library, "caller": CALLERS[library], "kind": kind}
    asked |= {"steps": 600 if kind == "kernels" else 300, "layers": random.randrange(2, 5)}
    program = Observed(probes, [sys.executable, "-S", str(PROGRAMS / "loop_gpu.py"), json.dumps(asked)])
    assert program.process.stdout
    program.process.stdout.readline()
    program.go()
    while program.process.poll() is None:
        probes.clock_by_gpu(program.pid)
        probes.open_files()
        program.collect()
        time.sleep(0.2)
    told = program.finish()
    begins = [round(at * NS) for at in json.loads(told.output)["begins"]]
    rows = told.rows(RowKind.GPU)
    assert len(rows) > len(begins) / 4
    assert [row.steps - rows[0].steps for row in rows] == list(range(len(rows)))
    assert abs(len(rows) - sum(at >= rows[0].at_ns for at in begins)) <= 1
    assert rows[0].steps <= len(begins) - len(rows)
    assert told.rows(RowKind.DRIVER)[0].at_ns <= rows[0].at_ns
    for row in rows:
        assert sum(row.cells) == row.at_ns - row.opened_ns
