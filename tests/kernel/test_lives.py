# SPDX-License-Identifier: Apache-2.0
"""Births, deaths and what sent them."""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from ctypes import c_uint32
from pathlib import Path

import pytest

from benchmarks import pace
from tests.kernel.observing import Observed, await_true, observe, within
from trainprobe.bpf import abi
from trainprobe.bpf.probes import Probes
from trainprobe.model.cells import Leaf, Level, RowKind
from trainprobe.model.event import ProcessEventKind

ENDS = 8
FORK, EXEC, EXIT, SIGNAL = ProcessEventKind.FORK, ProcessEventKind.EXEC, ProcessEventKind.EXIT, ProcessEventKind.SIGNAL


def test_fork_exec_exit_of_the_whole_tree(probes: Probes) -> None:
    body = (
        "import os\npid = os.fork()\n"
        "if pid == 0:\n    os.execv('/bin/sh', ['sh', '-c', '/bin/true; exit 7'])\nos.wait()\nprint(pid)"
    )
    told = observe(probes, body)
    child = int(told.output)
    (fork,) = (e for e in told.processes(FORK) if e.pid == child)
    assert fork.ppid == told.pid
    assert "sh" in {e.comm for e in told.processes(EXEC) if e.pid == child}
    (end,) = (e for e in told.processes(EXIT) if e.pid == child)
    assert (end.code, end.signal, end.ppid) == (7, None, told.pid)
    grandchildren = [e for e in told.processes(FORK) if e.ppid == child]
    assert len(grandchildren) == 1
    (own,) = (e for e in told.processes(EXIT) if e.pid == told.pid)
    assert (own.code, own.signal) == (0, None)


def test_an_exit_in_another_thread_is_the_exit_of_the_process(probes: Probes) -> None:
    """The first thread ends early, another one calls exit: one EXIT, with that status, when all is over."""
    body = (
        "import ctypes, os, threading, time\nlibc = ctypes.CDLL(None)\n"
        "def last():\n    time.sleep(0.2); os._exit(5)\nthreading.Thread(target=last).start()\nlibc.syscall(60, 0)"
    )
    told = observe(probes, body)
    (end,) = told.processes(EXIT)
    assert (told.status, end.code) == (5, 5)


def test_the_first_threads_last_row_comes_before_the_exit(probes: Probes) -> None:
    """Threads die side by side: one that is on another processor may be over before the first one is."""
    body = (
        "import hashlib, os, signal, threading, time\nsignal.signal(2, signal.SIG_DFL)\nbig = bytes(400 << 20)\n"
        "kept = bytearray(b'x') * (100 << 20)\n"
        "threading.Thread(target=hashlib.sha256, args=(big,), daemon=True).start()\n"
        "time.sleep(0.05)\nos.kill(os.getpid(), 2)"
    )
    for _ in range(ENDS):
        told = observe(probes, body)
        (end,), (row,) = told.processes(EXIT), told.rows(RowKind.EXIT)
        assert (end.signal, row.tid) == (2, told.pid)
        assert row.at_ns <= end.at_ns


def test_threads_that_die_together_are_one_end(probes: Probes) -> None:
    """Several may find that none lives any longer."""
    body = (
        "import os, threading, time\nfor _ in range(40):\n    if os.fork() == 0:\n"
        "        for _ in range(16): threading.Thread(target=time.sleep, args=(9,), daemon=True).start()\n"
        "        os._exit(3)\n    os.wait()"
    )
    told = observe(probes, body)
    ends = [e.pid for e in told.processes(EXIT)]
    assert len(ends) == len({*ends}) == 41


def test_a_kill_names_its_sender(probes: Probes) -> None:
    program = Observed.python(probes, "import time; time.sleep(30)").go()
    time.sleep(0.1)
    os.kill(program.pid, signal.SIGKILL)
    told = program.finish()
    (sent,) = told.processes(SIGNAL)
    assert (sent.pid, sent.signal, sent.sender_pid, sent.by_user) == (program.pid, 9, os.getpid(), True)
    (end,) = told.processes(EXIT)
    assert (end.code, end.signal) == (None, 9)
    assert sent.at_ns <= end.at_ns


def test_a_crash_is_the_kernels_signal(probes: Probes) -> None:
    told = observe(probes, "import ctypes; ctypes.string_at(0)")
    (sent,) = told.processes(SIGNAL)
    assert (sent.signal, sent.by_user) == (11, False)
    (end,) = told.processes(EXIT)
    assert end.signal == 11


