"""What the kernel log says about out-of-memory kills and about GPUs. Only lines of the kernel's own facility count, and
only what they begin with: the line of a segmentation fault ends with the name of a file, which anybody may choose.
"""

from __future__ import annotations

import os
import re

from trainprobe.collect.source import Unavailable
from trainprobe.model.dataclass import dataclass
from trainprobe.model.event import GpuXid, OomLogged
from trainprobe.model.message import template

RECORD_LIMIT = 8192
AT_ONCE = 4096  # records a turn: before a kill all processes that could be killed are listed
_OOM = re.compile(
    r"oom-kill:constraint=CONSTRAINT_(\w+),.*?(?:,oom_memcg=([^,]*))?(?:,global_oom)?,task_memcg=.*,pid=(\d+),"
)
_KILLED = re.compile(r"(Memory cgroup out|Out) of memory(?: \([^)]*\))?: Killed process (\d+) \(")
_WHOLE = re.compile(r"Tasks in .* are going to be killed due to memory\.oom\.group set$")
_XID = re.compile(r"NVRM: Xid \(PCI:([0-9a-fA-F:.]{7,16})\): (\d{1,4}),? ?(.*)")
TEXT_LIMIT = 200
NO_LOG = template("source.no_kernel_log", "the kernel log cannot be read: {error}")
LOG_REMEDY = template("source.no_kernel_log_remedy", "run as root (CAP_SYSLOG)")


class KernelLog:
    """/dev/kmsg from now on."""

    def __init__(self, path: str = "/dev/kmsg") -> None:
        self._path = path
        self._fd = -1
        self._kills = KillLines()

    def open(self) -> Unavailable | None:
        """Begin at the end of the log."""
        try:
            self._fd = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            os.lseek(self._fd, 0, os.SEEK_END)
        except OSError as error:
            self.close()
            return Unavailable(NO_LOG(error=os.strerror(error.errno or 0)), LOG_REMEDY())
        return None

    def read(self, now_ns: int) -> list[OomLogged | GpuXid]:
        """What came since the last call."""
        found: list[OomLogged | GpuXid] = []
        self._kills.begin()
        for _ in range(AT_ONCE if self._fd >= 0 else 0):
            try:
                record = os.read(self._fd, RECORD_LIMIT)
            except BlockingIOError:
                break
            except BrokenPipeError:  # records were overwritten before we read them
                continue
            if not record:
                break
            text = kernel_text(record)
            told = self._kills.add_line(text, now_ns) or xid_logged(text, now_ns) if text else None
            if told is not None:
                found.append(told)
        return found

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def kernel_text(record: bytes) -> str:
    """The message of a record of /dev/kmsg; "" where somebody else than the kernel wrote it."""
    prefix, semicolon, rest = record.partition(b";")
    priority = prefix.split(b",", 1)[0]
    if not semicolon or not priority.isdigit() or len(priority) > 6 or int(priority) >> 3:
        return ""
    return rest.split(b"\n", 1)[0].decode("utf-8", "replace")


@dataclass(slots=True)
class KillLines:
    """What the lines about kills for want of memory say, each process once.

    A summary ("oom-kill:…") has the victim and whose limit was hit; ten in five seconds at most are printed. A line
    ("… Killed process …") follows for each process that is killed: the victim, and where the cgroup is killed as a
    whole (memory.oom.group) all in it, the victim once more."""

    _pid: int = 0  # of the latest victim
    _group: str = ""  # whose limit it hit
    _whole: bool = False  # all in a cgroup are killed with it

    def begin(self) -> None:
        """Lines that are read later may be of another kill, without a summary."""
        self._whole = False

    def add_line(self, text: str, now_ns: int) -> OomLogged | None:
        """A process that was killed, and whose limit was hit; None also where it was told before."""
        if match := _OOM.match(text):
            self._pid, self._group, self._whole = int(match[3]), match[2] or "", False
            return OomLogged(now_ns, self._pid, "cgroup" if match[1] == "MEMCG" else "host", self._group)
        if _WHOLE.match(text):
            self._whole = True
            return None
        match = _KILLED.match(text)
        if match is None or int(match[2]) == self._pid:
            return None
        if not self._whole:
            self._pid, self._group = int(match[2]), ""
        return OomLogged(now_ns, int(match[2]), "host" if match[1] == "Out" else "cgroup", self._group)


def xid_logged(text: str, now_ns: int) -> GpuXid | None:
    match = _XID.match(text)
    return None if match is None else GpuXid(now_ns, match[1].lower(), int(match[2]), match[3][:TEXT_LIMIT])
