"""/dev/shm as the processes of a run see it: the container's, not ours.

Everything below /proc/PID/root belongs to the container: links are not followed, only a tmpfs that the process's own
mount table knows is looked at, and the way there may lead over a file system that does not answer.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

from trainprobe.collect.lines import lines_of
from trainprobe.collect.procfs import Proc
from trainprobe.model.dataclass import dataclass
from trainprobe.model.moment import NS
from trainprobe.model.sample import Leak, LimitSample, SharedSample

MOUNT_NS = 30 * NS
FILES_LIMIT = 20_000
YOUNG_SECONDS = 30.0  # a file's maker may be about to hand it over
_NAME = re.compile(r"torch_([0-9]{1,10})_[0-9A-Za-z_]+")
_PLACE = "/dev/shm"
_INSIDE = f"root{_PLACE}"


@dataclass(frozen=True, slots=True)
class _Mount:
    device: int  # st_dev
    until_ns: int


class SharedMemoryReader:
    """Reads sizes, and finds files that nobody will ever remove."""

    def __init__(self, proc: Proc) -> None:
        self._proc = proc
        self._mounts: dict[int, _Mount | None] = {}

    def limit(self, run: str, pid: int, container: str, now_ns: int) -> LimitSample | None:
        """How full it is; None: the process has none, or its size is not limited."""
        found = self._space(pid, now_ns)
        if found is None:
            return None
        device, unit, blocks, free = found
        if not blocks:
            return None
        name = f"{os.major(device)}:{os.minor(device)}"
        return LimitSample(run, "shm", (blocks - free) * unit, blocks * unit, container or "host", name, pid)

    def sample_with_leaks(
        self, limit: LimitSample, runs: tuple[str, ...], mapped: Iterable[int], now: float
    ) -> SharedSample:
        """The same with what dead processes left. ``mapped``: processes whose files are in use; ``now``: UNIX time."""
        leaks = self._leaks(limit.pid, list(mapped), now)
        return SharedSample(limit.place, limit.scope, limit.limit, limit.used, tuple(leaks), runs)

    def forget(self, alive: Iterable[int]) -> None:
        """Only these processes are still of interest."""
        kept = set(alive)
        self._mounts = {pid: mount for pid, mount in self._mounts.items() if pid in kept}

    def _space(self, pid: int, now_ns: int) -> tuple[int, int, int, int] | None:
        """Device, unit, and how many of these there are and are free; None: the process has none."""
        answer = self._proc.ask(pid, "tmpfs", _INSIDE)
        if answer is None:
            return None
        device, unit, blocks, free = (int(word) for word in answer.split())
        mount = self._mounts.get(pid)
        if mount is None or now_ns >= mount.until_ns or mount.device != device:
            known = shared_memory_device(self._proc.mountinfo(pid) or "")
            mount = self._mounts[pid] = None if known is None else _Mount(known, now_ns + MOUNT_NS)
        return (device, unit, blocks, free) if mount is not None and mount.device == device else None

    def _leaks(self, pid: int, mapped: list[int], now: float) -> list[Leak]:
        files = self._torch_files(pid, now)
        if not files:
            return []
        alive = self._alive_beside(pid)
        dead = {name: size for name, size in files.items() if alive is not None and _maker(name) not in alive}
        for user in mapped if dead else ():
            text = (self._proc.maps(user) or b"").decode(errors="surrogateescape")
            dead = {name: size for name, size in dead.items() if f"/{name}\n" not in text}
        makers: dict[int, Leak] = {}
        for name, size in sorted(dead.items()):
            maker = _maker(name)
            before = makers.get(maker, Leak(maker, 0, 0, name))
            makers[maker] = Leak(maker, before.files + 1, before.bytes + size, before.name)
        return list(makers.values())

    def _torch_files(self, pid: int, now: float) -> dict[str, int]:
        space = self._space(pid, 0)
        listed = self._proc.ask(pid, "files", _INSIDE, FILES_LIMIT, space[0]) if space else None
        found: dict[str, int] = {}
        for row in (listed or b"").decode("utf-8", "surrogateescape").split("\0"):
            name, _, rest = row.partition("/")
            if _NAME.fullmatch(name):
                changed, size = (int(word) for word in rest.split())
                if now - changed >= YOUNG_SECONDS:
                    found[name] = size
        return found

    def _alive_beside(self, pid: int) -> set[int] | None:
        """Processes in the same pid namespace, by the numbers that they have there."""
        wanted = self._proc.link(pid, "ns/pid")
        if not wanted:
            return None
        found = set()
        for other, namespace in self._proc.links(self._proc.pids(), "ns/pid").items():
            if namespace == wanted and (status := self._proc.status(other)) is not None:
                found.add(status.container_pid if status.container_pid is not None else other)
        return found


def shared_memory_device(mountinfo: str) -> int | None:
    """st_dev of the tmpfs that is mounted last on /dev/shm; None: it is none."""
    found = None
    for line in lines_of(mountinfo):
        front, dash, back = line.partition(" - ")
        fields = front.split(" ")
        if dash and len(fields) >= 6 and fields[4] == _PLACE:
            major, colon, minor = fields[2].partition(":")
            fits = back.startswith("tmpfs ") and colon and major.isdecimal() and minor.isdecimal()
            found = os.makedev(int(major), int(minor)) if fits else None
    return found


def _maker(name: str) -> int:
    match = _NAME.fullmatch(name)
    return int(match[1]) if match else 0
