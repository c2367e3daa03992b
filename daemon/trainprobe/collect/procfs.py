"""Bounded readers of /proc/PID. None: the process is gone (or not ours to read), an ordinary answer.

Names, command lines, environments and maps belong to the process that is read: nothing in them is trusted, every
read has a limit, text is decoded with surrogateescape.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from trainprobe.collect.lines import lines_of
from trainprobe.collect.mapping import Mapping, find_library
from trainprobe.collect.owners import Owners
from trainprobe.collect.patience import Patience

ENVIRON_KEYS = frozenset({
    "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
    "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT",
    "SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_JOB_NAME",
    "SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID", "INVOCATION_ID",
})  # fmt: skip
"""The only environment variables that are ever looked at."""

VALUE_LIMIT = 256
SMALL, LARGE = 16 << 10, 1 << 20
ENVIRON_LIMIT = 1 << 20
COMMAND_LIMIT = 64 << 10
MAPS_LIMIT = 16 << 20
TABLE_LIMIT = 4 << 20
FDS_LIMIT = 200_000
SHARED_FDS_LIMIT = 4096
CHILDREN_LIMIT = 4096
DRIFT_NS = 1_000_000
KERNEL_THREAD = 0x00200000  # PF_KTHREAD
LOCKED = frozenset({"cmdline", "environ", "io", "maps", "smaps_rollup", "stat", "syscall", "wchan"})
"""Files whose readers wait for a lock that the process may hold for as long as it likes (``patience``)."""
T = TypeVar("T")

TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Stat:
    comm: str
    state: str  # R S D Z T t X …
    ppid: int
    flags: int
    cpu_ns: int
    threads: int
    ticks: int  # start, clock ticks since boot: with the pid the identity of a process
    rss_bytes: int
    major_faults: int = 0

    @property
    def dead(self) -> bool:
        return self.state in ("Z", "X", "x")


@dataclass(frozen=True, slots=True)
class Status:
    uid: int | None
    gid: int | None
    container_pid: int | None  # in the innermost pid namespace; None where the kernel does not tell
    swap_bytes: int | None
    anonymous_bytes: int | None = None  # resident


ROLLUP = ("Pss", "Pss_Shmem", "SwapPss", "Private_Dirty", "Swap")


@dataclass(frozen=True, slots=True)
class Rollup:
    pss_bytes: int | None
    shm_bytes: int | None  # Pss_Shmem
    swap_bytes: int | None  # SwapPss
    private_bytes: int | None = None  # Private_Dirty
    swap_all_bytes: int | None = None  # Swap


class Proc:
    """One procfs. ``root`` is another path in tests; ``boot_offset_ns`` is CLOCK_BOOTTIME - CLOCK_MONOTONIC."""

    def __init__(self, root: str = "/proc", boot_offset_ns: int | None = None, owners: Owners | None = None) -> None:
        self.root = root
        self.owners = owners = owners or Owners()
        """Who answers for an id."""
        self.owner = partial(owners.of_process, root=root)
        """The user who answers for a process. Raises OSError: there is none."""
        self.apart = partial(Proc, root, boot_offset_ns, owners)
        """The same procfs for another thread: each has its own reads that hang."""
        self._patience = Patience(uid_of=self.owner)
        self.hanging = self._patience.hanging
        """Processes whose reads do not come back."""
        self._fixed_offset = boot_offset_ns is not None
        self._offset = boot_offset_ns or 0

    def read(self, pid: int, name: str, limit: int) -> bytes | None:
        """At most ``limit`` bytes of a file of the process."""
        path = f"{self.root}/{pid}/{name}"
        if name.rpartition("/")[2] in LOCKED:
            return self.patient(pid, lambda: read_file(path, limit))
        return read_file(path, limit)

    def patient(self, pid: int, job: Callable[[], T | None]) -> T | None:
        """What a job returns that may wait for the process; None when it takes too long. It raises nothing."""
        return self._patience.read(pid, job)

    def started_ns(self, ticks: int) -> int:
        """CLOCK_MONOTONIC of a start given in ticks since boot (boot time runs on during suspend, this does not).

        The same start gives the same number until the host sleeps: the clocks are compared once, and again when they
        have drifted apart.
        """
        if not self._fixed_offset:
            offset = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - time.monotonic_ns()
            if abs(offset - self._offset) > DRIFT_NS:
                self._offset = offset
        return ticks * TICK_NS - self._offset

    def pids(self) -> list[int]:
        try:
            with os.scandir(self.root) as entries:
                return [int(entry.name) for entry in entries if entry.name.isdecimal() and entry.name.isascii()]
        except OSError:
            return []

    def stat(self, pid: int) -> Stat | None:
        return self.stats((pid,)).get(pid)

    def stats(self, pids: Iterable[int]) -> dict[int, Stat]:
        """Of many processes, those that are there."""
        return self._patience.each(pids, partial(_read_stat, self.root))

    def status(self, pid: int, tid: int | None = None) -> Status | None:
        """Of a process, or of one of its threads."""
        text = _text(self, pid, f"task/{tid}/status" if tid else "status")
        return None if text is None else parse_status(text)

    def command(self, pid: int) -> tuple[str, ...] | None:
        """The arguments; empty for kernel threads and zombies. A process may have written over them."""
        data = self.read(pid, "cmdline", COMMAND_LIMIT)
        if data is None:
            return None
        return tuple(a.decode("utf-8", "surrogateescape") for a in data.rstrip(b"\0").split(b"\0")) if data else ()

    def environ(self, pid: int, keys: Collection[str] = ENVIRON_KEYS) -> dict[str, str]:
        """The named variables as they were at exec, no other one; empty when it cannot be read."""
        data = self.read(pid, "environ", ENVIRON_LIMIT)
        found: dict[str, str] = {}
        for entry in (data or b"").split(b"\0"):
            name, equals, value = entry.partition(b"=")
            key = name.decode("utf-8", "surrogateescape")
            if equals and key in keys and key not in found:
                found[key] = value[:VALUE_LIMIT].decode("utf-8", "surrogateescape")
        return found

    def library(self, pid: int) -> Mapping | None:
        """The executable mapping of libtorch_cpu of a process."""
        data = self.maps(pid)
        return None if data is None else find_library(data)

    def maps(self, pid: int) -> bytes | None:
        """What it maps, at most MAPS_LIMIT bytes of it."""
        return self.read(pid, "maps", MAPS_LIMIT)

    def string(self, pid: int, address: int) -> str:
        """A text in the memory of a process, such as a path that it handed to the kernel; "" where there is none."""
        data = self.patient(pid, lambda: _string(f"{self.root}/{pid}/mem", address))
        return (data or b"").decode("utf-8", "surrogateescape")

    def cgroup(self, pid: int) -> str | None:
        return _text(self, pid, "cgroup")

    def mountinfo(self, pid: int) -> str | None:
        return _text(self, pid, "mountinfo", TABLE_LIMIT)

    def link(self, pid: int, name: str) -> str:
        """Where a link of the process leads ("cwd", "fd/3"): a path, "socket:[INODE]" and the like; "" where it is
        none."""
        return self.links((pid,), name).get(pid, "")

    def links(self, pids: Iterable[int], name: str) -> dict[int, str]:
        """Of many processes, of those that have it."""
        return self._patience.each(pids, partial(_read_link, self.root, name))

    def open_fds(self, pid: int) -> int | None:
        """Open descriptors, at most FDS_LIMIT."""
        path = f"{self.root}/{pid}/fd"
        try:
            # Since Linux 6.2 (f1f1f2569901) the directory's size is the count: no need to list 10^5 names.
            if (size := os.stat(path).st_size) > 0 and self.root == "/proc":
                return min(size, FDS_LIMIT)
            with os.scandir(path) as entries:
                return sum(1 for _ in itertools.islice(entries, FDS_LIMIT))
        except OSError:
            return None

    def shared_held(self, pid: int) -> int | None:
        """Bytes of files of /dev/shm that it has open, mapped or not: batches that wait in a queue are not mapped."""
        told = self.patient(pid, lambda: _shared_held(f"{self.root}/{pid}/fd"))
        return None if told is None else int(told)

    def fd_limit(self, pid: int) -> int | None:
        """RLIMIT_NOFILE, soft; None for unlimited too."""
        for line in lines_of(_text(self, pid, "limits") or ""):
            if line.startswith("Max open files"):
                return _number(line.split()[3:4])
        return None

    def read_bytes(self, pid: int) -> int | None:
        """Bytes that the process caused to be read from storage."""
        for line in lines_of(_text(self, pid, "io") or ""):
            if line.startswith("read_bytes:"):
                return _number(line.split()[1:2])
        return None

    def rollup(self, pid: int) -> Rollup | None:
        """Proportional memory. Dear: the kernel walks all page tables of the process."""
        data = self.read(pid, "smaps_rollup", SMALL)
        if not data:
            return None
        sizes = _kilobytes(data.decode("ascii", "replace"), ROLLUP)
        return Rollup(*map(sizes.get, ROLLUP))

    def threads(self, pid: int) -> list[int]:
        try:
            return [int(name) for name in os.listdir(f"{self.root}/{pid}/task") if name.isdecimal() and name.isascii()]
        except OSError:
            return []

    def children(self, pid: int) -> list[int]:
        """Children of all its threads (CONFIG_PROC_CHILDREN; Debian's and Ubuntu's kernels have it)."""
        found: list[int] = []
        for tid in self.threads(pid):
            text = _text(self, pid, f"task/{tid}/children", COMMAND_LIMIT) or ""
            found += [int(word) for word in text.split() if word.isdecimal()]
        return found[:CHILDREN_LIMIT]

    def descendants(self, pid: int) -> Iterator[int]:
        """Children, their children and so on, parents first, each once."""
        seen, todo = {pid}, [pid]
        while todo and len(seen) < CHILDREN_LIMIT:
            for child in self.children(todo.pop(0)):
                if child not in seen:
                    seen.add(child)
                    todo.append(child)
                    yield child


def _text(proc: Proc, pid: int, name: str, limit: int = SMALL) -> str | None:
    data = proc.read(pid, name, limit)
    return None if data is None else data.decode("utf-8", "surrogateescape")


def read_file(path: str, limit: int) -> bytes | None:
    """At most ``limit`` bytes; None when there is no such file, its process is gone or it may not be read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        parts, left, room = [], limit, SMALL
        while left > 0 and (part := os.read(fd, min(left, room))):
            parts.append(part)
            left -= len(part)
            if len(part) == room:  # a long one; some give a page at a time, whatever room there is
                room = min(4 * room, LARGE)
        return b"".join(parts)
    except OSError:  # ESRCH: it died between open and read
        return None
    finally:
        os.close(fd)


