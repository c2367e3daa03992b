# SPDX-License-Identifier: Apache-2.0
"""Steps in time are told together, each of them once, whoever looks meanwhile; a late one is told by itself."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from itertools import pairwise
from pathlib import Path

from tests.kernel.observing import Observed, Told
from tests.kernel.test_training import start
from trainprobe.bpf import abi
from trainprobe.bpf.probes import Probes
from trainprobe.model.cells import RowKind
from trainprobe.model.event import MarkRow
from trainprobe.model.step_deadline import Armed

MS = 1_000_000
STEPS = 300
LIMIT_NS = 400 * MS


def drivers_rows(told: Told) -> list[MarkRow]:
    return [row for row in told.rows(RowKind.OPTIMIZER, RowKind.EXIT) if row.tid == told.pid]


def let_wait(probes: Probes, program: Observed) -> None:
    assert probes.alarm([Armed(program.pid, 0, 0, 0, LIMIT_NS)], ended=random.random() < 0.5, together=True)


def begun(probes: Probes, python: str, *arguments: str) -> Observed:
    """A training of some ten milliseconds a step, past its first steps."""
    program = start(probes, python, "--steps", str(STEPS), "--step-seconds", "0.01", *arguments)
    program.attach_marks()
    program.go()
    while len(program.told.rows(RowKind.OPTIMIZER)) < 5:
        program.collect()
        time.sleep(0.01)
    return program


def look_now_and_then(program: Observed, longest_s: float) -> None:
    while program.process.poll() is None:
        time.sleep(random.uniform(0, longest_s))
        program.collect()


def check(told: Told, truth: dict[str, int]) -> list[MarkRow]:
    """Every step once, without a gap; returns the rows of steps."""
    assert told.status == 0
    rows = drivers_rows(told)
    steps = [row for row in rows if row.kind is RowKind.OPTIMIZER]
    assert sum(len(row.lengths) or 1 for row in steps) == truth["steps"] == rows[-1].steps
    for before, after in pairwise(steps):
        assert after.steps - before.steps == (len(after.lengths) or 1)
        if after.lengths:
            whole = after.at_ns - before.at_ns
            # The first of them may have begun with a row of another kind, before rows were to wait.
            assert sum(after.lengths) == whole or (not before.lengths and sum(after.lengths[1:]) < whole)
            assert after.fetches - before.fetches == len(after.lengths)
    for row in rows:
        assert sum(row.cells) == row.at_ns - row.opened_ns
    return steps


def test_steps_in_time_are_told_together(probes: Probes, torch_python: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    program = begun(probes, torch_python, "--log-to", str(log))
    let_wait(probes, program)
    program.process.wait(60)  # nobody looks
    told = program.finish()
    truth = json.loads(told.output)["counts"]
    steps = check(told, truth)
    assert len(steps) < STEPS / 6, "of steps of ten milliseconds a row holds what it can"
    assert max(len(row.lengths) for row in steps) == abi.HELD_STEPS
    (inode,) = {use.ino for row in steps for use in row.files}
    assert inode == os.stat(log).st_ino
    assert sum(use.bytes for row in told.rows() for use in row.files) == truth["logged"]
    assert all(use.calls == (len(row.lengths) or 1) for row in steps for use in row.files)


def test_whoever_looks_knows_every_step_that_has_ended(probes: Probes, torch_python: str, tmp_path: Path) -> None:
    program = begun(probes, torch_python, "--log-to", str(tmp_path / "log"))
    let_wait(probes, program)
    os.kill(program.pid, signal.SIGSTOP)
    try:
        time.sleep(0.1)
        program.collect()
        progress = probes.progress(program.pid)
        assert progress is not None
        assert drivers_rows(program.told)[-1].at_ns == progress.step_ns
    finally:
        os.kill(program.pid, signal.SIGCONT)
    look_now_and_then(program, 0.1)
    told = program.finish()
    truth = json.loads(told.output)["counts"]
    check(told, truth)
    assert sum(use.bytes for row in told.rows() for use in row.files) == truth["logged"]


def test_a_backward_inside_the_optimizer_has_no_row_of_its_own(probes: Probes, torch_python: str) -> None:
    program = begun(probes, torch_python, "--mode", "closure")
    let_wait(probes, program)
    program.process.wait(60)
    steps = check(program.finish(), {"steps": STEPS})
    assert len(steps) < STEPS / 6
    assert len(program.told.rows(RowKind.BACKWARD)) < 20, "of the first steps, before rows were to wait"


def test_a_late_step_is_told_by_itself(probes: Probes, torch_python: str) -> None:
    program = begun(probes, torch_python)
    let_wait(probes, program)
    lasted = []
    for _ in range(3):
        time.sleep(random.uniform(0.1, 0.4))
        os.kill(program.pid, signal.SIGSTOP)
        began = time.monotonic_ns()
        time.sleep(random.uniform(0.5, 0.9))
        lasted.append(time.monotonic_ns() - began)
        os.kill(program.pid, signal.SIGCONT)
    told = program.finish()
    steps = check(told, json.loads(told.output)["counts"])
    late = [(after.at_ns - before.at_ns, after) for before, after in pairwise(steps) if not after.lengths]
    late = [(ns, row) for ns, row in late if ns >= LIMIT_NS]
    assert len(late) == 3
    for stopped_ns, (ns, _) in zip(lasted, late):
        assert stopped_ns <= ns < stopped_ns + 100 * MS
    assert max(max(row.lengths) for row in steps if row.lengths) < LIMIT_NS


def test_who_may_no_longer_wait_is_told_of_with_the_next_step(probes: Probes, torch_python: str) -> None:
    program = begun(probes, torch_python)
    for _ in range(6):
        let_wait(probes, program)
        time.sleep(random.uniform(0, 0.3))
        program.collect()
        probes.alarm([Armed(program.pid, 0, 0, 0, LIMIT_NS)], ended=random.random() < 0.5, together=False)
        program.collect()
        asked = len(drivers_rows(program.told))
        time.sleep(0.15)
        program.collect()
        rows = drivers_rows(program.told)[asked:]
        assert len(rows) >= 4
        assert not any(row.lengths for row in rows[2:])
    check(program.finish(), {"steps": STEPS})
