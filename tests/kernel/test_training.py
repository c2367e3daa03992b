# SPDX-License-Identifier: Apache-2.0
"""Real PyTorch trainings: marks counted exactly, regions and files where they belong."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.kernel.observing import PROGRAMS, Observed, Told, counted, within
from trainprobe.bpf.attach.library_readers import MarksAttached
from trainprobe.bpf.probes import Candidate, Probes
from trainprobe.collect.procfs import Proc
from trainprobe.model.cells import Leaf, Region, RowKind, cell
from trainprobe.model.event import FileEventKind, MarkRow, ProcessEventKind

Trained = tuple[Told, dict[str, Any], MarksAttached]


def train(probes: Probes, python: str, *arguments: str) -> Trained:
    """Run the training from its gate to its end; (what was told, its own truth, marks)."""
    program = start(probes, python, *arguments)
    marks = program.attach_marks()
    told = program.go().finish()
    assert told.status == 0
    return told, json.loads(told.output), marks


def start(probes: Probes, python: str, *arguments: str) -> Observed:
    program = Observed(probes, [python, str(PROGRAMS / "train.py"), *arguments])
    assert program.process.stdout
    assert int(program.process.stdout.readline()) == program.pid
    return program


def check(told: Told, truth: dict[str, Any]) -> MarkRow:
    """Counts are exact, and every row is consistent; returns the driver's last row."""
    counts = truth["counts"]
    rows = Counter(row.kind for row in told.rows())
    assert rows[RowKind.OPTIMIZER] == counts["steps"]
    assert rows[RowKind.DRIVER] == 1
    driver = next(row.tid for row in told.rows(RowKind.DRIVER))
    last = [row for row in told.rows() if row.tid == driver][-1]
    assert (last.steps, last.backwards) == (counts["steps"], counts["backwards"])
    unseen = driver != told.pid  # another thread than the first is known from its first backward on
    assert last.fetches == counts["fetches"] + 1 - unseen, "the last one finds the loader empty"
    for row in told.rows():
        assert sum(row.cells) == row.at_ns - row.opened_ns
    return last


@pytest.fixture(scope="module")
def plain(probes: Probes, torch_python: str) -> Trained:
    """Two workers, two hundred steps."""
    return train(probes, torch_python, "--steps", "200", "--workers", "2")


def test_two_workers_two_hundred_steps(plain: Trained) -> None:
    told, truth, marks = plain
    assert marks.reason == ""
    assert all(found for name, found in marks.found.items() if name != "collector")
    last = check(told, truth)
    assert last.inline_fetches == 0
    assert {row.name for row in told.rows(RowKind.OPTIMIZER)} == {"Optimizer.step#Adam.step"}
    ends = [e for e in told.processes(ProcessEventKind.EXIT) if e.pid != told.pid]
    assert [(e.code, e.ppid) for e in ends] == [(0, told.pid)] * 2
    assert all(row.cells[cell(region, Leaf.OTHER)] < 0.005e9 for row in told.rows() for region in Region)


def test_rows_tell_how_long_the_scheduler_ran_their_thread(plain: Trained) -> None:
    """By its own count, up to its last tick; what a hypervisor took is in the cells alone."""
    told, _, _ = plain
    driver = next(row.tid for row in told.rows(RowKind.DRIVER))
    rows = [row for row in told.rows(RowKind.BACKWARD, RowKind.OPTIMIZER) if row.tid == driver]
    assert len(rows) >= 200
    assert all(row.ran_ns > 0 for row in rows)
    for before, after in pairwise(rows):
        assert 0 <= after.ran_ns - before.ran_ns <= after.at_ns - before.at_ns + 10e6, "ticks are 10 ms apart at most"
    first, last = rows[0], rows[-1]
    computed = sum(last.cells[at] - first.cells[at] for at in (cell(region, Leaf.CPU) for region in Region))
    assert last.ran_ns - first.ran_ns >= 0.5 * computed


@pytest.mark.parametrize("mode", ["raises", "checkpointing", "lbfgs", "gan", "accumulate", "thread"])
def test_what_looks_like_more_or_fewer_steps(probes: Probes, torch_python: str, mode: str) -> None:
    """A backward that raises, one inside another, one inside the optimiser, two optimisers, fewer steps."""
    told, truth, _ = train(probes, torch_python, "--steps", "60", "--mode", mode)
    last = check(told, truth)
    assert sum(last.cells[Region.NO_GRAD * 24 : Region.NO_GRAD * 24 + 24]) < 0.01e9
    # Every row of the loop was emitted between marks that had ended: nothing stays open.
    outside = {RowKind.BACKWARD: {Region.STEP, Region.OPTIMIZER}, RowKind.OPTIMIZER: {Region.STEP}}
    for row in told.rows(RowKind.BACKWARD, RowKind.OPTIMIZER):
        assert row.region in outside[row.kind]
    in_optimizer = {row.region for row in told.rows(RowKind.BACKWARD)} == {Region.OPTIMIZER}
    assert in_optimizer == (mode == "lbfgs")
    assert (last.tid != told.pid) == (mode == "thread")


