# SPDX-License-Identifier: Apache-2.0
"""A plain program whose waits are known: every nanosecond lies in one cell, and in the right one."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from tests.kernel.observing import Observed, Told, await_true, observe, within
from trainprobe.bpf.probes import Probes
from trainprobe.model.cells import Leaf, Level, ThreadState


def test_cells_add_up_to_the_life_of_the_ledger(probes: Probes) -> None:
    told = observe(probes, "import time\nfor _ in range(50): time.sleep(0.002); sum(range(20000))")
    row = told.last_row
    assert sum(row.cells) == row.at_ns - row.opened_ns


PIPE = "import os, select, socket, threading, time\nr, w = os.pipe()\na, b = socket.socketpair()\n"
CHILD = "if os.fork() == 0:\n    time.sleep(0.3); {then}; os._exit(0)\n"
CLOCK = "began = time.monotonic()\n{wait}\nprint(time.monotonic() - began)"
SERVER = (
    "s = socket.socket(socket.AF_UNIX); s.bind(''); s.listen()\n"  # a name of the kernel's choosing
    "here = socket.socket(socket.AF_UNIX); here.connect(s.getsockname()); there, _ = s.accept()\n"
)
LOOPBACK = (
    "s = socket.create_server(('127.0.0.1', 0))\n"
    "here = socket.create_connection(s.getsockname()); there, _ = s.accept()\n"
)
WAITS = {  # leaf, what comes before, the wait
    "sleep": (Leaf.SLEEP, "", "time.sleep(0.3)"),
    "select": (Leaf.POLL, "", "select.select([r], [], [], 0.3)"),
    "select-on-nothing": (Leaf.SLEEP, "", "select.select([], [], [], 0.3)"),
    "flock": (
        Leaf.LOCK,
        "import fcntl, tempfile; f = tempfile.NamedTemporaryFile(); g = open(f.name); fcntl.flock(g, fcntl.LOCK_EX)\n"
        + CHILD.format(then="fcntl.flock(g, fcntl.LOCK_UN)")
        + "os.close(g.fileno())\n",
        "fcntl.flock(f, fcntl.LOCK_EX)",
    ),
    "wait4": (Leaf.CHILD, CHILD.format(then="pass"), "os.wait()"),
    "pipe-read": (Leaf.PIPE_READ, CHILD.format(then="os.write(w, b'x')"), "os.read(r, 1)"),
    "poll-on-pipe": (
        Leaf.PIPE_READ,
        "p = select.poll(); p.register(r)\n" + CHILD.format(then="os.write(w, b'x')"),
        "p.poll()",
    ),
    "pipe-full": (Leaf.STREAM_OUT, CHILD.format(then="os.read(r, 1 << 20)"), "os.write(w, bytes(1 << 17))"),
    "socket": (Leaf.SOCKET, SERVER + CHILD.format(then="there.send(b'x')"), "here.recv(1)"),
    "server's-end": (Leaf.SOCKET, SERVER + CHILD.format(then="here.send(b'x')"), "os.read(there.fileno(), 1)"),
    "loopback": (Leaf.SOCKET, LOOPBACK + CHILD.format(then="there.send(b'x')"), "here.recv(1)"),
    "socketpair": (Leaf.PIPE_READ, CHILD.format(then="b.send(b'x')"), "a.recv(1)"),
    "read-of-a-pair": (Leaf.PIPE_READ, CHILD.format(then="b.send(b'x')"), "os.read(a.fileno(), 1)"),
    "pair-of-a-worker": (
        Leaf.SOCKET,
        "open('/proc/self/comm', 'w').write('pt_data_worker')\n" + CHILD.format(then="b.send(b'x')"),
        "a.recv(1)",
    ),
    "poll-on-a-pair": (
        Leaf.PIPE_READ,
        "p = select.poll(); p.register(a, select.POLLIN)\n" + CHILD.format(then="b.send(b'x')"),
        "p.poll()",
    ),
    "lock": (Leaf.LOCK, "t = threading.Thread(target=time.sleep, args=(0.3,)); t.start()\n", "t.join()"),
}


@pytest.mark.parametrize("name", WAITS)
def test_a_known_wait_is_in_its_leaf(probes: Probes, name: str) -> None:
    leaf, before, wait = WAITS[name]
    told = observe(probes, PIPE + before + CLOCK.format(wait=wait))
    assert told.status == 0
    truth = float(told.output)
    assert truth >= 0.25
    unsure = 0.02 * truth + 0.005
    assert truth - unsure <= told.seconds(leaf) + told.seconds(Leaf.RUNQUEUE), cells_of(told)
    assert told.seconds(leaf) <= truth + unsure, cells_of(told)


def test_select_without_descriptors_is_a_sleep(probes: Probes) -> None:
    """As Pythons before 3.11 sleep."""
    body = "import ctypes\nt = (ctypes.c_long * 2)(0, 250000)\nctypes.CDLL(None).select(0, None, None, None, t)"
    told = observe(probes, body)
    assert within(told.seconds(Leaf.SLEEP), 0.25), cells_of(told)


def test_cpu_is_the_threads_own_clock(probes: Probes) -> None:
    body = "import time\nend = time.thread_time() + 0.5\nwhile time.thread_time() < end: pass"
    program = Observed.python(probes, body).go()
    _, _, used = os.wait4(program.pid, 0)
    told = program.finish()
    on_cpu = told.seconds(Leaf.CPU) + told.seconds(Leaf.READ_CPU)
    assert 0.49 <= on_cpu <= used.ru_utime + used.ru_stime + 0.01, cells_of(told)


def test_a_stopped_process_is_stopped(probes: Probes) -> None:
    program = Observed.python(
        probes, "import time\nend = time.monotonic() + 0.8\nwhile time.monotonic() < end: pass"
    ).go()
    time.sleep(0.1)
    os.kill(program.pid, signal.SIGSTOP)
    began = time.monotonic()
    time.sleep(0.4)
    os.kill(program.pid, signal.SIGCONT)
    stopped = time.monotonic() - began
    told = program.finish()
    assert within(told.seconds(Leaf.STOPPED), stopped), cells_of(told)


def test_a_sleep_that_a_stop_interrupts_stays_a_sleep(probes: Probes) -> None:
    """restart_syscall(2) goes on with what was interrupted; nothing of it may become "other"."""
    program = Observed.python(probes, "import ctypes\nctypes.CDLL(None).usleep(700000)").go()
    time.sleep(0.15)
    os.kill(program.pid, signal.SIGSTOP)
    time.sleep(0.2)
    os.kill(program.pid, signal.SIGCONT)
    told = program.finish()
    assert told.seconds(Leaf.SLEEP) + told.seconds(Leaf.STOPPED) > 0.68, cells_of(told)
    assert told.seconds(Leaf.OTHER) < 0.01, cells_of(told)


def test_reading_a_file_is_read_cpu_or_file_read(probes: Probes, tmp_path: object) -> None:
    path = f"{tmp_path}/data"
    with open(path, "wb") as file:
        file.write(os.urandom(1 << 20) * 128)
    body = (
        "import os, sys, time\nfd = os.open(sys.argv[1], os.O_RDONLY)\nbegan = time.monotonic()\n"
        "while os.read(fd, 1 << 22): pass\nprint(time.monotonic() - began)"
    )
    told = observe(probes, body, path)
    ours = sum(told.seconds(leaf) for leaf in (Leaf.READ_CPU, Leaf.FILE_READ, Leaf.RUNQUEUE))
    assert abs(ours - float(told.output)) < 0.1 * float(told.output) + 0.02, cells_of(told)


def test_writes_and_the_work_between_them_are_the_files(probes: Probes, tmp_path: object) -> None:
    """Bytes produced between two writes of one file are its gap; the rest of the program stays CPU.

    The thread's own clock leaves out what a hypervisor takes of it, the wall's has rivals' time in it.
    """
    body = (
        "import os, sys, time\nfd = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)\n"
        "def work(s):\n    end = time.thread_time() + s\n    while time.thread_time() < end: pass\n"
        "os.write(fd, b'x' * 100)\nbegan = time.monotonic()\nwork(0.2)\ntook = time.monotonic() - began\n"
        "os.write(fd, b'x' * 100)\nos.close(fd)\nwork(0.1)\nprint(took)"
    )
    told = observe(probes, body, f"{tmp_path}/file")
    took = float(told.output)
    gap = told.seconds(Leaf.FILE_GAP)
    assert within(gap, min(max(gap, 0.2), took)), cells_of(told)
    assert told.seconds(Leaf.CPU) + told.seconds(Leaf.RUNQUEUE) >= 0.1, cells_of(told)  # it may have a rival


def test_between_short_lines_each_in_a_file_of_its_own_all_is_gap(probes: Probes, tmp_path: object) -> None:
    """From a close to the next open, too, where it comes at once; a computation between two is the program's own."""
    body = (
        "import os, sys, time\n"
        "def work(s):\n    end = time.thread_time() + s\n    while time.thread_time() < end: pass\n"
        "def line(i):\n    with open(f'{sys.argv[1]}/{i % 9}', 'a') as f: f.write('a line\\n')\n"
        "line(0)\nbegan = time.thread_time()\nfor i in range(20000): line(i)\nspent = time.thread_time() - began\n"
        "for i in range(20): work(0.01); line(i)\nprint(spent)"
    )
    told = observe(probes, body, str(tmp_path))
    calls = sum(told.seconds(leaf) for leaf in (Leaf.FILE_META, Leaf.FILE_WRITE))
    assert told.seconds(Leaf.CPU) >= 0.19
    assert told.seconds(Leaf.FILE_GAP) + calls > 0.9 * float(told.output), cells_of(told)


