# SPDX-License-Identifier: Apache-2.0
"""What a thread that already runs is doing, from /proc: the first cell of its ledger."""

from __future__ import annotations

import os

from trainprobe.bpf.abi import Call
from trainprobe.bpf.attach import syscalls
from trainprobe.bpf.read.paths import ProcessFiles
from trainprobe.model.cells import Leaf, ThreadState
from trainprobe.model.dataclass import dataclass

MAX_THREADS = 8192
PF_FORKNOEXEC = 0x40  # linux/sched.h
_MACHINE = os.uname().machine
_BY_NUMBER = {number: call.call for call in syscalls.TABLE if (number := call.number(_MACHINE)) is not None}


@dataclass(frozen=True)
class InitialState:
    run: ThreadState
    leaf: Leaf
    call: int = -1
    fd: int = -1


def doing(pid: int, tid: int, proc: ProcessFiles) -> InitialState | None:
    """What the thread does now; None when it is gone."""
    state = next(iter(_fields(pid, f"task/{tid}/stat", proc)), None)
    if state is None or state in "ZX":
        return None
    if state in "Tt":
        return InitialState(ThreadState.BLOCKED, Leaf.STOPPED)
    if state == "R":
        return InitialState(ThreadState.ON, Leaf.CPU)
    words = (proc.read(pid, f"task/{tid}/syscall", 512) or b"").split()
    if not words or words[0] == b"running":
        return InitialState(ThreadState.ON, Leaf.CPU)
    try:
        call, argument = int(words[0]), int(words[1], 16)
    except (ValueError, IndexError):
        return InitialState(ThreadState.BLOCKED, Leaf.OTHER)
    if call < 0:
        return InitialState(ThreadState.BLOCKED, Leaf.FAULT)
    fd = argument if argument < 1 << 20 else -1
    link = proc.link(pid, f"fd/{fd}") if fd >= 0 else ""
    return InitialState(
        ThreadState.BLOCKED, syscalls.leaf_of(_BY_NUMBER.get(call, Call.NONE), argument, link), call, fd
    )


def only_forked(flags: int) -> bool:
    """Whether a process with these flags has not called exec(2) since it was forked."""
    return bool(flags & PF_FORKNOEXEC)


def _fields(pid: int, name: str, proc: ProcessFiles) -> list[str]:
    """Of a stat file, from the state letter on; the command before it may hold anything, brackets too."""
    return (proc.read(pid, name, 4096) or b"").decode("ascii", "replace").rpartition(")")[2].split()
