# SPDX-License-Identifier: Apache-2.0
"""Calls that fail for want of descriptors, space or processes, provoked for real."""

from __future__ import annotations

import errno
import os
import random
import resource
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kernel.observing import Observed, Told, observe
from trainprobe.bpf.probes import Probes
from trainprobe.model.event import CallFailed

MAKERS = {
    "openat": "os.open('/dev/null', os.O_RDONLY)",
    "fcntl": "fcntl.fcntl(0, fcntl.F_DUPFD_CLOEXEC, 0)",
    "socket": "socket.socket()",
    "socketpair": "socket.socketpair()",
    "pipe2": "os.pipe()",
    "eventfd2": "os.eventfd(0)",
    "epoll_create1": "select.epoll()",
    "memfd_create": "os.memfd_create('x')",
}
OUT_OF_DESCRIPTORS = """
import fcntl, os, resource, select, socket, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
kept = []
for _ in range(int(sys.argv[1])):
    try:
        while True: kept.append(MAKER)
    except OSError as error: print(error.errno, flush=True)
    kept.pop()
"""
CUT_OFF = """
import os, resource, socket, time
a, b = socket.socketpair()
socket.send_fds(a, [b'x'], [0, 1])
socket.send_fds(a, [b'x'], [0, 1])
socket.recv_fds(b, 10, 2)
resource.setrlimit(resource.RLIMIT_NOFILE, (8, 8))
print(socket.recv_fds(b, 10, 2)[1])
"""
FULL = """
import os, sys
fd = os.open(sys.argv[1] + '/x', os.O_CREAT | os.O_RDWR)
try:
    os.posix_fallocate(fd, 0, 1 << 24)
except OSError as error: print(error.errno)
try:
    while True: os.write(fd, b'x' * 100_000)
except OSError as error: print(error.errno)
"""
NO_MORE_PROCESSES = """
import os, resource, sys, threading, time
os.setuid(int(sys.argv[1]))
resource.setrlimit(resource.RLIMIT_NPROC, (3, 3))
try:
    while True: threading.Thread(target=time.sleep, args=(0.3,)).start()
except RuntimeError as error: print(error)
"""


def failures(told: Told) -> list[CallFailed]:
    return [event for event in told.events if isinstance(event, CallFailed)]


@pytest.mark.parametrize("call", MAKERS)
def test_no_descriptor_is_left(probes: Probes, call: str) -> None:
    told = observe(probes, OUT_OF_DESCRIPTORS.replace("MAKER", MAKERS[call]), "1")
    (failed,) = failures(told)
    assert (failed.pid, failed.call, failed.errno) == (told.pid, call, errno.EMFILE)
    assert failed.path == ("/dev/null" if call == "openat" else ""), "also of what was to be read"


def test_a_long_path_on_which_a_call_fails_is_told_whole(probes: Probes) -> None:
    path = "/dev/" + "./" * 220 + "null"
    told = observe(probes, OUT_OF_DESCRIPTORS.replace("MAKER", f"os.open({path!r}, os.O_RDONLY)"), "1")
    (failed,) = failures(told)
    assert failed.path == path


def test_a_program_that_fails_in_a_loop_is_told_of_seldom(probes: Probes) -> None:
    times = random.randrange(5_000, 20_000)
    told = observe(probes, OUT_OF_DESCRIPTORS.replace("MAKER", MAKERS["fcntl"]), str(times))
    seen = failures(told)
    assert 1 <= len(seen) <= 30
    assert [event.count for event in seen] == sorted(event.count for event in seen)
    assert len(seen) == 1 or seen[-1].count > 100 * len(seen)


def test_descriptors_cut_off_from_a_message_that_arrives(probes: Probes) -> None:
    told = observe(probes, CUT_OFF)
    (failed,) = failures(told)
    assert told.output.strip() == "[7]", "one of two descriptors found room"
    assert (failed.call, failed.errno) == ("recvmsg", 0)


@pytest.fixture
def small_tmpfs(tmp_path: Path) -> Iterator[Path]:
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "none", str(tmp_path)], check=False)
    if mounted.returncode:
        pytest.skip("no tmpfs can be mounted")
    yield tmp_path
    subprocess.run(["umount", str(tmp_path)], check=True)


def test_shared_memory_is_full(probes: Probes, small_tmpfs: Path) -> None:
    told = observe(probes, FULL, str(small_tmpfs))
    assert told.output.split() == [str(errno.ENOSPC)] * 2
    first = failures(told)[0]
    assert (first.call, first.errno, first.tmpfs) == ("fallocate", errno.ENOSPC, True)
    assert first.path == str(small_tmpfs / "x")
    assert first.ino == os.stat(small_tmpfs / "x").st_ino


def test_no_thread_can_be_started(probes: Probes) -> None:
    user = random.randrange(2_000_000, 3_000_000)
    program = Observed.python(probes, NO_MORE_PROCESSES, str(user)).go()
    told = program.finish()
    assert "can't start new thread" in told.output
    (failed,) = failures(told)
    assert failed.call in ("clone", "clone3")
    assert failed.errno == errno.EAGAIN


def test_what_succeeds_is_not_told(probes: Probes) -> None:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    body = "import os, socket\na, b = socket.socketpair()\nfor _ in range(50): socket.send_fds(a, [b'x'], [0]); "
    body += "[os.close(fd) for fd in socket.recv_fds(b, 10, 4)[1]]\nopen('/nonexistent')"
    assert limit > 100
    assert failures(observe(probes, body)) == []