def _string(path: str, address: int) -> bytes | None:
    """Up to a zero byte, PAGE bytes at most; a mapping may end behind it."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        here = PAGE - address % PAGE
        data = os.pread(fd, here, address)
        if b"\0" not in data:
            data += os.pread(fd, PAGE - here, address + here)
        return data.split(b"\0", 1)[0]
    except (OSError, OverflowError):
        return None
    finally:
        os.close(fd)


def exists(root: str, pid: int) -> bool:
    """Whether there is the process, also one whose files cannot be read now."""
    return os.path.exists(f"{root}/{pid}")


def _read_link(root: str, name: str, pid: int) -> str | None:
    try:
        return os.readlink(f"{root}/{pid}/{name}")
    except OSError:
        return None


def _read_stat(root: str, pid: int) -> Stat | None:
    data = read_file(f"{root}/{pid}/stat", SMALL)
    return None if data is None else parse_stat(data.decode("utf-8", "surrogateescape"))


def parse_stat(text: str) -> Stat | None:
    """/proc/PID/stat. The name may hold spaces and parentheses: fields are counted behind the last one."""
    opening, closing = text.find("("), text.rfind(")")
    fields = text[closing + 1 :].split()
    if opening < 0 or closing < opening or len(fields) < 22:
        return None
    try:
        return Stat(
            comm=text[opening + 1 : closing],
            state=fields[0],
            ppid=int(fields[1]),
            flags=int(fields[6]),
            cpu_ns=(int(fields[11]) + int(fields[12])) * TICK_NS,
            threads=int(fields[17]),
            ticks=int(fields[19]),
            rss_bytes=max(0, int(fields[21])) * PAGE,
            major_faults=int(fields[9]),
        )
    except ValueError:
        return None


def parse_status(text: str) -> Status:
    fields = {key: value.split() for key, _, value in (line.partition(":") for line in lines_of(text))}
    swap, anonymous = (_number(fields.get(name, [])[:1]) for name in ("VmSwap", "RssAnon"))
    return Status(
        uid=_number(fields.get("Uid", [])[:1]),
        gid=_number(fields.get("Gid", [])[:1]),
        container_pid=_number(fields.get("NSpid", [])[-1:]),
        swap_bytes=None if swap is None else swap << 10,
        anonymous_bytes=None if anonymous is None else anonymous << 10,
    )


def _kilobytes(text: str, names: Collection[str]) -> dict[str, int]:
    found = {}
    for line in lines_of(text):
        name, colon, value = line.partition(":")
        if colon and name in names and (number := _number(value.split()[:1])) is not None:
            found[name] = number << 10
    return found


def _shared_held(directory: str) -> bytes | None:
    """What is mounted there is its owner's affair, and may hang."""
    held: dict[tuple[int, int], int] = {}
    try:
        names = os.listdir(directory)
    except OSError:
        return None
    for name in names[:SHARED_FDS_LIMIT]:
        with contextlib.suppress(OSError):  # it was closed while we looked
            if os.readlink(f"{directory}/{name}").startswith("/dev/shm/"):
                status = os.stat(f"{directory}/{name}")
                held[status.st_dev, status.st_ino] = 512 * status.st_blocks
    return str(sum(held.values())).encode()


def _number(words: list[str]) -> int | None:
    return int(words[0]) if words and words[0].isascii() and words[0].isdecimal() and len(words[0]) < 20 else None