def test_a_death_wakes_the_reader(probes: Probes) -> None:
    program = Observed.python(probes, "import time; time.sleep(30)").go()
    time.sleep(0.1)
    probes.drain()
    epoll = select.epoll()
    epoll.register(probes.fileno(), select.EPOLLIN)
    assert epoll.poll(0.05) == []
    program.process.kill()
    began = time.monotonic()
    assert epoll.poll(2.0)
    assert pace.within(time.monotonic() - began, 0.1)
    epoll.close()
    program.finish()


def test_children_are_coarse_and_their_time_is_pooled(probes: Probes) -> None:
    """What worker processes do is added up, by leaf, for the process that forked them."""
    body = (
        "import os, time\nfor _ in range(3):\n    if os.fork() == 0:\n        time.sleep(0.3)\n"
        "        end = time.thread_time() + 0.1\n        while time.thread_time() < end: pass\n        os._exit(0)\n"
        "for _ in range(3): os.wait()"
    )
    told = observe(probes, body)
    pool = told.last_row.pool
    assert within(pool[Leaf.SLEEP] / 1e9, 0.9)
    assert 0.29 <= pool[Leaf.CPU] / 1e9 <= 0.4, dict(zip(Leaf, pool))
    lives = {e.pid: e.at_ns for e in told.processes(EXIT)}
    births = {e.pid: e.at_ns for e in told.processes(FORK)}
    total = sum(lives[pid] - births[pid] for pid in births)
    assert within(sum(pool) / 1e9, total / 1e9)


def test_helper_threads_have_no_ledger_and_children_have_one(probes: Probes) -> None:
    body = (
        "import os, threading, time\nthreading.Thread(target=time.sleep, args=(9,), daemon=True).start()\n"
        "os.fork()\ntime.sleep(9)"
    )
    program = Observed.python(probes, body).go()
    try:
        await_true(lambda: len(probes.threads()) == 2, "the child's ledger")
        main, child = sorted(probes.threads(), key=lambda t: t.level, reverse=True)
        assert (main.pid, main.level) == (program.pid, Level.FULL)
        assert (child.level, child.tid) == (Level.COARSE, child.pid)
    finally:
        for process in [t.pid for t in probes.threads()]:
            os.kill(process, signal.SIGKILL)
        program.finish()
    await_true(lambda: not probes.threads(), "the ledgers to go")


def test_many_short_children_lose_nothing(probes: Probes) -> None:
    told = observe(probes, "import os\nfor _ in range(300):\n    if os.fork() == 0: os._exit(3)\n    os.wait()")
    ends = [e for e in told.processes(EXIT) if e.pid != told.pid]
    assert len(ends) == len(told.processes(FORK)) == 300
    assert {e.code for e in ends} == {3}
    row = told.last_row
    assert sum(row.cells) == row.at_ns - row.opened_ns


def test_exec_by_another_thread_keeps_one_ledger(probes: Probes) -> None:
    body = (
        "import os, threading, time\n"
        "threading.Thread(target=lambda: os.execv('/bin/sleep', ['sleep', '0.3'])).start()\ntime.sleep(9)"
    )
    told = observe(probes, body)
    assert told.status == 0
    last = told.rows(RowKind.EXIT)[-1]
    assert last.tid == told.pid
    assert within(last.cells[Leaf.SLEEP] / 1e9, 0.3)
    assert sum(last.cells) == last.at_ns - last.opened_ns
    assert len(told.processes(EXIT)) == 1


def test_a_program_that_runs_another_one_leaves_it_its_places_of_cuda(probes: Probes) -> None:
    """As many as one program may have, which were told of the old one."""
    program = Observed.python(probes, "import os\nsys.stdin.readline()\nos.execv('/bin/cat', ['cat'])").go()
    processes, key, stdin = probes._watching.processes, c_uint32(program.pid), program.process.stdin
    process = processes.get(key)
    assert process
    assert stdin
    process.gpu_sites = 160
    assert processes.replace(key, process)
    stdin.write("\n")
    stdin.flush()
    await_true(lambda: program.collect() and program.told.processes(EXEC), "the other program")
    process = processes.get(key)
    assert process
    assert process.gpu_sites == 0
    stdin.close()
    assert program.finish().status == 0


@pytest.mark.parametrize("watched", [True, False])
def test_the_record_of_a_start_goes_with_its_process(probes: Probes, watched: bool) -> None:
    """Also of one that is watched no longer: there is room for so many."""
    records = probes._starts._records
    program = Observed.python(probes, "import os\nos.execv('/bin/cat', ['cat'])").go()
    key, stdin = c_uint32(program.pid), program.process.stdin
    await_true(lambda: program.collect() and program.told.processes(EXEC), "the other program")
    assert records.get(key)
    if not watched:
        probes.unwatch(program.pid)
    assert stdin
    stdin.close()
    assert program.finish().status == 0
    assert records.get(key) is None


