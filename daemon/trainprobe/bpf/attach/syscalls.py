# SPDX-License-Identifier: Apache-2.0
"""System calls by what they do: numbers on x86-64 and on aarch64 (None: it has no such call), and how arguments lie.

``form`` means, for calls with a descriptor, which argument it is, or one of the FORM_* where it is the first and the
call gives the file a size; for calls with a path, odd: it starts with a
directory's descriptor; for open: 0 open, 1 openat, 2 creat, 3 openat2; for dup: 1 when the second argument is closed
first.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

from trainprobe.bpf.abi import CALL_NUMBERS, FORM_ALLOCATE, FORM_TRUNCATE, Call
from trainprobe.model.cells import LEAVES, Leaf
from trainprobe.model.dataclass import dataclass

_DESCRIPTION = struct.Struct("=BBB")


@dataclass(frozen=True)
class Syscall:
    name: str
    x86_64: int | None
    aarch64: int | None
    call: Call
    form: int = 0

    def number(self, machine: str) -> int | None:
        """Its number on a machine as os.uname() names it; None where there is none."""
        return {"x86_64": self.x86_64, "aarch64": self.aarch64}.get(machine)


_CALLS: dict[Call, tuple[tuple[Any, ...], ...]] = {
    Call.READ: (
        ("read", 0, 63), ("pread64", 17, 67), ("readv", 19, 65), ("preadv", 295, 69), ("preadv2", 327, 286),
    ),
    Call.WRITE: (
        ("write", 1, 64), ("writev", 20, 66), ("pwrite64", 18, 68), ("pwritev", 296, 70), ("pwritev2", 328, 287),
        ("sendfile64", 40, 71), ("copy_file_range", 326, 285, 2),
    ),
    Call.SUBMIT: (("io_submit", 209, 2),),
    Call.SYNC: (
        ("fsync", 74, 82), ("fdatasync", 75, 83), ("sync_file_range", 277, 84),
        ("ftruncate", 77, 46, FORM_TRUNCATE), ("fallocate", 285, 47, FORM_ALLOCATE), ("syncfs", 306, 267),
    ),
    Call.OPEN: (("open", 2, None, 0), ("openat", 257, 56, 1), ("creat", 85, None, 2), ("openat2", 437, 437, 3)),
    Call.CLOSE: (("close", 3, 57),),
    Call.RENAME: (("rename", 82, None, 0), ("renameat", 264, 38, 1), ("renameat2", 316, 276, 1)),
    Call.UNLINK: (("unlink", 87, None, 0), ("unlinkat", 263, 35, 1)),
    Call.DUP: (("dup", 32, 23, 0), ("dup2", 33, None, 1), ("dup3", 292, 24, 1)),
    Call.CONTROL: (("fcntl", 72, 25),),
    Call.POLL: (("poll", 7, None), ("ppoll", 271, 73)),
    Call.SELECT: (("select", 23, None), ("pselect6", 270, 72)),
    Call.WAIT_EVENTS: (("epoll_wait", 232, None), ("epoll_pwait", 281, 22), ("epoll_pwait2", 441, 441)),
    Call.LOCK: (("futex", 202, 98), ("futex_waitv", 449, 449), ("flock", 73, 32)),
    Call.CHILD: (("wait4", 61, 260), ("waitid", 247, 95)),
    Call.SLEEP: (("nanosleep", 35, 101), ("clock_nanosleep", 230, 115)),
    Call.SOCKET: (
        ("recvfrom", 45, 207), ("recvmsg", 47, 212), ("recvmmsg", 299, 243), ("sendto", 44, 206),
        ("sendmsg", 46, 211), ("sendmmsg", 307, 269), ("connect", 42, 203), ("accept", 43, 202),
        ("accept4", 288, 242),
    ),
    Call.DEVICE: (("ioctl", 16, 29),),
    Call.RESTART: (("restart_syscall", 219, 128),),
    Call.LOOKUP: (
        ("stat", 4, None), ("lstat", 6, None), ("fstat", 5, 80), ("newfstatat", 262, 79, 1), ("statx", 332, 291, 1),
        ("access", 21, None), ("faccessat", 269, 48, 1), ("faccessat2", 439, 439, 1), ("getdents", 78, None),
        ("getdents64", 217, 61), ("readlink", 89, None), ("readlinkat", 267, 78), ("lseek", 8, 62),
        ("statfs", 137, 43), ("fstatfs", 138, 44), ("getxattr", 191, 8), ("execve", 59, 221),
    ),
    Call.CHANGE: (
        ("mkdir", 83, None), ("mkdirat", 258, 34, 1), ("rmdir", 84, None), ("link", 86, None), ("linkat", 265, 37),
        ("symlink", 88, None), ("symlinkat", 266, 36), ("truncate", 76, 45), ("chmod", 90, None),
        ("fchmod", 91, 52),
    ),
    Call.AIO: (("sync", 162, 81), ("msync", 26, 227), ("io_getevents", 208, 4), ("io_pgetevents", 333, 292)),
}  # fmt: skip
"""Name, numbers, and the form where it is not 0. Kinds that are not in ``TRACED_BY`` are only seen while they block."""

TABLE = tuple(
    Syscall(name, x86_64, aarch64, call, *form)
    for call, rows in _CALLS.items()
    for name, x86_64, aarch64, *form in rows
)

# Calls whose failures are told; those above with their entry and end traced tell theirs there. Program -> calls.
FAILING: dict[str, tuple[Syscall, ...]] = {
    program: tuple(Syscall(name, x86_64, aarch64, call) for name, x86_64, aarch64 in rows)
    for program, call, rows in (
        ("on_maker_end", Call.NONE, (
            ("socket", 41, 198), ("socketpair", 53, 199), ("accept", 43, 202), ("accept4", 288, 242),
            ("pipe", 22, None), ("pipe2", 293, 59), ("eventfd2", 290, 19), ("epoll_create1", 291, 20),
            ("memfd_create", 319, 279), ("timerfd_create", 283, 85), ("pidfd_open", 434, 434),
            ("inotify_init1", 294, 26), ("signalfd4", 289, 74), ("io_uring_setup", 425, 425),
        )),
        ("on_receive_end", Call.SOCKET, (("recvmsg", 47, 212),)),
        ("on_clone_end", Call.NONE, (
            ("clone", 56, 220), ("clone3", 435, 435), ("fork", 57, None), ("vfork", 58, None),
        )),
    )
}  # fmt: skip

# What else a thread may block in: of these the name alone is known.
_NAMED = tuple(
    Syscall(name, x86_64, aarch64, Call.NONE)
    for name, x86_64, aarch64 in (
        ("mmap", 9, 222), ("munmap", 11, 215), ("mremap", 25, 216), ("mprotect", 10, 226), ("pkey_mprotect", 329, 288),
        ("madvise", 28, 233), ("process_madvise", 440, 440), ("brk", 12, 214), ("mlock", 149, 228),
        ("mlock2", 325, 284), ("mlockall", 151, 230), ("munlock", 150, 229), ("munlockall", 152, 231),
        ("mincore", 27, 232), ("mseal", 462, 462), ("remap_file_pages", 216, 234), ("mbind", 237, 235),
        ("set_mempolicy", 238, 237), ("migrate_pages", 256, 238), ("move_pages", 279, 239), ("membarrier", 324, 283),
        ("userfaultfd", 323, 282), ("process_vm_readv", 310, 270), ("process_vm_writev", 311, 271),
        ("process_mrelease", 448, 448), ("io_uring_enter", 426, 426), ("io_uring_register", 427, 427),
        ("io_setup", 206, 0), ("io_destroy", 207, 1), ("io_cancel", 210, 3), ("splice", 275, 76), ("tee", 276, 77),
        ("vmsplice", 278, 75), ("readahead", 187, 213), ("fadvise64", 221, 223), ("cachestat", 451, 451),
        ("close_range", 436, 436), ("execveat", 322, 281), ("exit", 60, 93), ("exit_group", 231, 94),
        ("pause", 34, None), ("rt_sigsuspend", 130, 133), ("rt_sigtimedwait", 128, 137), ("kill", 62, 129),
        ("tkill", 200, 130), ("tgkill", 234, 131), ("ptrace", 101, 117), ("getrandom", 318, 278),
        ("sched_yield", 24, 124), ("sched_setaffinity", 203, 122), ("setns", 308, 268), ("unshare", 272, 97),
        ("seccomp", 317, 277), ("semop", 65, 193), ("semtimedop", 220, 192), ("semctl", 66, 191), ("msgsnd", 69, 189),
        ("msgrcv", 70, 188), ("shmget", 29, 194), ("shmat", 30, 196), ("shmdt", 67, 197), ("shmctl", 31, 195),
        ("mq_open", 240, 180), ("mq_timedsend", 242, 182), ("mq_timedreceive", 243, 183), ("futex_wait", 455, 455),
        ("futex_wake", 454, 454), ("futex_requeue", 456, 456), ("chdir", 80, 49), ("fchdir", 81, 50),
        ("chroot", 161, 51), ("mount", 165, 40), ("umount2", 166, 39), ("chown", 92, None), ("fchown", 93, 55),
        ("lchown", 94, None), ("fchownat", 260, 54), ("fchmodat", 268, 53), ("fchmodat2", 452, 452),
        ("utime", 132, None), ("utimes", 235, None), ("utimensat", 280, 88), ("futimesat", 261, None),
        ("setxattr", 188, 5), ("lsetxattr", 189, 6), ("fsetxattr", 190, 7), ("lgetxattr", 192, 9),
        ("fgetxattr", 193, 10), ("listxattr", 194, 11), ("llistxattr", 195, 12), ("flistxattr", 196, 13),
        ("removexattr", 197, 14), ("lremovexattr", 198, 15), ("fremovexattr", 199, 16), ("mknod", 133, None),
        ("mknodat", 259, 33), ("name_to_handle_at", 303, 264), ("open_by_handle_at", 304, 265), ("quotactl", 179, 60),
        ("getcwd", 79, 17), ("shutdown", 48, 210), ("bind", 49, 200), ("listen", 50, 201), ("getsockopt", 55, 209),
        ("setsockopt", 54, 208), ("epoll_ctl", 233, 21), ("inotify_add_watch", 254, 27), ("inotify_rm_watch", 255, 28),
        ("fanotify_mark", 301, 263), ("timerfd_settime", 286, 86), ("perf_event_open", 298, 241), ("bpf", 321, 280),
        ("init_module", 175, 105), ("finit_module", 313, 273),
    )
)  # fmt: skip


BLOCKED_IN: dict[Call, Leaf] = {
    Call.DUP: Leaf.OTHER,
    Call.LOCK: Leaf.LOCK,
    Call.CONTROL: Leaf.LOCK,
    Call.CHILD: Leaf.CHILD,
    Call.SLEEP: Leaf.SLEEP,
    Call.SELECT: Leaf.POLL,
    Call.WAIT_EVENTS: Leaf.POLL,
    Call.OPEN: Leaf.FILE_READ,
    Call.LOOKUP: Leaf.FILE_READ,
    Call.CLOSE: Leaf.FILE_READ,
    Call.RENAME: Leaf.FILE_META,
    Call.UNLINK: Leaf.FILE_META,
    Call.CHANGE: Leaf.FILE_META,
    Call.AIO: Leaf.FILE_WRITE,
    Call.SUBMIT: Leaf.FILE_WRITE,
}
"""Leaf of a thread that blocks in a call of this kind. Kinds that are missing depend on the call's descriptor."""


