# SPDX-License-Identifier: Apache-2.0
"""The clock of JAX and TensorFlow on a CPU: a call that lets go of the interpreter's lock once in each step."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.kernel.observing import PROGRAMS, Observed, await_true
from trainprobe.bpf.attach import gpu_clocks
from trainprobe.bpf.probes import Probes
from trainprobe.model.cells import RowKind
from trainprobe.model.moment import NS

SOURCE = """
#include <unistd.h>
void *PyEval_SaveThread(void);
void PyEval_RestoreThread(void *);
void released(unsigned microseconds) {
    void *state = PyEval_SaveThread();
    usleep(microseconds);
    PyEval_RestoreThread(state);
}
"""


def test_each_step_is_a_row_and_those_before_the_first_row_are_counted(
    probes: Probes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler here")
    monkeypatch.setattr(gpu_clocks, "LEARN_BURSTS_NS", 2 * NS)
    library = tmp_path / "libjax_common.so"
    command = [compiler, "-shared", "-fPIC", "-o", str(library), "-x", "c", "-"]
    subprocess.run(command, input=SOURCE, text=True, check=True)
    program = Observed(probes, [sys.executable, str(PROGRAMS / "loop_released.py"), str(library), "300"])
    assert program.process.stdout
    program.process.stdout.readline()
    clocks = probes._cuda._clocks._known

    def probed() -> bool:
        probes.clock_by_gpu(program.pid)
        return program.pid in clocks and bool(clocks[program.pid].often)

    await_true(probed, "a probe on PyEval_SaveThread")
    program.go()
    while program.process.poll() is None:
        probes.clock_by_gpu(program.pid)
        probes.open_files()
        program.collect()
        time.sleep(0.2)
    told = program.finish()
    begins, rows = json.loads(told.output), told.rows(RowKind.RHYTHM)
    assert [row.steps for row in rows] == [sum(at <= row.at_ns for at in begins) - 1 for row in rows]
    assert len(rows) > len(begins) / 3