def test_an_open_wait_is_seen_while_it_lasts(probes: Probes) -> None:
    program = Observed.python(probes, "import os\nr, w = os.pipe()\nos.read(r, 1)").go()
    try:
        await_true(
            lambda: [t for t in probes.threads({program.pid}) if t.leaf is Leaf.PIPE_READ and t.fd > 2], "the read"
        )
        (thread,) = probes.threads({program.pid})
        assert (thread.run, thread.level, thread.syscall, thread.call) == (ThreadState.BLOCKED, Level.FULL, 0, "read")
        before = sum(thread.cells)
        time.sleep(0.2)
        (later,) = probes.threads({program.pid})
        assert sum(later.cells) - before >= 0.2e9
        assert later.since_ns == thread.since_ns
    finally:
        program.process.kill()
        program.finish()


@pytest.mark.parametrize(
    ("call", "wait"),
    [("splice", "os.splice(r, os.pipe()[1], 1)"), ("rt_sigtimedwait", "signal.sigwait({signal.SIGUSR1})")],
)
def test_a_wait_in_a_call_of_no_kind_has_the_calls_name(probes: Probes, call: str, wait: str) -> None:
    program = Observed.python(probes, f"import os, signal\nr, w = os.pipe()\n{wait}").go()
    try:
        await_true(lambda: [t for t in probes.threads({program.pid}) if t.call == call], "the wait")
        (thread,) = probes.threads({program.pid})
        assert (thread.run, thread.leaf) == (ThreadState.BLOCKED, Leaf.OTHER)
    finally:
        program.process.kill()
        program.finish()


