"""Memory and CPU of a process's cgroup: v1, v2 or hybrid, decided for each controller."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from trainprobe.collect.cgroup_path import CgroupPlace, parse_cgroups, place
from trainprobe.collect.lines import lines_of
from trainprobe.collect.procfs import SMALL, TABLE_LIMIT, Proc, read_file
from trainprobe.collect.source import Unavailable
from trainprobe.model.dataclass import dataclass
from trainprobe.model.message import template
from trainprobe.model.sample import IoLimitSample, LimitSample, MemorySample

_ESCAPE = re.compile(r"\\([0-7]{3})")
INNERMOST, OUTERMOST = 6, 4
"""Levels of a deep tree that are read: anybody can nest his own. With fewer in all each is: Kubernetes and SLURM have
five or six below a mount, Kubernetes in a container seven."""
Known = dict[tuple[str, str], tuple[int, int] | None]
"""Used and limit of a kind in a directory, as read at this time: runs share those above them. None: no limit."""
NO_CONTROLLER = template(
    "source.no_controller", "the cpu controller of the process's cgroup is not mounted or not enabled"
)
ENABLE_CONTROLLER = template(
    "source.enable_controller", "CPUWeight=100 in its systemd unit, or +cpu in its parent's cgroup.subtree_control"
)


@dataclass(frozen=True, slots=True)
class CgroupMount:
    """A mounted cgroup hierarchy: the directory, the cgroup at its root, its controllers ("" alone for v2)."""

    point: str
    root: str
    controllers: frozenset[str]


@dataclass(frozen=True, slots=True)
class Throttling:
    """The CPU quota of a cgroup and how often it bit. Cumulative; seconds are summed over CPUs."""

    periods: int
    throttled_periods: int
    throttled_ns: int
    quota_cpus: float | None  # None: no quota
    path: str = ""  # of the cgroup, below its mount


def parse_mounts(mountinfo: str) -> list[CgroupMount]:
    mounts = []
    for line in lines_of(mountinfo):
        front, dash, back = line.partition(" - ")
        fields, kind = front.split(" "), back.split(" ")
        if not dash or len(fields) < 6 or len(kind) < 3:
            continue
        if kind[0] == "cgroup2":
            mounts.append(CgroupMount(_unescape(fields[4]), _unescape(fields[3]), frozenset({""})))
        elif kind[0] == "cgroup":
            mounts.append(CgroupMount(_unescape(fields[4]), _unescape(fields[3]), frozenset(kind[2].split(","))))
    return mounts


def directory(mounts: list[CgroupMount], controller: str, path: str) -> tuple[str, str] | None:
    """(mount point, directory of the cgroup under it), seen through the mount's own root; None: not mounted here."""
    for mount in mounts:
        if controller in mount.controllers:
            root = mount.root.rstrip("/")
            if path == root or path.startswith(root + "/"):
                rest = path[len(root) :].strip("/")
                if ".." not in rest.split("/"):
                    return mount.point, f"{mount.point}/{rest}".rstrip("/")
    return None