def descriptions(numbers: Mapping[Syscall, int]) -> bytes:
    """``struct call_kinds`` of sched.bpf.c."""
    room = bytearray(CALL_NUMBERS * _DESCRIPTION.size)
    for syscall, number in numbers.items():
        leaf = BLOCKED_IN.get(syscall.call, LEAVES)
        _DESCRIPTION.pack_into(room, number * _DESCRIPTION.size, syscall.call, syscall.form, leaf)
    return bytes(room)


def leaf_of(kind: Call, argument: int, link: str) -> Leaf:
    """Leaf of a blocked call as far as /proc shows it, by the rules of leaf_of_wait() in sched.bpf.c.

    ``argument``: the call's first; ``link``: what it refers to where it is a descriptor, else "". Two things only the
    kernel's programs read: the first descriptor of poll(2), which lies in the process's memory (here: POLL), and
    whether a socket is one of a pair (here: SOCKET).
    """
    if kind is Call.SELECT and not argument:
        return Leaf.SLEEP
    if kind in BLOCKED_IN:
        return BLOCKED_IN[kind]
    if kind is Call.NONE:
        return Leaf.OTHER
    if kind is Call.POLL:
        return Leaf.POLL
    if link.startswith("/dev/nvidia"):
        return Leaf.GPU
    if kind is Call.SOCKET or link.startswith("socket:"):
        return Leaf.SOCKET
    if kind is Call.DEVICE:
        return Leaf.DEVICE
    writes = kind in (Call.WRITE, Call.SYNC)
    if link.startswith("pipe:"):
        return Leaf.STREAM_OUT if writes else Leaf.PIPE_READ
    if link.startswith("/dev/") and not link.startswith("/dev/shm/"):
        return Leaf.STREAM_OUT if writes and link.startswith(("/dev/pts/", "/dev/tty")) else Leaf.DEVICE
    if not link.startswith("/"):
        return Leaf.OTHER
    return {Call.WRITE: Leaf.FILE_WRITE, Call.SYNC: Leaf.FILE_SYNC}.get(kind, Leaf.FILE_READ)