def test_attached_in_the_middle_of_a_wait_it_is_seeded_from_proc(probes: Probes) -> None:
    body = (
        "import os, time\nr, w = os.pipe()\n"
        "if os.fork() == 0: time.sleep(1); os.write(w, b'x'); os._exit(0)\nos.read(r, 1)"
    )
    process = subprocess.Popen([sys.executable, "-S", "-c", body])
    syscall = Path(f"/proc/{process.pid}/syscall")
    await_true(lambda: syscall.read_text().split()[:4:3] == ["0", "0x1"], "the read of one byte")
    probes.watch(process.pid)
    (thread,) = (t for t in probes.threads({process.pid}) if t.level is Level.FULL)
    assert thread.leaf is Leaf.PIPE_READ
    assert len(probes.threads()) == 2, "the child is watched too"
    process.wait()
    told = Told(process.pid, events=probes.drain())
    row = told.last_row
    assert sum(row.cells) == row.at_ns - row.opened_ns
    assert told.seconds(Leaf.PIPE_READ) > 0.8 * (row.at_ns - row.opened_ns) / 1e9


@pytest.mark.parametrize("then", ["time.sleep(0.01)", "os.write(f, bytes(4096))", "os.pread(f, 4096, 0)"])
def test_a_switch_that_nobody_told_of_is_made_good(probes: Probes, then: str) -> None:
    """There are kernels whose sched_switch leaves some out: who runs next has never left the queue, by his ledger."""
    program = Observed.python(
        probes,
        "import os, tempfile, time\nfile = tempfile.TemporaryFile(buffering=0)\nf = file.fileno()\n"
        "waited = lambda: int(open('/proc/self/schedstat').read().split()[1])\nbefore = waited()\n"
        "end = time.monotonic() + 0.5\nwhile time.monotonic() < end: pass\n" + then + "\nprint(waited() - before)",
    ).go()
    time.sleep(0.2)
    ledger = probes._ledgers.get(program.pid)
    assert ledger
    assert ledger.run in (ThreadState.ON, ThreadState.RUNNABLE), "it computes; a switch may be missing already"
    ledger.run, ledger.leaf, ledger.why = ThreadState.RUNNABLE, Leaf.RUNQUEUE, Leaf.CPU
    probes._ledgers.put(program.pid, ledger)
    told = program.finish()
    row = told.last_row
    assert sum(row.cells) == row.at_ns - row.opened_ns
    assert told.seconds(Leaf.RUNQUEUE) <= int(told.output) / 1e9 + 0.03, cells_of(told)
    assert told.seconds(Leaf.CPU) + told.seconds(Leaf.FILE_GAP) > 0.4 - int(told.output) / 1e9, cells_of(told)