class Cgroups:
    """Reads cgroup files of watched processes. The mounts are those that this process sees."""

    def __init__(self, proc: Proc) -> None:
        self._proc = proc
        self._mounts: list[CgroupMount] = []
        self.hidden = False
        """Whether a process's cgroup was out of sight since this was reset: its limits are not known then."""

    def place(self, pid: int) -> CgroupPlace:
        """What the path tells about container, pod, job and unit; all None when the process is gone."""
        return place(parse_cgroups(self._proc.cgroup(pid) or ""))

    def memory(self, run: str, pid: int, cgroups: str | None = None, known: Known | None = None) -> list[LimitSample]:
        """Every limit of memory above the process, the host's last. ``cgroups``: its /proc/PID/cgroup, if read before;
        ``known``: what is known at this time, and will be.

        Used: without the page cache that the kernel drops first (inactive_file), for that ends no run.
        Empty: the process is gone, the host's meminfo cannot be read, or the cgroup is out of sight (``hidden``): the
        host's limit need not be the one that ends it.
        """
        known = {} if known is None else known
        host = _once(known, ("host", ""), self._host_memory)
        text = self._proc.cgroup(pid) if cgroups is None else cgroups
        if text is None or host is None:
            return []
        total, available = host
        paths = parse_cgroups(text)
        places, found = list(self._places(paths, "memory")), []
        if not places and paths.get("memory", paths.get("", "/")) != "/":
            self.hidden = True
            return []
        for version, point, path in places:
            for level in _upwards(point, path):
                names = _V2 if version == 2 else _V1
                used = _once(known, ("memory", level), partial(_memory, level, names, total))
                if used is not None:
                    found.append(LimitSample(run, "memory", *used, "cgroup", level[len(point) :] or "/"))
        return [*found, LimitSample(run, "memory", total - available, total, "host")]

    def processes(
        self, run: str, pid: int, cgroups: str | None = None, known: Known | None = None
    ) -> list[LimitSample]:
        """Every limit of the number of threads and processes (pids.max) above the process."""
        found: list[LimitSample] = []
        known = {} if known is None else known
        text = self._proc.cgroup(pid) if cgroups is None else cgroups
        for _, point, path in self._places(parse_cgroups(text or ""), "pids"):
            levels = {at: _once(known, ("pids", at), partial(_processes, at)) for at in _upwards(point, path)}
            found += [
                LimitSample(run, "pids", *used, "cgroup", level[len(point) :] or "/")
                for level, used in levels.items()
                if used is not None
            ]
        return found

    def throttling(self, cgroups: str) -> Throttling | Unavailable:
        """cpu.stat of the innermost cgroup above a process that has a quota. ``cgroups``: its /proc/PID/cgroup."""
        paths = parse_cgroups(cgroups)
        found: Throttling | None = None
        for version, point, path in self._places(paths, "cpu"):
            for level in _upwards(point, path):
                here = _cpu(version, level)
                if here and here.quota_cpus is not None:
                    return replace(here, path=level[len(point) :] or "/")
                found = found or here
        return found or Unavailable(NO_CONTROLLER(), ENABLE_CONTROLLER())

    def io_limits(self, run: str, cgroups: str) -> list[IoLimitSample]:
        """The speed limits of devices of the cgroup and of those above it: of each the innermost one."""
        found: dict[int, IoLimitSample] = {}
        paths = parse_cgroups(cgroups)
        for version, point, path in self._places(paths, "blkio" if "blkio" in paths else "io"):
            for level in _upwards(point, path):
                for dev, limits in (_io_v2(level) if version == 2 else _io_v1(level)).items():
                    found.setdefault(dev, IoLimitSample(run, dev, level[len(point) :] or "/", *map(limits.get, _IO)))
        return list(found.values())

    def _places(self, paths: dict[str, str], controller: str) -> Iterator[tuple[int, str, str]]:
        """(version, mount point, directory) of the hierarchy that has the controller."""
        name = controller if controller in paths else ""
        if name not in paths:
            return
        found = directory(self._mounts, name, paths[name])
        if found is None:  # not looked at yet, or mounted since; a host may have thousands of mounts
            data = read_file(f"{self._proc.root}/self/mountinfo", TABLE_LIMIT) or b""
            self._mounts = parse_mounts(data.decode("utf-8", "surrogateescape"))
            found = directory(self._mounts, name, paths[name])
        if found is not None:
            yield 1 if name else 2, *found

    def _host_memory(self) -> tuple[int, int] | None:
        data = read_file(f"{self._proc.root}/meminfo", SMALL)
        text = data.decode("ascii", "replace") if data else ""
        total, available = number(text, "MemTotal:"), number(text, "MemAvailable:")
        return None if total is None or available is None else (total << 10, available << 10)


def nearest(run: str, limits: Sequence[LimitSample]) -> MemorySample | None:
    if not limits:
        return None
    one = min(limits, key=lambda limit: limit.limit - limit.used)
    return MemorySample(run, one.used, one.limit, one.scope)


