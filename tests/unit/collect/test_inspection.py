"""A look at a thread that waits: real processes, real calls."""

from __future__ import annotations

import fcntl
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from trainprobe.collect.inspection import Inspector, count_cpus
from trainprobe.collect.peer import in_table, in_unix_table
from trainprobe.collect.procfs import Proc
from trainprobe.model.sample import ThreadLook


@contextmanager
def child(code: str, *arguments: str) -> Iterator[int]:
    process = subprocess.Popen([sys.executable, "-c", code, *arguments])
    try:
        yield process.pid
    finally:
        process.kill()
        process.wait()


def settled(pid: int, states: str = "SD") -> None:
    """Wait until it sleeps and stays asleep."""
    proc, quiet, end = Proc(), 0, time.monotonic() + 20
    while quiet < 3 and time.monotonic() < end:
        time.sleep(0.05)
        stat = proc.stat(pid)
        quiet = quiet + 1 if stat is not None and stat.state in states else 0
    assert quiet == 3


def test_an_open_that_does_not_come_back_is_told_with_its_path(tmp_path: Path) -> None:
    fifo = tmp_path / "nobody reads this"
    os.mkfifo(fifo)
    with child("import os, sys; os.open(sys.argv[1], os.O_WRONLY)", str(fifo)) as pid:
        settled(pid)
        seen = Inspector(Proc()).inspect(pid, pid)
    assert seen is not None
    assert (seen.pid, seen.tid, seen.state) == (pid, pid, "S")
    assert seen.path == str(fifo)
    assert seen.tracer_pid is None
    assert seen.allowed_cpus == len(os.sched_getaffinity(0))


def test_whoever_may_hold_the_lock_is_looked_at() -> None:
    """A thread on the CPU and one asleep are told, one that waits for a lock itself is not."""
    code = (
        "import threading, time\nlock = threading.Lock(); lock.acquire()\n"
        "def spin():\n    while True: sum(range(1 << 22))\n"
        "for what in (spin, lambda: time.sleep(99), lock.acquire): threading.Thread(target=what, daemon=True).start()\n"
        "lock.acquire()"
    )
    with child(code) as pid:
        settled_threads(pid, 4)
        before, after = (looks(pid) for _ in range(2))
    spinning, asleep = sorted(after, key=lambda look: look.wchan)
    assert (spinning.state, asleep.state) == ("R", "S")
    assert "nanosleep" in asleep.wchan
    first = next(look for look in before if look.tid == spinning.tid)
    assert spinning.own_tid == spinning.tid
    assert (spinning.cpu_ns or 0) > (first.cpu_ns or 0)


def test_who_waits_for_no_lock_has_its_threads_left_alone() -> None:
    with child(
        "import threading, time; threading.Thread(target=time.sleep, args=(99,)).start(); time.sleep(99)"
    ) as pid:
        settled_threads(pid, 2)
        settled(pid)
        seen = Inspector(Proc()).inspect(pid, pid)
    assert seen is not None
    assert seen.threads == ()


def settled_threads(pid: int, count: int) -> None:
    end = time.monotonic() + 20
    while len(Proc().threads(pid)) < count:
        assert time.monotonic() < end
        time.sleep(0.02)


def looks(pid: int) -> tuple[ThreadLook, ...]:
    """Those of a moment in which the main thread is at its lock: it asks for the interpreter's now and then."""
    end = time.monotonic() + 20
    while time.monotonic() < end:
        time.sleep(0.1)
        seen = Inspector(Proc()).inspect(pid, pid)
        if seen is not None and len(seen.threads) == 2:
            return seen.threads
    raise AssertionError("two threads that do not wait for a lock")


@pytest.mark.parametrize("timeout", ["None", "60"])
def test_a_thread_that_sends_is_told_with_its_peer_and_one_that_listens_sends_nothing(timeout: str) -> None:
    """With a timeout, Python polls the socket before each call."""
    code = (
        f"import socket, sys, threading\nsocket.setdefaulttimeout({timeout})\n"
        "one, two = (socket.create_connection(('127.0.0.1', int(port))) for port in sys.argv[1:])\n"
        "threads = [threading.Thread(target=one.sendall, args=(bytes(1 << 26),)),"
        " threading.Thread(target=two.recv, args=(1,))]\n"
        "for one in threads: one.start()\n"
        "for one in threads: one.join()"
    )
    with socket.create_server(("127.0.0.1", 0)) as taker, socket.create_server(("127.0.0.1", 0)) as silent:
        ports = [server.getsockname()[1] for server in (taker, silent)]
        with child(code, *map(str, ports)) as pid:
            settled_threads(pid, 3)
            seen = {look.peer: look.sends for look in looks(pid)}
    assert seen == {f"127.0.0.1:{ports[0]}": True, f"127.0.0.1:{ports[1]}": False}