def names(machine: str) -> dict[int, str]:
    """Name by number, of every call in these tables."""
    every = (*TABLE, *_NAMED, *(call for calls in FAILING.values() for call in calls))
    return {number: call.name for call in every if (number := call.number(machine)) is not None}


LOOKS = frozenset((
    "stat", "lstat", "newfstatat", "statx", "access", "faccessat", "faccessat2",
    "open", "openat", "mkdir", "mkdirat",
))  # fmt: skip
"""Calls by which a loop asks whether a file is there; those that would make it ask so, too."""

_RENAMED = {"stat": "newstat", "lstat": "newlstat", "fstat": "newfstat"}
NOT_TRACED = frozenset(("syncfs",))  # blocks like a sync, but is too rare to trace

# Which pair of programs sees the entry and the end of a call.
TRACED_BY = {
    **dict.fromkeys((Call.READ,), "read"),
    **dict.fromkeys((Call.WRITE, Call.SYNC, Call.SUBMIT), "write"),
    **dict.fromkeys((Call.OPEN, Call.CLOSE, Call.RENAME, Call.UNLINK, Call.DUP, Call.CONTROL), "name"),
}


def event_name(syscall: Syscall, tracefs_names: frozenset[str]) -> str | None:
    """The name that tracefs gives to its events (``sys_enter_NAME``); None where it is not traced or not known."""
    if syscall.name in NOT_TRACED or syscall.call not in TRACED_BY:
        return None
    name = _RENAMED.get(syscall.name, syscall.name)
    return name if name in tracefs_names else None


def look_events(machine: str) -> list[str]:
    """The ends of those of ``LOOKS`` that a machine has."""
    calls = [call.name for call in TABLE if call.name in LOOKS and call.number(machine) is not None]
    return [f"sys_exit_{_RENAMED.get(name, name)}" for name in calls]
