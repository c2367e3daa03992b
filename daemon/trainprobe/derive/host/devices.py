"""The host's devices lately: disks that moved bytes or not, processors and who uses them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import field

from trainprobe.model.dataclass import dataclass
from trainprobe.model.event import HostStoodStill
from trainprobe.model.message import Message, template
from trainprobe.model.moment import NS
from trainprobe.model.sample import DiskSample, RivalSample

LOOKS, STANDSTILLS = 64, 256  # kept
DEVICE = template("device", "device {name}: {rate:MB/s}{busy}{rotating}")
BUSY = template("device.busy", ", busy for {share:percent}")
ROTATING = template("device.rotating", ", rotating")


@dataclass(slots=True)
class Device:
    """One device between its last two samples. Rates in bytes per second; times in ns."""

    sample: DiskSample
    read_ns: int  # a sample first showed that bytes had been read; `write_ns` the same for writing
    write_ns: int
    read_rate: float | None = None
    write_rate: float | None = None
    busy_share: float | None = None

    @property
    def name(self) -> str:
        return self.sample.device

    def message(self) -> Message:
        busy = None if self.busy_share is None else BUSY(share=self.busy_share)
        rate = max(self.read_rate or 0.0, self.write_rate or 0.0)
        return DEVICE(name=self.name, rate=rate, busy=busy, rotating=ROTATING() if self.sample.rotational else None)


@dataclass(slots=True)
class Devices:
    """All devices of the host, by st_dev in the kernel's form."""

    at_ns: int = 0  # the last sample
    cpus: int = 0  # of the host; 0: not known yet
    rivals: deque[tuple[int, tuple[RivalSample, ...]]] = field(default_factory=lambda: deque(maxlen=LOOKS))
    """The busiest processes at the last looks, with their times."""
    stolen: float | None = None  # part of the processors that the hypervisor took between the last two samples
    crowded: float | None = None  # part of the time between them in which some task of the host waited for a CPU
    standstills: deque[HostStoodStill] = field(default_factory=lambda: deque(maxlen=STANDSTILLS))
    """When processors did not run; no two of one overlap."""
    _steal: tuple[int, int] | None = None
    _waited: tuple[float, int] | None = None
    _known: dict[int, Device] = field(default_factory=dict)

    def add_sample(self, disks: Sequence[DiskSample], at_ns: int) -> None:
        spent = (at_ns - self.at_ns) / NS
        known: dict[int, Device] = {}
        for disk in disks:
            before = self._known.get(disk.dev)
            if before is None:
                known[disk.dev] = Device(disk, at_ns, at_ns)
                continue
            read, written = disk.read_bytes - before.sample.read_bytes, disk.write_bytes - before.sample.write_bytes
            known[disk.dev] = Device(
                disk,
                at_ns if read else before.read_ns,
                at_ns if written else before.write_ns,
                max(0, read) / spent if spent > 0 else None,
                max(0, written) / spent if spent > 0 else None,
                min(1.0, (disk.busy_ms - before.sample.busy_ms) / 1000 / spent) if spent > 0 else None,
            )
        self._known, self.at_ns = known, at_ns

    def feed_steal(self, steal_ns: int | None, at_ns: int) -> None:
        before, self._steal = self._steal, None if steal_ns is None else (steal_ns, at_ns)
        if before is not None and steal_ns is not None and at_ns > before[1] and self.cpus:
            self.stolen = max(0, steal_ns - before[0]) / (at_ns - before[1]) / self.cpus

    @property
    def are_shared(self) -> bool:
        """Whether a hypervisor ever took a processor, as the kernel counts it."""
        return self._steal is not None and self._steal[0] > 0

    def stood_still_ns(self, start_ns: int, end_ns: int) -> int:
        """For how long, between two moments, half of the processors or more did not run: one of many stands still
        while the training runs on another."""
        edges = []
        for one in self.standstills:
            begin, end = max(one.at_ns - one.ns, start_ns), min(one.at_ns, end_ns)
            edges += [(begin, 1), (end, -1)] if begin < end else []
        stood = standing = since = 0
        for at_ns, more in sorted(edges):
            stood += at_ns - since if 2 * standing >= max(1, self.cpus) else 0
            standing, since = standing + more, at_ns
        return stood

    def feed_pressure(self, waited: float | None, at_ns: int) -> None:
        """``waited``: for how many seconds some task has waited for a CPU, as the kernel counts it (PSI)."""
        before, self._waited = self._waited, None if waited is None else (waited, at_ns)
        if before is not None and waited is not None and at_ns > before[1]:
            self.crowded = min(1.0, max(0.0, waited - before[0]) * NS / (at_ns - before[1]))

    def feed_rivals(self, rivals: tuple[RivalSample, ...], at_ns: int) -> None:
        self.rivals.append((at_ns, rivals))

    def rivals_at(self, start_ns: int) -> tuple[RivalSample, ...]:
        """Those of the last look; empty where none was read since a moment."""
        return self.rivals[-1][1] if self.rivals and self.rivals[-1][0] >= start_ns else ()

    def rivals_at_most(self, start_ns: int, own: Callable[[int], bool]) -> tuple[RivalSample, ...]:
        """Those of the look since a moment at which processes that are not one's ``own`` used most; empty as above."""
        looks = (rivals for at_ns, rivals in self.rivals if at_ns >= start_ns)
        return max(looks, key=lambda rivals: sum(one.cpus for one in rivals if not own(one.pid)), default=())

    def of(self, dev: int) -> Device | None:
        """None: no block device, or one that never did anything."""
        return self._known.get(dev)

    def still_ns(self, dev: int, since_ns: int, *, writing: bool) -> int | None:
        """For how long, since ``since_ns`` and up to the last sample, it has moved no byte in that direction.

        None: it is not known, or was not read since.
        """
        device = self._known.get(dev)
        if device is None or self.at_ns <= since_ns:
            return None
        return max(0, self.at_ns - max(since_ns, device.write_ns if writing else device.read_ns))