def test_what_a_connection_has_sent_is_read_also_of_a_child_that_is_waited_for() -> None:
    """The other end takes a part, then nothing."""
    part = 1 << 20
    code = (
        "import os, socket, sys\n"
        "child = os.fork()\n"
        "if child: os.waitpid(child, 0)\n"
        "else: socket.create_connection(('127.0.0.1', int(sys.argv[1]))).sendall(bytes(1 << 26))"
    )
    with socket.create_server(("127.0.0.1", 0)) as server, child(code, str(server.getsockname()[1])) as pid:
        connection, _ = server.accept()
        with connection:
            left = part
            while left:
                left -= len(connection.recv(left))
            settled(pid)
            seen = Inspector(Proc()).inspect(pid, pid)
            port = server.getsockname()[1]
    assert seen is not None
    (look,) = seen.children
    assert look.pid == look.tid != pid
    assert (look.sends, look.peer) == (True, f"127.0.0.1:{port}")
    assert look.sent is not None
    assert look.sent.acknowledged >= part
    assert look.sent.busy_ns > 0


@pytest.mark.parametrize("call", ["flock", "lockf"])
def test_a_lock_on_a_file_is_read_with_its_path_and_its_holder(tmp_path: Path, call: str) -> None:
    lock = tmp_path / "x.lock"
    code = f"import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.{call}(f, fcntl.LOCK_EX)"
    with lock.open("w") as file:
        getattr(fcntl, call)(file, fcntl.LOCK_EX)
        with child(code, str(lock)) as pid:
            settled(pid)
            seen = Inspector(Proc()).inspect(pid, pid)
        inode = lock.stat().st_ino
    assert seen is not None
    assert (seen.locking, seen.path) == ("flock" if call == "flock" else "fcntl", str(lock))
    assert [(held.pid, held.path) for held in seen.held_locks if held.ino == inode] == [(os.getpid(), str(lock))]


def test_a_socket_is_told_with_its_peer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        code = "import socket, sys; socket.create_connection(('127.0.0.1', int(sys.argv[1]))).recv(1)"
        with child(code, str(port)) as pid:
            accepted, _ = server.accept()
            with accepted:
                settled(pid)
                seen = Inspector(Proc()).inspect(pid, pid)
    assert seen is not None
    assert seen.peer == f"127.0.0.1:{port}"


def test_one_processor_of_several_is_an_affinity() -> None:
    code = "import os, time; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}); time.sleep(60)"
    with child(code) as pid:
        settled(pid)
        seen = Inspector(Proc()).inspect(pid, pid)
    assert seen is not None
    assert seen.allowed_cpus == 1


def test_a_process_that_is_gone_is_none() -> None:
    with child("pass") as pid:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert Inspector(Proc()).inspect(pid, pid) is None


@pytest.mark.parametrize(("text", "count"), [("0-3", 4), ("0,2-3", 3), ("7", 1), ("", None), ("a-b", None)])
def test_lists_of_processors_are_counted(text: str, count: int | None) -> None:
    assert count_cpus(text) == count


V4 = """  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:E1F6 0700000A:01BB 01 00000000:00000000 00:00000000 00000000     0        0 4711 1 0000 20
   1: 0100007F:4D28 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4712 1 0000 20
"""
V6 = V4.replace("0700000A:01BB", "B80D0120000000000000000001000000:01BB")
MAPPED = V4.replace("0700000A:01BB", "0000000000000000FFFF00000700000A:01BB")
UNIX = """Num       RefCount Protocol Flags    Type St Inode Path
0000000000000000: 00000002 00000000 00010000 0001 01 4713 /run/some where.sock
0000000000000000: 00000003 00000000 00000000 0001 03 4714
"""


def test_socket_tables_are_read_as_the_kernel_writes_them() -> None:
    assert in_table(V4, "4711").name == "10.0.0.7:443"
    assert in_table(V6, "4711").name == "[2001:db8::1]:443"
    assert in_table(MAPPED, "4711").name == "10.0.0.7:443"
    assert in_table(V4, "4712").name == ""  # it listens
    assert in_table(V4, "9").name == ""
    assert in_table("nonsense\nnonsense nonsense", "4711").name == ""
    assert not in_table(V4, "4711").unsent
    assert in_table(V4.replace("01 00000000:", "01 00012C00:"), "4711").unsent
    assert in_unix_table(UNIX, "4713") == "unix:/run/some where.sock"
    assert in_unix_table(UNIX, "4714") == "unix"


@pytest.mark.parametrize(
    "call",
    [
        "os.read(0, 1)",
        "select.select([0], [], [])",
        "(p := select.poll(), p.register(0, 1), p.poll())",
        "(e := select.epoll(), e.register(sys.argv[1] and 0, 1), e.poll())",
    ],
    ids=["read", "select", "poll", "epoll"],
)
def test_who_waits_for_the_input_of_a_terminal_is_seen_to(call: str) -> None:
    ours, theirs = os.openpty()
    code = f"import os, select, sys; {call}"
    seen = []
    for stdin in (theirs, subprocess.PIPE):
        process = subprocess.Popen([sys.executable, "-c", code, "-"], stdin=stdin)
        try:
            settled(process.pid)
            seen.append(Inspector(Proc()).inspect(process.pid, process.pid))
        finally:
            process.kill()
            process.communicate()
    at_terminal, at_pipe = seen
    assert at_terminal is not None
    assert at_terminal.terminal == os.ttyname(theirs)
    assert at_pipe is not None
    assert at_pipe.terminal == ""
    os.close(ours)
    os.close(theirs)