def test_without_workers_the_fetch_is_inline(probes: Probes, torch_python: str) -> None:
    told, truth, _ = train(probes, torch_python, "--steps", "30", "--workers", "0", "--sample-seconds", "0.002")
    last = check(told, truth)
    assert last.inline_fetches == last.fetches
    slept = last.cells[cell(Region.FETCH, Leaf.SLEEP)] / 1e9
    assert 30 * 8 * 0.002 <= slept < 30 * 8 * 0.002 * 1.3


def test_waiting_for_workers_is_in_the_fetch_and_their_sleep_in_the_pool(probes: Probes, torch_python: str) -> None:
    told, truth, _ = train(probes, torch_python, "--steps", "40", "--workers", "2", "--sample-seconds", "0.004")
    last = check(told, truth)
    waited = sum(last.cells[cell(Region.FETCH, leaf)] for leaf in (Leaf.PIPE_READ, Leaf.POLL, Leaf.LOCK)) / 1e9
    assert waited > 0.4 * truth["wall"]
    assert 40 * 8 * 0.004 <= last.pool[Leaf.SLEEP] / 1e9 < 40 * 8 * 0.004 * 1.3
    deep = told.rows(RowKind.FETCH_END)
    assert all(row.region is Region.FETCH for row in deep)


@pytest.mark.parametrize("context", ["spawn", "forkserver"])
def test_workers_that_are_not_forked_are_pooled_too(probes: Probes, torch_python: str, context: str) -> None:
    """Under a forkserver they are grandchildren."""
    told, truth, _ = train(probes, torch_python, "--steps", "40", "--context", context, "--sample-seconds", "0.01")
    last = check(told, truth)
    assert last.pool[Leaf.SLEEP] / 1e9 >= 0.7 * 40 * 8 * 0.01


@pytest.mark.parametrize("context", ["no_grad", "inference_mode"])
def test_evaluation_without_gradients_is_its_own_region(probes: Probes, torch_python: str, context: str) -> None:
    how = ("--evaluate-every", "10", "--evaluate-by", context)
    told, truth, marks = train(probes, torch_python, "--steps", "40", *how)
    assert marks.found["set_grad"]
    last = check(told, truth)
    seconds = sum(last.cells[Region.NO_GRAD * 24 : Region.NO_GRAD * 24 + 24]) / 1e9
    assert within(seconds, truth["counts"]["no_grad_seconds"])


def test_the_garbage_collector_has_a_leaf_of_its_own(probes: Probes, torch_python: str) -> None:
    told, truth, marks = train(probes, torch_python, "--steps", "60", "--collect-every", "10")
    if not marks.found["collector"]:
        pytest.skip(f"{torch_python} was built without CPython's own probes")
    check(told, truth)
    planted = truth["counts"]["collecting_seconds"]
    assert planted > 0.03
    last = told.rows(RowKind.OPTIMIZER)[-1]  # the interpreter's end collects, too
    collecting = sum(last.cells[cell(region, Leaf.COLLECTOR)] for region in Region) / 1e9
    assert 0.98 * planted - told.seconds(Leaf.RUNQUEUE) - 0.005 <= collecting <= planted + 0.005


def test_a_collection_in_another_thread_is_in_the_drivers_rows(probes: Probes, torch_python: str) -> None:
    how = ("--collect-every", "10", "--collect-elsewhere")
    told, truth, marks = train(probes, torch_python, "--steps", "60", *how)
    if not marks.found["collector"]:
        pytest.skip(f"{torch_python} was built without CPython's own probes")
    check(told, truth)
    planted = truth["counts"]["collecting_seconds"]
    last = told.rows(RowKind.OPTIMIZER)[-1]
    assert sum(last.cells[cell(region, Leaf.COLLECTOR)] for region in Region) == 0
    assert 0.5 * planted <= last.collected_ns / 1e9 <= planted + 0.005


def test_the_driver_tells_where_its_interpreter_begins_to_end(plain: Trained) -> None:
    told, _, _ = plain
    kinds = [row.kind for row in told.rows() if row.tid == told.pid]
    assert kinds[-2:] == [RowKind.FINALIZE, RowKind.EXIT]
    assert kinds.count(RowKind.FINALIZE) == 1
    finalize, last = told.rows(RowKind.FINALIZE)[0], told.last_row
    assert told.rows(RowKind.OPTIMIZER)[-1].at_ns < finalize.at_ns
    assert sum(last.cells) - sum(finalize.cells) == last.at_ns - finalize.at_ns > 0.1e9, "torch's own teardown"


def test_checkpoints_are_in_the_rows_of_their_steps(probes: Probes, torch_python: str, tmp_path: Path) -> None:
    path = str(tmp_path / "last.pt")
    told, truth, _ = train(probes, torch_python, "--steps", "60", "--save-every", "20", "--save-to", path)
    check(told, truth)
    closed = [e for e in told.files(FileEventKind.CLOSED) if e.path == path]
    assert [e.bytes for e in closed] == [os.path.getsize(path)] * 3
    rows = [(f, row) for row in told.rows() for f in row.files if (f.dev, f.ino) == (closed[0].dev, closed[0].ino)]
    assert sum(f.bytes for f, _ in rows) == 3 * os.path.getsize(path)
    opened = [e.at_ns for e in told.files(FileEventKind.OPENED) if e.path == path]
    assert len(opened) == 3
    assert min(opened) < min(row.at_ns for _, row in rows)
    file_cells = (Leaf.FILE_WRITE, Leaf.FILE_SYNC, Leaf.FILE_META)
    in_cells = sum(told.seconds(leaf) for leaf in file_cells)
    in_slots = sum(f.io_ns for row in told.rows() for f in row.files) / 1e9
    assert abs(in_cells - in_slots) < 0.002


