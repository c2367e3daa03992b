# SPDX-License-Identifier: Apache-2.0
"""What there is no room for is counted, and when there is room again it is taken."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from ctypes import c_uint32
from pathlib import Path

import pytest

from benchmarks.limits import fake_torch
from tests.kernel.observing import Observed, await_true
from trainprobe.bpf import abi
from trainprobe.bpf.probes import CROWDED, Probes
from trainprobe.collect.procfs import Proc
from trainprobe.model.cells import Leaf, Level, RowKind
from trainprobe.model.event import FileEventKind, ProcessEventKind

FORK, EXIT = ProcessEventKind.FORK, ProcessEventKind.EXIT
NOBODY = 1 << 23
"""Behind every thread id that a kernel gives."""
CHILDREN = 8000
CROWD = f"""
import os
for _ in range({CHILDREN}):
    if os.fork() == 0: os._exit(0)
    os.wait()
"""


@pytest.fixture
def own_probes() -> Iterator[Probes]:
    """Not those of other tests, which lose nothing."""
    probes = Probes.start(Proc(), auto=False)
    yield probes
    probes.close()


def test_what_the_ring_has_no_room_for_is_counted_to_the_last_event(own_probes: Probes) -> None:
    """Nobody reads while 8 000 processes come and go, as when the daemon was stopped."""
    with subprocess.Popen(["true"]):  # an ordinary parent of ours may be reaped meanwhile
        pass
    crowd = Observed.python(own_probes, CROWD).go()
    crowd.process.wait(60)
    told = crowd.finish()
    seen = len(told.processes(FORK)) + len(told.processes(EXIT))
    lost = own_probes.lost()
    assert lost["process"] > 0
    assert seen + lost["process"] == 2 * CHILDREN + 1
    assert lost["malformed"] == 0
    after = Observed.python(own_probes, "import os\nif os.fork() == 0: os._exit(3)\nos.wait()").go().finish()
    assert [event.code for event in after.processes(EXIT)] == [3, 0], "and then it goes on"


def test_who_renames_all_the_time_has_a_part_of_the_ring(own_probes: Probes, tmp_path: Path) -> None:
    """So that the ends of processes, and others' files, have room in it."""
    code = f"""
import os, time
os.chdir({str(tmp_path)!r})
open('a', 'w').close()
end = time.monotonic() + 1.0
while time.monotonic() < end:
    os.rename('a', 'b')
    os.rename('b', 'a')
    try:
        os.unlink('none')
    except OSError:
        pass
"""
    told = Observed.python(own_probes, code).go().finish()
    lost = own_probes.lost()
    assert lost["file"] > 1000
    assert lost["process"] == 0
    assert 256 <= len(told.files(FileEventKind.RENAMED)) <= 256 * 12


def test_a_full_map_is_told_and_survived(own_probes: Probes) -> None:
    filled = []
    while own_probes._ledgers.insert(NOBODY + len(filled), abi.Ledger()):
        filled.append(NOBODY + len(filled))
    assert len(filled) > 1000
    body = "import os\nif os.fork() == 0: os._exit(0)\nos.wait()"
    unseen = Observed.python(own_probes, body).go().finish()
    assert own_probes.lost()["ledger"] >= 2, "the process and its child"
    assert len(unseen.processes(EXIT)) == 2, "their lives are told all the same"
    for key in filled:
        own_probes._ledgers.delete(key)
    before = own_probes.lost()["ledger"]
    assert Observed.python(own_probes, body).go().finish().last_row.steps == 0
    assert own_probes.lost()["ledger"] == before


def test_files_are_lost_where_there_is_no_room_for_the_threads_that_write_them(
    own_probes: Probes, tmp_path: Path
) -> None:
    path, calls = tmp_path / "model.pt", own_probes._watching._calls
    filled: list[c_uint32] = []
    while calls.insert(key := c_uint32(NOBODY + len(filled)), abi.CallRecord()):
        filled.append(key)
    assert len(filled) > 1000
    body = f"""
import threading
def save():
    with open({str(path)!r}, 'wb', buffering=0) as file: file.write(bytes(1 << 20))
thread = threading.Thread(target=save)
thread.start()
thread.join()
"""
    unseen = Observed.python(own_probes, body).go().finish()
    assert (unseen.written(str(path)), own_probes.lost()["file"] > 0) == (0, True)
    for key in filled:
        calls.delete(key)
    before = own_probes.lost()
    assert Observed.python(own_probes, body).go().finish().written(str(path)) == 1 << 20
    assert own_probes.lost() == before


