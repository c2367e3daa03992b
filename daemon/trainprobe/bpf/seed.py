# SPDX-License-Identifier: Apache-2.0
"""What a thread that already runs is doing, from /proc: the first cell of its ledger."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

from trainprobe.bpf import syscalls
from trainprobe.bpf.abi import Call
from trainprobe.bpf.paths import read_bounded
from trainprobe.model.cells import Leaf, RunState

MAX_THREADS = 8192
MAX_DESCENDANTS = 4096
MAX_COMMAND_BYTES = 1 << 16
PF_FORKNOEXEC = 0x40  # linux/sched.h
_FLAGS = 6  # of the fields of /proc/PID/stat, from the state on
_LEAVES = {
    Call.LOCK: Leaf.LOCK,
    Call.CONTROL: Leaf.LOCK,
    Call.CHILD: Leaf.CHILD,
    Call.SLEEP: Leaf.SLEEP,
    Call.SELECT: Leaf.POLL,
    Call.POLL: Leaf.POLL,
    Call.WAIT_EVENTS: Leaf.POLL,
    Call.OPEN: Leaf.FILE_READ,
    Call.LOOKUP: Leaf.FILE_READ,
    Call.CLOSE: Leaf.FILE_READ,
    Call.RENAME: Leaf.FILE_META,
    Call.UNLINK: Leaf.FILE_META,
    Call.CHANGE: Leaf.FILE_META,
    Call.AIO: Leaf.FILE_WRITE,
    Call.SUBMIT: Leaf.FILE_WRITE,
    Call.SOCKET: Leaf.SOCKET,
}
_WRITES = (Call.WRITE, Call.SYNC)
_MACHINE = os.uname().machine
_BY_NUMBER = {number: call.call for call in syscalls.TABLE if (number := call.number(_MACHINE)) is not None}


@dataclass(frozen=True)
class Doing:
    """State of a thread as /proc tells it."""

    run: RunState
    leaf: Leaf
    call: int = -1
    fd: int = -1


def leaf_of(call: int, link: str) -> Leaf:
    """Leaf of a blocked call; ``link`` is what its first argument's descriptor points to ("" where that is nothing)."""
    kind = _BY_NUMBER.get(call, Call.NONE)
    if kind in _LEAVES:
        return _LEAVES[kind]
    if link.startswith("/dev/nvidia"):
        return Leaf.GPU
    if kind is Call.DEVICE or link.startswith("/dev/"):
        return Leaf.DEVICE
    if link.startswith("pipe:"):
        return Leaf.STREAM_OUT if kind in _WRITES else Leaf.PIPE_READ
    if link.startswith("socket:"):
        return Leaf.SOCKET
    if link.startswith("/"):
        return {Call.WRITE: Leaf.FILE_WRITE, Call.SYNC: Leaf.FILE_SYNC, Call.READ: Leaf.FILE_READ}.get(kind, Leaf.OTHER)
    return Leaf.OTHER


def doing(pid: int, tid: int) -> Doing | None:
    """What the thread does now; None when it is gone."""
    state = _state(f"/proc/{pid}/task/{tid}/stat")
    if state is None or state in "ZX":
        return None
    if state in "Tt":
        return Doing(RunState.BLOCKED, Leaf.STOPPED)
    if state == "R":
        return Doing(RunState.ON, Leaf.CPU)
    words = _read(f"/proc/{pid}/task/{tid}/syscall", 512).split()
    if not words or words[0] == "running":
        return Doing(RunState.ON, Leaf.CPU)
    try:
        call, argument = int(words[0]), int(words[1], 16)
    except (ValueError, IndexError):
        return Doing(RunState.BLOCKED, Leaf.OTHER)
    if call < 0:
        return Doing(RunState.BLOCKED, Leaf.FAULT)
    fd = argument if argument < 1 << 20 else -1
    try:
        link = os.readlink(f"/proc/{pid}/fd/{fd}") if fd >= 0 else ""
    except OSError:
        link = ""
    return Doing(RunState.BLOCKED, leaf_of(call, link), call, fd)


def threads(pid: int) -> list[int]:
    """Thread ids of a process, at most MAX_THREADS; [] when it is gone."""
    try:
        return [int(name) for name in os.listdir(f"/proc/{pid}/task")[:MAX_THREADS]]
    except (OSError, ValueError):
        return []


def children(pid: int) -> list[int]:
    """Child processes of all its threads (forked by any of them)."""
    found: list[int] = []
    for tid in threads(pid):
        found += [int(word) for word in _read(f"/proc/{pid}/task/{tid}/children", 1 << 16).split()]
    return found


def descendants(pid: int) -> Iterator[tuple[int, int]]:
    """(parent, child) of the whole tree below a process, parents first."""
    queue, seen = [pid], {pid}
    while queue and len(seen) < MAX_DESCENDANTS:
        parent = queue.pop(0)
        for child in children(parent):
            if child not in seen:
                seen.add(child)
                queue.append(child)
                yield parent, child


def command(pid: int) -> tuple[str, ...]:
    """Its arguments; () when it is gone."""
    raw = read_bounded(f"/proc/{pid}/cmdline", MAX_COMMAND_BYTES)
    return tuple(part.decode(errors="surrogateescape") for part in raw.rstrip(b"\0").split(b"\0")) if raw else ()


def comm(pid: int) -> str:
    """What the kernel calls its first thread."""
    return _read(f"/proc/{pid}/comm", 64).rstrip("\n")


def only_forked(pid: int) -> bool:
    """Whether it has not called exec(2) since it was forked (PF_FORKNOEXEC among its flags), or is gone."""
    fields = _fields(f"/proc/{pid}/stat")
    return len(fields) <= _FLAGS or bool(int(fields[_FLAGS]) & PF_FORKNOEXEC)


def _read(path: str, limit: int) -> str:
    try:
        with open(path, "rb") as file:
            return file.read(limit).decode("ascii", "replace")
    except OSError:
        return ""


def _state(path: str) -> str | None:
    fields = _fields(path)
    return fields[0] if fields else None


def _fields(path: str) -> list[str]:
    """Of a stat file, from the state letter on; the command before it may hold anything, brackets too."""
    return _read(path, 4096).rpartition(")")[2].split()