DEEP = """
import sys
for path in sys.argv[1:]:
    with open(path, "rb") as file:
        file.read()
sys.stdin.readline()
"""


@pytest.mark.parametrize("depth", [1, 2])
def test_a_checkpoint_that_a_program_begins_with_is_known_however_deep_it_lies(
    probes: Probes, tmp_path: Path, depth: int
) -> None:
    folder = tmp_path.joinpath(*["model.dropout=0.1," * 7] * depth)
    folder.mkdir(parents=True)
    paths = [folder / "last.ckpt", folder / ("x" * 150 + ".ckpt")]
    for path in paths:
        path.write_bytes(bytes(100_000))
    again = [sys.executable, "-S", "-c", DEEP, *map(str, paths)]
    program = Observed.python(probes, f"import os\nos.execv(sys.executable, {again})").go()
    stdin = program.process.stdin
    assert stdin
    records, key = probes._starts._records, c_uint32(program.pid)
    await_true(lambda: (record := records.get(key)) and record.files[1].bytes == 100_000, "the reads")
    start = probes._starts.take_record(program.pid, 0)
    assert start
    for file, path in zip(start.files, paths):
        if len(str(path)) < abi.START_PATH_SIZE:
            assert file.path == str(path)
        assert str(path).endswith(file.path.removeprefix("…"))
        assert file.path.endswith(f"/{path.name}")
        assert file.bytes == 100_000
    stdin.close()
    assert program.finish().status == 0


def test_an_id_that_comes_back_brings_nothing_along(probes: Probes) -> None:
    """A thread whose end nobody saw has left a ledger, which belongs to nobody any longer."""
    body = (
        "import threading\nthread = threading.Thread(target=sys.stdin.readline)\nsys.stdin.readline()\n"
        "thread.start()\nprint(thread.native_id, flush=True)\nthread.join()"
    )
    program = Observed.python(probes, body).go()
    last = int(Path("/proc/sys/kernel/ns_last_pid").read_text())
    comes = range(last + 1, last + 200)
    try:
        for tid in comes:
            probes._ledgers.insert(tid, abi.Ledger(tgid=tid, opened=1, steps=7))
            probes._levels[tid] = Level.COARSE
        assert program.process.stdin
        assert program.process.stdout
        program.process.stdin.write("\n")
        program.process.stdin.flush()
        tid = int(program.process.stdout.readline())
        assert tid in comes
        assert (probes._ledgers.get(tid), probes._levels[tid]) == (None, Level.WRITER)
    finally:
        for tid in comes:
            if probes._levels[tid] == Level.COARSE:
                probes._levels[tid] = 0
                probes._ledgers.delete(tid)
    program.process.stdin.write("\n")
    program.process.stdin.flush()
    assert program.finish().status == 0


def test_a_stop_names_its_sender_and_ends_nobody(probes: Probes) -> None:
    program = Observed.python(probes, "import time; time.sleep(0.6)").go()
    time.sleep(0.2)
    os.kill(program.pid, signal.SIGSTOP)
    time.sleep(0.3)
    os.kill(program.pid, signal.SIGCONT)
    told = program.finish()
    sent = [(e.signal, e.sender_pid, e.by_user) for e in told.processes(SIGNAL)]
    assert sent == [(19, os.getpid(), True), (18, os.getpid(), True)]
    (end,) = told.processes(EXIT)
    assert (end.code, end.signal) == (0, None)


def test_thousands_of_threads_are_seeded_quickly_and_take_one_ledger(probes: Probes) -> None:
    body = (
        "import threading\nthreading.stack_size(64 << 10)\nheld = threading.Event()\n"
        "crowd = [threading.Thread(target=held.wait) for _ in range(3000)]\n"
        "for thread in crowd: thread.start()\nprint('there', flush=True)\nsys.stdin.readline()\nheld.set()\n"
        "for thread in crowd: thread.join()"
    )
    observed = Observed.python(probes, body)
    assert observed.process.stdin
    assert observed.process.stdout
    observed.process.stdin.write("\n")
    observed.process.stdin.flush()
    assert observed.process.stdout.readline() == "there\n"
    before = probes.lost()["ledger"]
    began = time.thread_time()
    observed.go()
    assert time.thread_time() - began < 2
    assert len([sample for sample in probes.threads() if sample.pid == observed.pid]) == 1
    assert observed.finish().last_row.tid == observed.pid
    assert probes.lost()["ledger"] == before
