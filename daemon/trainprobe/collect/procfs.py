"""Bounded readers of /proc/PID, by helpers (``pool``). None: the process is gone (or not ours to read, or keeps its
readers waiting), an ordinary answer.

Names, command lines, environments and maps belong to the process that is read: nothing in them is trusted, every
read has a limit, text is decoded with surrogateescape.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import partial

from trainprobe.collect import helper_process, helper_program
from trainprobe.collect.lines import lines_of
from trainprobe.collect.mapping import Mapping as Mapped
from trainprobe.collect.mapping import find_library
from trainprobe.collect.owners import Owners
from trainprobe.collect.pool import HelperDeaths, Read
from trainprobe.collect.reads import Reads
from trainprobe.model.dataclass import dataclass
from trainprobe.model.vocabulary import MAPS_LIMIT

ENVIRON_KEYS = frozenset({
    "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
    "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT",
    "SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_JOB_NAME",
    "SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID", "INVOCATION_ID",
})  # fmt: skip
"""The only environment variables that are ever looked at."""

VALUE_LIMIT = 256
SMALL = 16 << 10
ENVIRON_LIMIT = 1 << 20
COMMAND_LIMIT, ARGUMENTS_LIMIT = 16 << 10, 256
"""Bytes, and arguments: what is watched keeps its command line, and a user may have a thousand processes watched."""
TABLE_LIMIT = 4 << 20
FDS_LIMIT = 200_000
SHARED_FDS_LIMIT = 4096
CHILDREN_LIMIT, GENERATIONS = 4096, 32
THREADS_LIMIT = 32 << 10
DRIFT_NS = 1_000_000
KERNEL_THREAD = 0x00200000  # PF_KTHREAD
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


Details = tuple[Status | None, int | None, int | None]
"""Status, open descriptors, their limit (soft; None for unlimited too)."""
Placed = dict[int, tuple[str | None, Stat | None]]
SHARED_MEMORY = "root/dev/shm"
ROLLUP = ("Pss", "Pss_Shmem", "SwapPss", "Private_Dirty", "Swap")


@dataclass(frozen=True, slots=True)
class Rollup:
    pss_bytes: int | None
    shm_bytes: int | None  # Pss_Shmem
    swap_bytes: int | None  # SwapPss
    private_bytes: int | None = None  # Private_Dirty
    swap_all_bytes: int | None = None  # Swap


class Proc(Reads):
    """One procfs. ``root`` is another path in tests; ``boot_offset_ns`` is CLOCK_BOOTTIME - CLOCK_MONOTONIC."""

    def __init__(
        self,
        root: str = "/proc",
        boot_offset_ns: int | None = None,
        owners: Owners | None = None,
        deaths: HelperDeaths | None = None,
    ) -> None:
        deaths = deaths or HelperDeaths()
        super().__init__(root, owners or Owners(), deaths)
        self.apart = partial(Proc, root, boot_offset_ns, self.owners, deaths)
        """The same procfs for other threads: they have their own reads that hang."""
        self.helpers: Collection[int] = helper_process.running
        self._fixed_offset = boot_offset_ns is not None
        self._offset = boot_offset_ns or 0

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
        found = self.each(pids, "read", "stat", SMALL).items()
        stats = {pid: _stat_of(data) for pid, data in found}
        return {pid: stat for pid, stat in stats.items() if stat is not None}

    def status(self, pid: int, tid: int | None = None) -> Status | None:
        """Of a process, or of one of its threads."""
        text = _text(self, pid, f"task/{tid}/status" if tid else "status")
        return None if text is None else parse_status(text)

    def command(self, pid: int) -> tuple[str, ...] | None:
        """The first arguments; empty for kernel threads and zombies. A process may have written over them."""
        data = self.read(pid, "cmdline", COMMAND_LIMIT)
        if data is None:
            return None
        arguments = data.rstrip(b"\0").split(b"\0", ARGUMENTS_LIMIT)[:ARGUMENTS_LIMIT]
        return tuple(a.decode("utf-8", "surrogateescape") for a in arguments) if data else ()

    def environ(self, pid: int) -> dict[str, str]:
        """The variables of ENVIRON_KEYS as they were at exec, no other one; empty when it cannot be read."""
        data = b"\0" + (self.read(pid, "environ", ENVIRON_LIMIT) or b"")
        found: dict[str, str] = {}
        for key in ENVIRON_KEYS:  # looked for one by one: a process can have a million variables without a name
            name = b"\0%s=" % key.encode()
            at = data.find(name) + len(name)
            if at >= len(name):
                found[key] = data[at : at + VALUE_LIMIT].partition(b"\0")[0].decode("utf-8", "surrogateescape")
        return found

    def library(self, pid: int) -> Mapped | None:
        """The executable mapping of libtorch_cpu of a process."""
        data = self.maps(pid)
        return None if data is None else find_library(data)

    def maps(self, pid: int) -> bytes | None:
        return self.read(pid, "maps", MAPS_LIMIT)

    def string(self, pid: int, address: int) -> str:
        """A text in the memory of a process, such as a path that it handed to the kernel; "" where there is none."""
        data = self.ask(pid, "memory", "mem", address)
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
        found = self.each(pids, "link", name).items()
        return {pid: target.decode("utf-8", "surrogateescape") for pid, target in found}

    def limited(
        self, placed: Iterable[int], shared: Iterable[int], counted: Iterable[int]
    ) -> tuple[Placed, dict[int, bytes | None], dict[int, int]]:
        """What limits are read by, for little more than the price of one read: of the first cgroups and stat, the
        former read before the latter, of the second the room in their /dev/shm, and how many descriptors the last have
        open (FDS_LIMIT at most; of those that can be read)."""
        first, second, others = list(placed), list(shared), list(counted)
        answers = iter(self._ask([
            *(self._read(pid, "read", name, SMALL) for pid in first for name in ("cgroup", "stat")),
            *(self._read(pid, "tmpfs", SHARED_MEMORY) for pid in second),
            *(self._count(pid) for pid in others),
        ]))  # fmt: skip
        seen = {pid: (_decoded(next(answers)), _stat_of(next(answers))) for pid in first}
        rooms = {pid: next(answers) for pid in second}
        return seen, rooms, {pid: int(count) for pid, count in zip(others, answers, strict=True) if count is not None}

    def details_of(self, pids: Sequence[int]) -> dict[int, Details]:
        """Of many processes, for little more than the price of one."""
        answers = iter(self._ask([read for pid in pids for read in self._details(pid)]))
        return {pid: _details_of(next(answers), next(answers), next(answers)) for pid in pids}

    def stats_and_details(self, pids: Sequence[int]) -> tuple[dict[int, Stat], dict[int, Details]]:
        """Both in one request; stats of those that are there."""
        answers = iter(
            self._ask([read for pid in pids for read in (self._read(pid, "read", "stat", SMALL), *self._details(pid))])
        )
        stats, details = {}, {}
        for pid in pids:
            if (stat := _stat_of(next(answers))) is not None:
                stats[pid] = stat
            details[pid] = _details_of(next(answers), next(answers), next(answers))
        return stats, details

    def _details(self, pid: int) -> Iterator[Read]:
        yield self._read(pid, "read", "status", SMALL)
        yield self._read(pid, "read", "limits", SMALL)
        yield self._count(pid)

    def _count(self, pid: int) -> Read:
        return self._read(pid, "count", "fd", FDS_LIMIT, self.root == "/proc")

    def rollup(self, pid: int) -> Rollup | None:
        """Proportional memory. Dear: the kernel walks all page tables of the process."""
        return _rollup_of(self.read(pid, "smaps_rollup", SMALL))

    def rollup_and_held(self, pid: int) -> tuple[Rollup | None, int | None]:
        """The same, and bytes of the files of /dev/shm that it has open, mapped or not: batches that wait in a queue
        are not mapped."""
        rollup = self._read(pid, "read", "smaps_rollup", SMALL)
        memory, held = self._ask([rollup, self._read(pid, "shared", "fd", SHARED_FDS_LIMIT)])
        return _rollup_of(memory), None if held is None else int(held)

    def threads(self, pid: int, limit: int = THREADS_LIMIT) -> list[int]:
        return _numbers((self.ask(pid, "names", "task", limit) or b"").split(b"\0"))

    def children(self, pid: int) -> list[int]:
        """Children of all its threads (CONFIG_PROC_CHILDREN; Debian's and Ubuntu's kernels have it)."""
        found = self.ask(pid, "children", "task", THREADS_LIMIT) or b""
        return _numbers(found.split())[:CHILDREN_LIMIT]

    def descendants(self, pid: int) -> Iterator[tuple[int, int]]:
        """(parent, child) of the tree below a process, parents first, each child once; each generation is asked for
        together."""
        seen, parents = {pid}, [pid]
        for _ in range(GENERATIONS):
            found = self.each(parents, "children", "task", THREADS_LIMIT)
            pairs = [(parent, child) for parent, data in found.items() for child in _numbers(data.split())]
            parents = []
            for parent, child in pairs:
                if child not in seen and len(seen) < CHILDREN_LIMIT:
                    seen.add(child)
                    parents.append(child)
                    yield parent, child
            if not parents:
                return


def _text(proc: Proc, pid: int, name: str, limit: int = SMALL) -> str | None:
    return _decoded(proc.read(pid, name, limit))


def _decoded(data: bytes | None) -> str | None:
    return None if data is None else data.decode("utf-8", "surrogateescape")


def _stat_of(data: bytes | None) -> Stat | None:
    return None if data is None else parse_stat(data.decode("utf-8", "surrogateescape"))


def read_file(path: str, limit: int) -> bytes | None:
    """At most ``limit`` bytes of a file of the kernel's or ours; None when there is none or it may not be read."""
    try:
        return helper_program.read(os.fsencode(path), limit)
    except OSError:
        return None


def exists(root: str, pid: int) -> bool:
    """Whether there is the process, also one whose files cannot be read now."""
    return os.path.exists(f"{root}/{pid}")


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


def parse_fd_limit(data: bytes | None) -> int | None:
    """Of /proc/PID/limits."""
    line = next((line for line in (data or b"").split(b"\n") if line.startswith(b"Max open files")), b"")
    return _number(line.decode("ascii", "replace").split()[3:4])


def _rollup_of(data: bytes | None) -> Rollup | None:
    if not data:
        return None
    sizes = _kilobytes(data.decode("ascii", "replace"), ROLLUP)
    return Rollup(*map(sizes.get, ROLLUP))


def _details_of(status: bytes | None, limits: bytes | None, fds: bytes | None) -> Details:
    known = None if status is None else parse_status(status.decode("utf-8", "surrogateescape"))
    return known, None if fds is None else int(fds), parse_fd_limit(limits)


def _numbers(words: Iterable[bytes]) -> list[int]:
    return [int(word) for word in words if word.isdigit()]


def _number(words: list[str]) -> int | None:
    return int(words[0]) if words and words[0].isascii() and words[0].isdecimal() and len(words[0]) < 20 else None
