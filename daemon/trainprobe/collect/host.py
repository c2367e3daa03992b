"""The whole host: memory, swap, processors, disks, as psutil reads them."""

from __future__ import annotations

import warnings
from typing import Any

import psutil

from trainprobe.collect import cpu_speed_probe
from trainprobe.collect.procfs import SMALL, read_file
from trainprobe.collect.source import Failed
from trainprobe.model.message import template
from trainprobe.model.moment import NS
from trainprobe.model.sample import DiskSample, HostSample

DISKS_LIMIT = 64
UNREADABLE = template("source.unreadable", "{path} cannot be read")
SWAP_PAGE = 4096
"""psutil takes each page of vmstat's pswpin for one of these."""


class HostReader:
    """Reads the host's own figures; paths are other ones in tests. psutil has one place of /proc for a process."""

    def __init__(self, proc: str = "/proc", sys: str = "/sys") -> None:
        psutil.PROCFS_PATH = self._proc = proc
        self._sys = sys
        self._devices: dict[str, tuple[int, bool | None]] = {}

    def read(self, pressure: dict[str, float] | None = None) -> HostSample | Failed:
        """A sample; ``pressure`` is what psi.read() said, None where it is unavailable."""
        try:
            with warnings.catch_warnings():  # of what is not in meminfo
                warnings.simplefilter("ignore", RuntimeWarning)
                memory, swap = psutil.virtual_memory(), psutil.swap_memory()
            spent = psutil.cpu_times()
            disks = psutil.disk_io_counters(perdisk=True, nowrap=False) or {}
        except (OSError, LookupError, ValueError, NotImplementedError, RuntimeError) as error:
            return Failed(UNREADABLE(path=getattr(error, "filename", None) or f"{self._proc}/meminfo"))
        return HostSample(
            cpus=psutil.cpu_count() or 1,
            memory_bytes=memory.total,
            available_bytes=memory.available,
            swap_used_bytes=swap.used,
            swap_size_bytes=swap.total,
            swap_in_pages=swap.sin // SWAP_PAGE,
            pressure=pressure,
            load=psutil.getloadavg()[0],
            idle_ns=round((spent.idle + spent.iowait) * NS),
            steal_ns=round(spent.steal * NS),
            disks=self._disks(disks),
            pace_ns=cpu_speed_probe.now(),
        )

    def _disks(self, counters: dict[str, Any]) -> tuple[DiskSample, ...]:
        """Whole devices and partitions that ever did I/O: a file's st_dev is the partition's."""
        used = {name: one for name, one in counters.items() if one.read_count + one.write_count and name[:3] != "ram"}
        self._devices = {name: found for name in used if (found := self._devices.get(name) or self._device(name))}
        known = list(self._devices.items())[:DISKS_LIMIT]
        return tuple(
            DiskSample(name, dev, one.busy_time, one.read_bytes, one.write_bytes, spins)
            for name, (dev, spins) in known
            for one in [used[name]]
        )

    def _device(self, name: str) -> tuple[int, bool | None] | None:
        """Its number, and whether it turns; a partition has its disk's queue one directory up."""
        base = f"{self._sys}/class/block/{name.replace('/', '!')}"
        number = (read_file(f"{base}/dev", SMALL) or b"").decode("ascii", "replace").strip().split(":")
        if len(number) != 2 or not all(part.isdecimal() for part in number):
            return None
        spins = read_file(f"{base}/queue/rotational", SMALL) or read_file(f"{base}/../queue/rotational", SMALL)
        return int(number[0]) << 20 | int(number[1]), None if spins is None else spins.strip() == b"1"
