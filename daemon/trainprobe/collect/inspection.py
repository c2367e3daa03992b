"""One look at a thread that is late: what it waits for, who holds it, where it may run. /proc alone, microseconds.

Everything read here belongs to the process that is looked at: reads are bounded, texts are names and nothing more.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace

from trainprobe.collect.cgroup_path import parse_cgroups
from trainprobe.collect.file_locks import held_locks, open_in
from trainprobe.collect.lines import lines_of
from trainprobe.collect.peer import Peer, peer_of
from trainprobe.collect.procfs import SMALL, Proc, parse_status, read_file
from trainprobe.model.sample import HeldLock, Inspection, ThreadLook

THREADS = 64  # of a process that are looked at
SOCKETS = 4  # of its threads whose sockets are looked up
EPOLLED = 8  # lines about the descriptors of an epoll that are looked at
CHILDREN = 4  # processes that are looked at where it waits for one
_AT_SOCKETS = (  # kernel functions in which a thread waits for a socket
    "wait_woken", "sk_wait", "sk_stream_wait", "unix_stream", "do_poll", "do_sys_poll", "poll_schedule",
)  # fmt: skip

_PATH_ARGUMENT: dict[str, dict[int, int]] = {  # system call -> which argument is a path (syscall_64.tbl, unistd.h)
    "x86_64": {
        2: 0, 4: 0, 6: 0, 76: 0, 80: 0, 82: 0, 83: 0, 84: 0, 87: 0, 257: 1, 258: 1, 262: 1, 263: 1, 264: 1, 316: 1,
        332: 1,
    },
    "aarch64": {34: 1, 35: 1, 38: 1, 45: 0, 56: 1, 79: 1, 276: 1, 291: 1},
}  # fmt: skip

_POLLING: dict[str, tuple[int, ...]] = {"x86_64": (7, 271), "aarch64": (73,)}
"""poll and ppoll: their first argument leads to the descriptors."""

_READING: dict[str, tuple[int, ...]] = {"x86_64": (0, 19), "aarch64": (63, 65)}
"""read, readv."""
_SELECTING: dict[str, tuple[int, ...]] = {"x86_64": (23, 270), "aarch64": (72,)}
"""select, pselect6: their first argument is one more than the highest descriptor."""
_EPOLLING: dict[str, tuple[int, ...]] = {"x86_64": (232, 281, 441), "aarch64": (22, 441)}
"""epoll_wait, epoll_pwait, epoll_pwait2."""
_TERMINALS = ("/dev/pts/", "/dev/tty", "/dev/console")

_SENDING: dict[str, tuple[int, ...]] = {"x86_64": (1, 20, 40, 44, 46), "aarch64": (64, 66, 71, 206, 211)}
"""write, writev, sendfile, sendto, sendmsg."""

_WAITING: dict[str, dict[int, int]] = {"x86_64": {61: 0, 247: 1}, "aarch64": {260: 0, 95: 1}}
"""wait4 and waitid -> which argument is the process that is waited for."""

_LOCKING: dict[str, dict[int, str]] = {"x86_64": {72: "fcntl", 73: "flock"}, "aarch64": {25: "fcntl", 32: "flock"}}


class Inspector:
    """Looks at threads; the cgroup mounts are this process's."""

    def __init__(self, proc: Proc, cgroup: str = "/sys/fs/cgroup", machine: str = "") -> None:
        self._proc = proc
        self._cgroup = cgroup
        machine = machine or os.uname().machine
        self._paths = _PATH_ARGUMENT.get(machine, {})
        self._locking = _LOCKING.get(machine, {})
        self._sending = _SENDING.get(machine, ())
        self._polling = _POLLING.get(machine, ())
        self._waiting = _WAITING.get(machine, {})
        self._reading = _READING.get(machine, ())
        self._selecting = _SELECTING.get(machine, ())
        self._epolling = _EPOLLING.get(machine, ())

    def inspect(self, pid: int, tid: int) -> Inspection | None:
        """What is to be seen of a thread; None: it is gone."""
        text, wchan, in_flight = self._texts(pid, tid, ("status", "wchan", "syscall"))
        status = _fields(text)
        if "State" not in status:
            return None
        tracer = _number(status.get("TracerPid", ""))
        call, arguments = _call(in_flight)
        locking = self._locking.get(call, "")
        peer = self._peer(pid, call, arguments)
        return Inspection(
            pid=pid,
            tid=tid,
            state=status["State"][:1],
            wchan=wchan if wchan != "0" else "",
            tracer_pid=tracer or None,
            tracer_comm=self._text(tracer, "comm").strip() if tracer else "",
            frozen=self._frozen(pid),
            allowed_cpus=count_cpus(status.get("Cpus_allowed_list", "")),
            path=self._blocked_on(pid, call, arguments) if locking else self._path(pid, call, arguments),
            peer=peer.name,
            sent=peer.sent,
            threads=tuple(self._others(pid, tid)) if wchan.startswith("futex") else (),
            children=self._children(pid, call, arguments) if call in self._waiting or "pipe_read" in wchan else (),
            locking=locking,
            held_locks=self._held_locks(pid) if locking or "nanosleep" in wchan else (),
            terminal=self._terminal(pid, call, arguments) if status["State"][:1] == "S" else "",
        )

    def _held_locks(self, pid: int) -> tuple[HeldLock, ...]:
        """A thread that sleeps may do so between two attempts to lock a file that it has open (SQLite does). One that
        is blocked may have opened the file long ago."""
        return tuple(open_in(self._proc, pid, held_locks(self._proc)))

    def _others(self, pid: int, tid: int) -> Iterator[ThreadLook]:
        """Whoever may hold what the thread waits for. The idle ones are left out: they wait for a lock themselves."""
        others = [other for other in self._proc.threads(pid)[:THREADS] if other != tid]
        names = ("status", "wchan", "schedstat")
        read = self._proc.several(pid, {f"task/{other}/{name}": SMALL for other in others for name in names})
        texts, sockets = [_decoded(data) for data in read], SOCKETS
        for place, other in enumerate(others):
            text, wchan, schedstat = (one.strip() for one in texts[3 * place : 3 * place + 3])
            status = _fields(text)
            if "State" not in status or wchan.startswith("futex"):
                continue
            spent = schedstat.split()
            state = status["State"][:1]
            at_socket = state == "S" and wchan.startswith(_AT_SOCKETS) and sockets > 0
            sockets -= at_socket
            in_flight = self._text(pid, f"task/{other}/syscall") if state == "D" or at_socket else ""
            call, arguments = _call(in_flight)
            peer = self._peer(pid, call, arguments) if at_socket else Peer()
            yield ThreadLook(
                other,
                parse_status(text).container_pid or other,
                state,
                wchan if wchan != "0" else "",
                _number(spent[0]) if spent else None,
                self._blocked_on(pid, call, arguments) if state == "D" else "",
                peer.name,
                peer.unsent or call in self._sending,
                peer.sent,
            )

    def _children(self, pid: int, call: int, arguments: list[int]) -> tuple[ThreadLook, ...]:
        """Threads of the child that is waited for, and of its own children; of any child where it waits for any, or
        reads a pipe."""
        children = self._proc.children(pid)[:THREADS]
        place = self._waiting.get(call, len(arguments))
        wanted = arguments[place] if len(arguments) > place else 0
        named = [one for one in children if _own_pid(self._proc, one) == wanted]
        looked = [one for child in named or children for one in (child, *self._proc.children(child))]
        return tuple(replace(look, pid=one) for one in looked[:CHILDREN] for look in self._others(one, 0))

    def _peer(self, pid: int, call: int, arguments: list[int]) -> Peer:
        """Of the socket of the call in flight: its first argument, or what it polls first."""
        if call in self._polling and arguments:
            polled = self._polled(pid, arguments[0])
            arguments = [polled] if polled else []
        return peer_of(self._proc, pid, arguments[0]) if _names_descriptor(arguments) else Peer()

    def _polled(self, pid: int, address: int) -> int:
        """The first descriptor of poll(2): the int of a struct pollfd."""
        return int.from_bytes(self._proc.string(pid, address).encode("utf-8", "surrogateescape")[:4], "little")

    def _terminal(self, pid: int, call: int, arguments: list[int]) -> str:
        """The terminal whose input the call in flight waits for."""
        if not arguments:
            return ""
        if call in self._reading:
            descriptors = arguments[:1]
        elif call in self._polling:
            descriptors = [self._polled(pid, arguments[0])]
        elif call in self._selecting:
            descriptors = [arguments[0] - 1]
        elif call in self._epolling:
            words = [line.split() for line in lines_of(self._text(pid, f"fdinfo/{arguments[0]}"))[:EPOLLED]]
            descriptors = [_number(line[1]) for line in words if line[:1] == ["tfd:"] and len(line) > 1]
        else:
            return ""
        links = (self._proc.link(pid, f"fd/{one}") for one in descriptors if 0 <= one < 1 << 20)
        return next((link for link in links if link.startswith(_TERMINALS)), "")

    def _blocked_on(self, pid: int, call: int, arguments: list[int]) -> str:
        """The file of the call in flight: the one that it names, or the one behind its first argument."""
        if path := self._path(pid, call, arguments):
            return path
        link = self._proc.link(pid, f"fd/{arguments[0]}") if _names_descriptor(arguments) else ""
        return link if link.startswith("/") else ""

    def _text(self, pid: int, name: str) -> str:
        return _decoded(self._proc.read(pid, name, SMALL))

    def _texts(self, pid: int, tid: int, names: Sequence[str]) -> list[str]:
        """Files of a thread, in one request: each request waits for a helper to get a processor."""
        read = self._proc.several(pid, {f"task/{tid}/{name}": SMALL for name in names})
        return [_decoded(data).strip() for data in read]

    def _path(self, pid: int, call: int, arguments: list[int]) -> str:
        """The path that the call in flight was given: an open that hangs has no descriptor yet."""
        place = self._paths.get(call)
        if place is None or place >= len(arguments) or not arguments[place]:
            return ""
        return self._proc.string(pid, arguments[place])

    def _frozen(self, pid: int) -> bool | None:
        """Whether a freezer, v1 or v2, holds its cgroup; None where neither is mounted."""
        paths = parse_cgroups(self._proc.cgroup(pid) or "")
        if "freezer" in paths:
            state = read_file(f"{self._cgroup}/freezer{paths['freezer']}/freezer.state", SMALL)
            if state is not None and state.strip() != b"THAWED":
                return True
        for base in (self._cgroup, f"{self._cgroup}/unified"):
            events = read_file(f"{base}{paths.get('', '/')}/cgroup.events", SMALL)
            if events is not None:
                return b"frozen 1" in events
        return False if "freezer" in paths else None


def _own_pid(proc: Proc, pid: int) -> int:
    """As its own pid namespace has it."""
    status = proc.status(pid)
    return (status.container_pid if status is not None else None) or pid


def _decoded(data: bytes | None) -> str:
    return (data or b"").decode("utf-8", "surrogateescape")


def _call(text: str) -> tuple[int, list[int]]:
    """Number and arguments of the call in flight, from a thread's `syscall`; -1 for "running"."""
    words = text.split()
    try:
        return int(words[0]), [int(word, 16) for word in words[1:7]]
    except (IndexError, ValueError):
        return -1, []


def count_cpus(text: str) -> int | None:
    """How many processors a list like "0-3,8" names; None where it is no such list."""
    count = 0
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            return None
        count += int(last) - int(first) + 1 if dash else 1
    return count


def _names_descriptor(arguments: list[int]) -> bool:
    return bool(arguments) and arguments[0] < 1 << 20


def _fields(text: str) -> dict[str, str]:
    return {key: value.strip() for key, colon, value in (line.partition(":") for line in lines_of(text)) if colon}


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() else 0