def test_a_switch_that_nobody_told_of_within_a_call_is_made_good(probes: Probes) -> None:
    """The end of a call proves that its thread runs: the call has its time, not the run queue."""
    program = Observed.python(
        probes,
        "import os\nwaited = lambda: int(open('/proc/self/schedstat').read().split()[1])\nbefore = waited()\n"
        "f, data = os.memfd_create('x'), bytes(1 << 28)\nos.write(f, data)\nprint('', flush=True)\n"
        "for _ in range(4): os.pwrite(f, data, 0)\nprint(waited() - before)",
    ).go()
    assert program.process.stdout
    program.process.stdout.readline()
    await_true(lambda: (held := probes._ledgers.get(program.pid)) and held.call >= 0, "a long write")
    ledger = probes._ledgers.get(program.pid)
    assert ledger
    ledger.run, ledger.leaf, ledger.why = ThreadState.RUNNABLE, Leaf.RUNQUEUE, Leaf.CPU
    probes._ledgers.put(program.pid, ledger)
    told = program.finish()
    assert told.seconds(Leaf.RUNQUEUE) <= int(told.output) / 1e9 + 0.03, cells_of(told)


@pytest.mark.parametrize("pinned", [True, False], ids=["on one processor", "moved between them"])
def test_who_is_woken_and_finds_no_processor_waits_for_one(probes: Probes, pinned: bool) -> None:
    """As long as the scheduler says, but for waits too short for a rival (WAKE_UP_NS of sched.bpf.c)."""
    rounds = random.randint(40, 80)
    body = (
        "import os, time\nos.nice(10)\n"
        "waited = lambda: int(open('/proc/self/schedstat').read().split()[1])\nbefore = waited()\n"
        f"for _ in range({rounds}):\n    time.sleep(0.004)\n    end = time.thread_time() + 0.001\n"
        "    while time.thread_time() < end: pass\n"
        "os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))  # what comes after is nobody's count\n"
        "print(waited() - before, waited(), flush=True)\nos._exit(0)"
    )
    places = sorted(os.sched_getaffinity(0))[:1] if pinned else sorted(os.sched_getaffinity(0))
    rivals = [
        subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"], preexec_fn=partial(_stay_on, places))
        for _ in range(len(places) + 1)
    ]
    try:
        told = observe(probes, body, preexec_fn=partial(_stay_on, places))
    finally:
        for rival in rivals:
            rival.kill()
            rival.wait()
    truth, at_most = (int(word) / 1e9 for word in told.output.split())
    ours, row = told.seconds(Leaf.RUNQUEUE), told.last_row
    assert sum(row.cells) == row.at_ns - row.opened_ns
    assert truth > 0.1, "they are no rivals"
    assert truth * 0.98 - rounds * 0.0007 <= ours <= at_most * 1.02 + 0.02, (truth, at_most, cells_of(told))
    assert told.seconds(Leaf.SLEEP) >= rounds * 0.004, cells_of(told)
    assert told.seconds(Leaf.SLEEP) <= rounds * 0.006, cells_of(told)


def _stay_on(places: list[int]) -> None:
    os.sched_setaffinity(0, places)


def test_unwatched_it_is_silent(probes: Probes) -> None:
    program = Observed.python(
        probes, "import sys, time\nprint(flush=True)\nsys.stdin.readline()\nopen('/tmp/x', 'w').close()"
    ).go()
    assert program.process.stdout
    program.process.stdout.readline()
    probes.drain()
    probes.unwatch(program.pid)
    assert probes.threads({program.pid}) == []
    assert program.process.stdin
    program.process.stdin.write("\n")
    program.process.stdin.flush()
    program.process.wait()
    assert [e for e in probes.drain() if getattr(e, "pid", 0) == program.pid] == []
    program.finish()


def cells_of(told: Told) -> dict[str, float]:
    return {leaf.name: round(told.seconds(leaf), 4) for leaf in Leaf if told.seconds(leaf)}
