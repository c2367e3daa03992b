"""/dev/shm as the processes of a run see it: the container's, not ours.

Everything below /proc/PID/root belongs to the container: links are not followed, only a tmpfs that the process's own
mount table knows is looked at, and the way there may lead over a file system that does not answer.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence

from trainprobe.collect.lines import lines_of
from trainprobe.collect.owners import ROOT, read_in_turn
from trainprobe.collect.procfs import SHARED_MEMORY, SMALL, Proc
from trainprobe.collect.watched import Watched
from trainprobe.model.dataclass import dataclass
from trainprobe.model.moment import NS
from trainprobe.model.sample import Leak, LimitSample, SharedSample

MOUNT_NS = 120 * NS  # and sooner where another one is seen
FILES_LIMIT = 20_000
PROCESSES = 8192
"""Of the host; with more, what is alive in a container is not looked for, and no file in it counts as left."""
YOUNG_SECONDS = 30.0  # a file's maker may be about to hand it over
LEAKS = 64
"""Dead processes of one /dev/shm that are told apart, those who left most: anybody can make files in many a name."""
ROUND_SECONDS, MAPS_SECONDS = 0.3, 0.25
"""For all of them at a time, and of it for the maps of one's processes; each user can make both slow. What is left out
comes first the next time."""
_Key = tuple[int, int]  # (pid, ticks)
_MAPPED = re.compile(rb"/(torch_[0-9]{1,10}_[0-9A-Za-z_]+)\n")
_INNERMOST = re.compile(rb"^NSpid:.*?([0-9]+)$", re.MULTILINE)
_NAME = re.compile(r"torch_([0-9]{1,10})_[0-9A-Za-z_]+")
_PLACE = "/dev/shm"


@dataclass(frozen=True, slots=True)
class _Mount:
    device: int  # st_dev
    until_ns: int


class SharedMemoryReader:
    """Reads sizes, and finds files that nobody will ever remove."""

    def __init__(self, proc: Proc) -> None:
        self._proc = proc
        self._mounts: dict[int, _Mount | None] = {}
        self._in_use: dict[_Key, frozenset[str]] = {}  # files that a process maps, the oldest reading first
        self._turn: dict[tuple[str, str], None] = {}  # what was read, the oldest first
        self._namespaces: dict[int, bytes] = {}  # of each process, in this round
        self.waiting = False
        """Whether something was left out in the latest round."""

    def limit(self, run: str, pid: int, container: str, now_ns: int, room: bytes | None = None) -> LimitSample | None:
        """How full it is; None: the process has none, or its size is not limited. ``room``: what a helper has found;
        None: it is asked."""
        found = self._space(pid, now_ns, room)
        if found is None:
            return None
        device, unit, blocks, free = found
        if not blocks:
            return None
        name = f"{os.major(device)}:{os.minor(device)}"
        return LimitSample(run, "shm", (blocks - free) * unit, blocks * unit, container or "host", name, pid)

    def samples_with_leaks(
        self, limits: Iterable[LimitSample], watched: Sequence[Watched], now: float
    ) -> tuple[SharedSample, ...]:
        """The same with what dead processes left. ``limits``: those of runs; ``watched``: processes whose files are in
        use; ``now``: UNIX time."""
        places: dict[tuple[str, str], list[LimitSample]] = {}
        for one in limits:
            if one.kind == "shm":
                places.setdefault((one.place, one.scope), []).append(one)
        devices = {one.run: place for (place, _), seen in places.items() for one in seen}
        alive = {(one.pid, one.ticks) for one in watched}
        driven = {one.run for one in watched if one.role == "driver"}
        self._in_use = {key: names for key, names in self._in_use.items() if key in alive}
        found: list[SharedSample] = []
        self._namespaces, self.waiting = {}, False

        def read(place: tuple[str, str]) -> None:
            self._turn.pop(place, None)
            self._turn[place] = None
            limit = places[place][0]
            beside = {
                (one.pid, one.ticks): one.role != "worker" or one.run not in driven
                for one in watched
                if devices.get(one.run, limit.place) == limit.place
            }
            leaks = self._leaks(limit.pid, beside, now)
            most, rest = leaks[:LEAKS], leaks[LEAKS:]
            more = len(rest), sum(leak.files for leak in rest), sum(leak.bytes for leak in rest)
            runs = tuple(one.run for one in places[place])
            found.append(SharedSample(*place, limit.limit, limit.used, tuple(most), runs, *more))

        self._turn = {place: None for place in self._turn if place in places}
        in_turn = [*(place for place in places if place not in self._turn), *self._turn]
        read_in_turn({place: self._proc.pool.owner(places[place][0].pid) for place in in_turn}, read, ROUND_SECONDS)
        self.waiting = self.waiting or len(found) < len(places)
        return tuple(found)

    def forget(self, alive: Iterable[int]) -> None:
        """Only these processes are still of interest."""
        kept = set(alive)
        self._mounts = {pid: mount for pid, mount in self._mounts.items() if pid in kept}

    def _space(self, pid: int, now_ns: int = 0, room: bytes | None = None) -> tuple[int, int, int, int] | None:
        """Device, unit, and how many of these there are and are free; None: the process has none."""
        answer = room or self._proc.ask(pid, "tmpfs", SHARED_MEMORY)
        if answer is None:
            return None
        device, unit, blocks, free = (int(word) for word in answer.split())
        mount = self._mounts.get(pid)
        if mount is None or now_ns >= mount.until_ns or mount.device != device:
            known = shared_memory_device(self._proc.mountinfo(pid) or "")
            mount = self._mounts[pid] = None if known is None else _Mount(known, now_ns + MOUNT_NS)
        return (device, unit, blocks, free) if mount is not None and mount.device == device else None

    def _leaks(self, pid: int, mapped: Mapping[_Key, bool], now: float) -> list[Leak]:
        """Of each dead process, the largest first. ``mapped``: processes, and whether a file that one may open
        counts as used until it has been read; a worker's need not, for its driver maps what others made for it."""
        files = self._torch_files(pid, now)
        alive = self._alive_beside(pid) if files else None
        dead = {name for name in files if alive is not None and _maker(name) not in alive}
        if not dead:
            return []
        owners = {key: self._proc.pool.owner(key[0]) for key in mapped}
        new = sorted((key for key in owners if key not in self._in_use), key=lambda key: not mapped[key])
        in_turn = [*new, *(key for key in self._in_use if key in owners)]
        read_in_turn({key: owners[key] for key in in_turn}, self._read_maps, MAPS_SECONDS)
        self.waiting = self.waiting or any(key not in self._in_use for key in owners)
        unread = {owner for key, owner in owners.items() if mapped[key] and key not in self._in_use}
        dead.difference_update(*(self._in_use.get(key, ()) for key in owners))
        makers: dict[int, Leak] = {}
        for name in sorted(dead):
            size, uid = files[name]
            if not unread & {ROOT, self._proc.owners.of(uid)}:
                maker = _maker(name)
                before = makers.get(maker, Leak(maker, 0, 0, name))
                makers[maker] = Leak(maker, before.files + 1, before.bytes + size, before.name)
        return sorted(makers.values(), key=lambda leak: -leak.bytes)

    def _read_maps(self, key: _Key) -> None:
        names = _MAPPED.findall(self._proc.maps(key[0]) or b"")
        self._in_use.pop(key, None)
        self._in_use[key] = frozenset(name.decode() for name in names)

    def _torch_files(self, pid: int, now: float) -> dict[str, tuple[int, int]]:
        """Size and user of each."""
        space = self._space(pid)
        listed = self._proc.ask(pid, "files", SHARED_MEMORY, FILES_LIMIT, space[0]) if space else None
        found: dict[str, tuple[int, int]] = {}
        for row in (listed or b"").decode("utf-8", "surrogateescape").split("\0"):
            name, _, rest = row.partition("/")
            if _NAME.fullmatch(name):
                changed, size, uid = (int(word) for word in rest.split())
                if now - changed >= YOUNG_SECONDS:
                    found[name] = size, uid
        return found

    def _alive_beside(self, pid: int) -> set[int] | None:
        """Processes in the same pid namespace, by the numbers that they have there."""
        wanted = self._proc.link(pid, "ns/pid").encode("utf-8", "surrogateescape")
        if not wanted:
            return None
        pids = self._proc.pids()
        if self._proc.link(1, "ns/pid").encode("utf-8", "surrogateescape") == wanted:  # that of this procfs
            return set(pids)
        if len(pids) > PROCESSES:
            return None
        self._namespaces = self._namespaces or self._proc.each(pids, "link", "ns/pid")
        beside = [other for other, namespace in self._namespaces.items() if namespace == wanted]
        found = set()
        for other, status in self._proc.each(beside, "read", "status", SMALL).items():
            innermost = _INNERMOST.search(status)
            found.add(int(innermost[1]) if innermost else other)
        return found


def shared_memory_device(mountinfo: str) -> int | None:
    """st_dev of the tmpfs that is mounted last on /dev/shm; None: it is none."""
    found = None
    for line in lines_of(mountinfo):
        if f" {_PLACE} " not in line:  # of thousands
            continue
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
