"""The whole host: memory, swap, processors, disks."""

from __future__ import annotations

import contextlib
import os

from trainprobe.collect import cpu_speed_probe
from trainprobe.collect.cgroup import number
from trainprobe.collect.lines import lines_of
from trainprobe.collect.procfs import SMALL, TABLE_LIMIT, TICK_NS, read_file
from trainprobe.collect.source import Failed
from trainprobe.model.message import template
from trainprobe.model.sample import DiskSample, HostSample

DISKS_LIMIT = 64
UNREADABLE = template("source.unreadable", "{path} cannot be read")
SECTOR = 512  # /proc/diskstats counts in these, whatever the device's own size is
RAM_DISKS = ("loop", "ram")
MEMINFO = ("MemTotal:", "MemAvailable:", "SwapTotal:", "SwapFree:")


def name(root: str = "/", first: str = "/proc/2/root/") -> str:
    """TRAINPROBE_HOST_NAME; in a container /etc/hostname as the kernel's threads see it; else uname's name."""
    if given := os.environ.get("TRAINPROBE_HOST_NAME", ""):
        return given
    with contextlib.suppress(OSError):
        if not os.path.samestat(os.stat(root), os.stat(first)):
            found = (read_file(f"{first}etc/hostname", SMALL) or b"").decode("utf-8", "replace").split()
            if found:
                return found[0]
    return os.uname().nodename


class HostReader:
    """Reads the host's own files; paths are other ones in tests."""

    def __init__(self, proc: str = "/proc", sys: str = "/sys") -> None:
        self._proc, self._sys = proc, sys
        self._rotational: dict[str, bool | None] = {}

    def read(self, pressure: dict[str, float] | None = None) -> HostSample | Failed:
        """A sample; ``pressure`` is what psi.read() said, None where it is unavailable."""
        text = self._text("meminfo")
        memory, available, swap, free = (_kilobytes(text, name) for name in MEMINFO)
        if memory is None:
            return Failed(UNREADABLE(path=f"{self._proc}/meminfo"))
        stat = self._text("stat")
        idle, stolen = _unused(stat)
        return HostSample(
            cpus=stat.count("\ncpu") or os.cpu_count() or 1,
            memory_bytes=memory,
            available_bytes=available,
            swap_used_bytes=None if swap is None or free is None else swap - free,
            swap_size_bytes=swap,
            swap_in_pages=number(self._text("vmstat"), "pswpin"),
            pressure=pressure,
            load=_load(self._text("loadavg")),
            idle_ns=idle,
            steal_ns=stolen,
            disks=self._disks(),
            pace_ns=cpu_speed_probe.now(),
        )

    def _text(self, name: str) -> str:
        limit = TABLE_LIMIT if name in ("stat", "diskstats") else SMALL
        return (read_file(f"{self._proc}/{name}", limit) or b"").decode("ascii", "replace")

    def _disks(self) -> tuple[DiskSample, ...]:
        """Whole devices and partitions that ever did I/O: a file's st_dev is the partition's."""
        disks = []
        for line in lines_of(self._text("diskstats")):
            words = line.split()
            if len(words) < 14 or not all(word.isdecimal() for word in (*words[:2], *words[3:14])):
                continue
            major, minor, name = int(words[0]), int(words[1]), words[2]
            reads, writes = int(words[3]), int(words[7])
            if reads + writes and not name.startswith(RAM_DISKS[1]):
                disks.append(
                    DiskSample(
                        device=name,
                        dev=major << 20 | minor,
                        busy_ms=int(words[12]),
                        read_bytes=int(words[5]) * SECTOR,
                        write_bytes=int(words[9]) * SECTOR,
                        rotational=self._spins(major, minor),
                    )
                )
        return tuple(disks[:DISKS_LIMIT])

    def _spins(self, major: int, minor: int) -> bool | None:
        """Whether the device turns; a partition has its disk's queue one directory up."""
        key = f"{major}:{minor}"
        if key not in self._rotational:
            base = f"{self._sys}/dev/block/{key}"
            data = read_file(f"{base}/queue/rotational", 16) or read_file(f"{base}/../queue/rotational", 16)
            self._rotational[key] = None if data is None else data.strip() == b"1"
        return self._rotational[key]


def _kilobytes(text: str, name: str) -> int | None:
    found = number(text, name)
    return None if found is None else found << 10


def _load(text: str) -> float | None:
    try:
        return float(text.split()[0])
    except (IndexError, ValueError):
        return None


def _unused(stat: str) -> tuple[int | None, int | None]:
    """Nanoseconds idle or waiting for I/O, and taken by the hypervisor, all processors together."""
    words = stat.partition("\n")[0].split()
    if len(words) < 6 or words[0] != "cpu" or not (words[4].isdecimal() and words[5].isdecimal()):
        return None, None
    stolen = int(words[8]) * TICK_NS if len(words) > 8 and words[8].isdecimal() else None
    return (int(words[4]) + int(words[5])) * TICK_NS, stolen