def test_who_finds_its_place_taken_has_another_one(own_probes: Probes) -> None:
    """By user space and by a fork in the kernel; when all is over nothing is left of them."""
    ledgers, by_id = own_probes._ledgers, abi.LEDGERS_BY_ID
    first = NOBODY + -NOBODY % by_id
    others = range(first, first + by_id)
    assert all(ledgers.insert(tid, abi.Ledger()) for tid in others)
    body = "import os, time\nif os.fork() == 0: time.sleep(1); os._exit(0)\nos.wait()"
    program = Observed.python(own_probes, body).go()
    await_true(lambda: {sample.leaf for sample in own_probes.threads()} == {Leaf.CHILD, Leaf.SLEEP}, "both to wait")
    assert ledgers.get(program.pid + by_id) is None, "the place is the same, the thread another"
    told = program.finish()
    assert told.seconds(Leaf.CHILD) + told.seconds(Leaf.RUNQUEUE) > 0.9
    assert [event.code for event in told.processes(EXIT)] == [0, 0]
    assert {tid for tid, _ in ledgers.entries()} == set(others)
    for tid in others:
        ledgers.delete(tid)
    assert not ledgers.entries()
    assert not ledgers._spare.entries()
    assert own_probes.lost()["ledger"] == 0


def test_a_crowd_of_pythons_takes_nobodys_place(own_probes: Probes) -> None:
    processes = own_probes._watching.processes
    crowd = [c_uint32(NOBODY + n) for n in range(CROWDED)]
    for key in crowd:
        processes.put(key, abi.Process(tentative=1))
        own_probes._ledgers.put(key.value, abi.Ledger())
    sleeping = Observed.python(own_probes, "import time\ntime.sleep(1)").go()
    time.sleep(0.2)
    own_probes.threads()
    assert not any(own_probes._ledgers.get(key.value) or processes.get(key) for key in crowd)
    assert own_probes._levels[sleeping.pid] == Level.FULL, "who is watched stays watched"
    assert sleeping.finish().last_row.tid == sleeping.pid


STEPPING = """
import ctypes, time
library = ctypes.CDLL({library!r})
print(library.start({threads}, {milliseconds}), flush=True)
input()
time.sleep({seconds})
"""


def test_threads_that_step_take_a_processes_part_of_the_places(own_probes: Probes, tmp_path: Path) -> None:
    """Another process has its own, and those that end give theirs back."""
    library = str(fake_torch.built(tmp_path))
    with ExitStack() as ends:
        crowds = [
            Observed.python(own_probes, STEPPING.format(library=library, threads=200, milliseconds=50, seconds=9)).go()
            for _ in range(2)
        ]
        for one in crowds:
            ends.callback(one.process.kill)
        maps = [Path(f"/proc/{one.pid}/maps") for one in crowds]
        await_true(lambda: all("libtorch" in one.read_text() for one in maps), "the library")
        crowds[0].attach_marks()
        await_true(lambda: len(own_probes.threads()) == 2 * abi.DRIVERS + 2, "their ledgers", 5)
        time.sleep(0.5)
        assert len(own_probes.threads()) == 2 * abi.DRIVERS + 2, "two first threads, and the drivers"
        for one in crowds:
            one.process.kill()
            one.finish()
    assert not own_probes.threads()
    assert own_probes.lost()["ledger"] == 0


def test_a_driver_in_a_new_thread_each_time_is_always_watched(own_probes: Probes, tmp_path: Path) -> None:
    library = str(fake_torch.built(tmp_path))
    body = f"""
import ctypes, threading
library = ctypes.CDLL({library!r})
print(flush=True)
input()
for _ in range(200):
    thread = threading.Thread(target=library.make_step)
    thread.start()
    thread.join()
"""
    program = Observed.python(own_probes, body).go()
    await_true(lambda: "libtorch" in Path(f"/proc/{program.pid}/maps").read_text(), "the library")
    program.attach_marks()
    assert program.process.stdin
    program.process.stdin.write("\n")
    program.process.stdin.flush()
    told = program.finish()
    assert len({row.tid for row in told.rows(RowKind.DRIVER)}) == 200