def test_nothing_of_it_is_told_about_shared_memory(plain: Trained) -> None:
    told, _, _ = plain
    assert not [e.path for e in told.files() if "/dev/shm" in e.path]


def test_a_driver_found_among_the_children_gets_a_pool_of_its_own(probes: Probes, torch_python: str) -> None:
    """As under torchrun: the launcher is watched, a child of it trains, and that child's workers are its own."""
    command = f"read x; {torch_python} {PROGRAMS}/train.py --steps 30 --sample-seconds 0.002 <<< go | tail -1"
    program = Observed(probes, ["bash", "-c", command])
    other = start(probes, torch_python, "--steps", "1")  # its mapping is where the marks are attached
    marks = other.attach_marks()
    assert marks.reason == ""
    told = program.go().finish()
    other.process.kill()
    other.finish()
    truth = json.loads(told.output)
    rows = [e for e in told.events if isinstance(e, MarkRow) and e.kind is RowKind.DRIVER]
    (driver,) = rows
    assert driver.pid != told.pid
    last = [e for e in told.events if isinstance(e, MarkRow) and e.tid == driver.tid][-1]
    assert (last.steps, last.backwards) == (30, 30)
    assert last.steps == truth["counts"]["steps"]
    assert last.pool[Leaf.SLEEP] / 1e9 >= 30 * 8 * 0.002
    assert sum(last.cells) == last.at_ns - last.opened_ns
    assert last.opened_ns < driver.at_ns - 0.2e9, "its ledger began with its fork, not with its first mark"


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_what_monitors_sleep_is_not_their_workers_time(probes: Probes, torch_python: str, context: str) -> None:
    """Two programs that the training starts, before its first step and after it, sleep all the time."""
    program = start(
        probes, torch_python, "--steps", "200", "--sample-seconds", "0.002", "--context", context, "--monitors"
    )
    program.attach_marks()
    told = program.go().finish()
    truth = json.loads(told.output)
    (driver,) = told.rows(RowKind.DRIVER)
    rows = [row for row in told.rows() if row.tid == driver.tid and row.steps > 40]
    slept = (rows[-1].pool[Leaf.SLEEP] - rows[0].pool[Leaf.SLEEP]) / 1e9
    made = (rows[-1].steps - rows[0].steps) * 8 * 0.002
    assert 0.9 * made <= slept <= 1.5 * made, truth["wall"]


def test_an_unwatched_training_is_a_candidate_once(torch_python: str) -> None:
    probes = Probes.start(Proc(), auto=True)
    try:
        program = start(probes, torch_python, "--steps", "30", "--workers", "0")
        program.attach_marks()
        assert [c.why for c in probes.drain() if isinstance(c, Candidate) and c.pid == program.pid] == ["exec"]
        assert program.process.stdin
        program.process.stdin.write("\n")
        program.process.stdin.flush()
        told = program.finish()
        mine = [e for e in told.events if getattr(e, "pid", 0) == program.pid]
        assert [c.why for c in mine if isinstance(c, Candidate)] == ["mark"]
        assert len(mine) == 1, "and nothing else is told of it"
    finally:
        probes.close()


def test_a_python_that_is_wanted_later_has_its_start_up(torch_python: str) -> None:
    """auto keeps a ledger from exec on, so that import time is not lost when it turns out to be a training."""
    probes = Probes.start(Proc(), auto=True)
    try:
        program = start(probes, torch_python, "--steps", "10", "--workers", "0")
        program.attach_marks()
        told = program.go().finish()
        last = told.last_row
        imports = last.cells[cell(Region.STEP, Leaf.CPU)] / 1e9
        assert sum(last.cells) == last.at_ns - last.opened_ns
        assert imports > 0.5, "importing torch takes a second of CPU"
        assert counted(told)["OPTIMIZER"] == 10
    finally:
        probes.close()


def test_attached_in_the_middle_it_counts_from_there(probes: Probes, torch_python: str) -> None:
    program = start(probes, torch_python, "--steps", "150", "--workers", "0", "--sample-seconds", "0.002")
    assert program.process.stdin
    program.process.stdin.write("\n")
    program.process.stdin.flush()
    time.sleep(1.0)
    program.attach_marks()
    probes.watch(program.pid)
    told = program.finish()
    last = told.last_row
    assert 0 < last.steps < 150
    assert abs(last.steps - last.backwards) <= 1
    assert len(told.rows(RowKind.OPTIMIZER)) == last.steps
    assert sum(last.cells) == last.at_ns - last.opened_ns