def number(text: str, name: str) -> int | None:
    """The number behind a name in lines "name number …" (memory.stat, cpu.stat, meminfo)."""
    at = 0 if text.startswith(f"{name} ") else text.find(f"\n{name} ") + 1
    words = text[at : at + len(name) + 64].partition("\n")[0].split(None, 2)
    known = len(words) >= 2 and words[0] == name and words[1].isascii() and words[1].isdecimal()
    return int(words[1]) if known else None


def _upwards(point: str, path: str) -> Iterator[str]:
    parts = path[len(point) :].split("/")
    for number in range(len(parts), 0, -1):
        if number <= OUTERMOST or number > len(parts) - INNERMOST:
            yield point + "/".join(parts[:number])


def _once(known: Known, key: tuple[str, str], read: Callable[[], tuple[int, int] | None]) -> tuple[int, int] | None:
    if key not in known:
        known[key] = read()
    return known[key]


_V1 = "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"
_V2 = "memory.max", "memory.current", "inactive_file"


def _memory(level: str, names: tuple[str, str, str], total: int) -> tuple[int, int] | None:
    """(used, limit); None where there is no limit below ``total``. Then nothing more is read: the kernel adds up a
    cgroup's statistics when they are asked for."""
    limit = _value(f"{level}/{names[0]}")
    if limit is None or limit >= total or (used := _value(f"{level}/{names[1]}")) is None:
        return None
    return max(0, used - (number(_text(f"{level}/memory.stat"), names[2]) or 0)), limit


def _processes(level: str) -> tuple[int, int] | None:
    limit = _value(f"{level}/pids.max")
    used = None if limit is None else _value(f"{level}/pids.current")
    return None if limit is None or used is None else (used, limit)


def _cpu(version: int, level: str) -> Throttling | None:
    stat = _text(f"{level}/cpu.stat")
    if (periods := number(stat, "nr_periods")) is None:
        return None
    if version == 2:
        throttled_ns = (number(stat, "throttled_usec") or 0) * 1000
        words = _text(f"{level}/cpu.max").split()
    else:
        throttled_ns = number(stat, "throttled_time") or 0
        words = [_text(f"{level}/cpu.cfs_{name}_us").strip() for name in ("quota", "period")]
    limited = len(words) == 2 and all(map(str.isdecimal, words)) and int(words[1])
    quota = int(words[0]) / int(words[1]) if limited else None
    return Throttling(periods, number(stat, "nr_throttled") or 0, throttled_ns, quota)


_IO = "rbps", "wbps", "riops", "wiops"
_IO_V1 = "read_bps", "write_bps", "read_iops", "write_iops"


def _io_v2(level: str) -> dict[int, dict[str, int]]:
    """By device; lines such as "8:0 rbps=1048576 wbps=max riops=max wiops=max"."""
    found = {}
    for line in lines_of(_text(f"{level}/io.max")):
        device, *words = line.split()
        pairs = (word.partition("=") for word in words)
        limits = {name: int(value) for name, _, value in pairs if value.isdecimal()}
        if limits and (dev := _dev(device)) is not None:
            found[dev] = limits
    return found


def _io_v1(level: str) -> dict[int, dict[str, int]]:
    found: dict[int, dict[str, int]] = {}
    for name, file in zip(_IO, _IO_V1):
        for line in lines_of(_text(f"{level}/blkio.throttle.{file}_device")):
            words = line.split()
            if len(words) == 2 and words[1].isdecimal() and (dev := _dev(words[0])) is not None:
                found.setdefault(dev, {})[name] = int(words[1])
    return found


def _dev(text: str) -> int | None:
    major, _, minor = text.partition(":")
    return int(major) << 20 | int(minor) if major.isdecimal() and minor.isdecimal() else None


def _text(path: str) -> str:
    return (read_file(path, SMALL) or b"").decode("ascii", "replace")


def _value(path: str) -> int | None:
    """A file with one number; None for "max", "-1" and a missing file."""
    words = _text(path).split()
    return int(words[0]) if len(words) == 1 and words[0].isdecimal() else None


def _unescape(text: str) -> str:
    """mountinfo writes space, tab, newline and backslash in octal."""
    return _ESCAPE.sub(lambda match: chr(int(match[1], 8)), text)
