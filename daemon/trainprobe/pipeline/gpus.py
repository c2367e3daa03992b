"""The host's GPUs for the report: their counters, and which rank uses which, by who holds memory on it."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import field

from trainprobe.causes.registry import SPECS
from trainprobe.causes.situation import GpuFault
from trainprobe.model.dataclass import dataclass
from trainprobe.model.event import GpuXid
from trainprobe.model.message import template
from trainprobe.model.moment import NS
from trainprobe.model.report import Bound, Gpu, GpuState
from trainprobe.model.sample import GpuHolder, GpuSample, LimitSample
from trainprobe.pipeline.rank.state import RankState
from trainprobe.pipeline.stalls import StallBook, StallEntry

BUSY_FOR = template("bound.gpu_busy", "GPUs are busy for {share:percent} of the time")
SHARED_BY = template("bound.gpu_shared", "other programs compute on its GPUs, too")
BOTH = template("bound.both", "{first}; {second}")
LONGEST_NS = 10 * NS  # a pause between two readings beyond which nothing is known of the time between
SETTLED_NS = 3 * NS  # by then a stall has opened or closed: idle time gets its cause
END_NS = 1 << 63  # later than any reading
FAULTS = 100
BUSY = 0.8  # of a second: the host's stall did not stop the GPU
SHARED = 0.05  # another program's use of a GPU from which on it is not told whose work keeps it busy
INPUT_BELOW, COMPUTE_ABOVE = 0.8, 0.95  # mean utilisation


@dataclass(slots=True)
class _Seen:
    latest: GpuSample
    throttled_ns: dict[str, int] = field(default_factory=dict)
    errors: dict[tuple[str, str], int] = field(default_factory=dict)  # (kind, code)
    ecc: int | None = None


@dataclass(slots=True)
class GpuTable:
    """All GPUs of the host, by index."""

    seen: dict[int, _Seen] = field(default_factory=dict)
    faults: list[GpuFault] = field(default_factory=list)  # of the present frame

    def add_sample(self, sample: GpuSample, at_ns: int) -> None:
        known = self.seen.get(sample.index)
        was_lost = known is not None and known.latest.lost
        known = self.seen.setdefault(sample.index, _Seen(sample))
        if sample.lost and not was_lost:
            self._lost(known, sample, at_ns)
        if sample.ecc_errors is not None:
            if known.ecc is not None and sample.ecc_errors > known.ecc:
                more = str(sample.ecc_errors - known.ecc)
                self._fault(known, GpuFault(at_ns, sample.index, sample.uuid, sample.bus_id, "ecc", more))
            known.ecc = sample.ecc_errors
        for reason in sample.reasons or ():
            known.throttled_ns[reason] = known.throttled_ns.get(reason, 0) + span_ns(sample)
        known.latest = sample

    def add_xid(self, event: GpuXid) -> None:
        for index, known in self.seen.items():
            if same_bus(known.latest.bus_id, event.bus_id):
                uuid, bus = known.latest.uuid, known.latest.bus_id
                self._fault(known, GpuFault(event.at_ns, index, uuid, bus, "xid", str(event.code), event.text))

    def states(self) -> list[GpuState]:
        return [_state(known) for _, known in sorted(self.seen.items())]

    def _lost(self, known: _Seen, sample: GpuSample, at_ns: int) -> None:
        uuid, bus = sample.uuid or known.latest.uuid, sample.bus_id or known.latest.bus_id
        self._fault(known, GpuFault(at_ns, sample.index, uuid, bus, "lost"))

    def _fault(self, known: _Seen, fault: GpuFault) -> None:
        key = (fault.kind, fault.code if fault.kind == "xid" else "")
        known.errors[key] = known.errors.get(key, 0) + (int(fault.code) if fault.kind == "ecc" else 1)
        self.faults.append(fault)
        del self.faults[:-FAULTS]


@dataclass(slots=True)
class RankGpus:
    """The GPUs whose memory a rank's processes hold, and how busy they were."""

    index: dict[str, int] = field(default_factory=dict)  # by uuid
    busy_ns: dict[str, float] = field(default_factory=dict)
    seen_ns: dict[str, int] = field(default_factory=dict)
    idle_ns: dict[tuple[str, str], float] = field(default_factory=dict)  # (uuid, cause)
    holders: dict[str, Sequence[GpuHolder]] = field(default_factory=dict)
    shared: set[str] = field(default_factory=set)  # uuids: other programs computed there, too
    _waiting: deque[GpuSample] = field(default_factory=lambda: deque(maxlen=600))
    _latest: dict[str, float] = field(default_factory=dict)  # utilisation by uuid
    _busy: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=900))  # all of them were busy
    _given_ns: int = 0  # stalls up to here have given their busy time back

    def add_sample(self, sample: GpuSample, rank: RankState) -> None:
        """A reading of any GPU; it counts where a process of the rank holds memory of it."""
        own = {holder.pid for holder in sample.holders or () if rank.lives.workers.owns(holder.pid)}
        if not sample.uuid or not own:
            return
        shared = any(holder.pid not in own and _computes(holder) for holder in sample.holders or ())
        if shared:
            self.shared.add(sample.uuid)
        self.index[sample.uuid] = sample.index
        self.holders[sample.uuid] = sample.holders or ()
        rank.surroundings.gpu_pace.add_sample(sample)
        spent = span_ns(sample)
        if sample.utilization is None or not spent:
            return
        self.busy_ns[sample.uuid] = self.busy_ns.get(sample.uuid, 0.0) + sample.utilization * spent
        self.seen_ns[sample.uuid] = self.seen_ns.get(sample.uuid, 0) + spent
        rank.surroundings.gpu_ns = sum(self.busy_ns.values()), sum(self.seen_ns.values())
        rank.surroundings.gpu_seen_ns = max(self.seen_ns.values())
        self._waiting.append(sample)
        self._latest[sample.uuid] = 0.0 if shared else sample.utilization
        if all(busy >= BUSY for busy in self._latest.values()):
            start = max(sample.since_ns, self._busy[-1][1]) if self._busy else sample.since_ns
            self._busy.append((start, max(start, sample.at_ns)))
            rank.surroundings.gpu_worked_ns += max(0, sample.at_ns - start)

    def settle(self, rank: RankState, now_ns: int) -> None:
        """Idle time inside of stalls goes to their causes, once it is known what they were."""
        while self._waiting and self._waiting[0].at_ns <= now_ns - SETTLED_NS:
            sample = self._waiting.popleft()
            spent = span_ns(sample)
            idle = (1 - (sample.utilization or 0.0)) * spent
            found = _stalled(rank, sample.since_ns, sample.at_ns)
            if not found and 0 < rank.progress.first_boundary_ns <= sample.since_ns:
                rank.surroundings.gpu_in_ordinary.add(spent - idle, spent)
            for cause, stalled in found:
                part = min(idle, stalled)
                if part > 0:
                    key = (sample.uuid, cause)
                    self.idle_ns[key] = self.idle_ns.get(key, 0.0) + part
                    idle -= part

    def end(self, rank: RankState) -> None:
        """The rank has ended: it is known what all its stalls were."""
        self.settle(rank, END_NS)
        self.give_back(rank, END_NS)

    def give_back(self, rank: RankState, now_ns: int) -> None:
        """Time of finished stalls in which the GPUs worked on is not lost: it is productive again."""
        for entry in rank.stalls.entries[-16:]:
            if entry.end_ns is None or not self._given_ns < entry.end_ns <= now_ns - SETTLED_NS:
                continue
            start = max(entry.start_ns, self._given_ns)
            busy = sum(max(0, min(b, entry.end_ns) - max(a, start)) for a, b in self._busy)
            self._given_ns = entry.end_ns
            _shorten(rank.stalls, entry, busy)

    def report(self) -> list[Gpu]:
        """The rank's ``gpus`` in the report."""
        found = []
        for uuid, index in sorted(self.index.items(), key=lambda pair: pair[1]):
            seen = self.seen_ns.get(uuid, 0)
            mean = self.busy_ns[uuid] / seen if seen else None
            idle = (seen - self.busy_ns[uuid]) / NS if seen else None
            causes = {cause: ns / NS for (one, cause), ns in self.idle_ns.items() if one == uuid}
            found.append(Gpu(uuid, index, mean, idle, causes))
        return found


def _computes(holder: GpuHolder) -> bool:
    """Whether a process uses the GPU, so far as the driver tells: one that only holds memory leaves it alone."""
    return holder.utilization is None or holder.utilization >= SHARED


def bound_by(gpus: Sequence[Gpu], host: Bound, shared: Collection[str] = ()) -> Bound:
    """What sets the pace, where GPUs tell; otherwise what the host's side said. ``shared``: uuids of those that other
    programs keep busy, too."""
    if any(gpu.uuid in shared for gpu in gpus):
        return Bound.of(host.by, BOTH(first=host.message, second=SHARED_BY()) if host.message else SHARED_BY())
    told = [gpu.utilization_mean for gpu in gpus if gpu.utilization_mean is not None]
    if not told:
        return host
    mean = sum(told) / len(told)
    busy = BUSY_FOR(share=mean)
    if mean > COMPUTE_ABOVE:
        return Bound.of("compute", busy)
    if mean < INPUT_BELOW and host.by in ("input", "mixed"):
        return Bound.of("input", BOTH(first=busy, second=host.message))
    return Bound.of(host.by, BOTH(first=host.message, second=busy) if host.message else busy)


def _shorten(book: StallBook, entry: StallEntry, busy_ns: float) -> None:
    mine = {cause: ns for cause, ns in entry.shares.items() if not SPECS[cause].gpu_works}
    total = sum(mine.values())
    factor = min(1.0, busy_ns / total) if total > 0 else 0.0
    for cause, ns in mine.items():
        entry.shares[cause] = ns * (1 - factor)
        book.seconds[cause] = max(0.0, book.seconds.get(cause, 0.0) - ns * factor)
    book.changed(entry)
    entry.ns -= total * factor
    entry.given_ns += total * factor
    book.given_back += entry.given_back


def faults_of(gpus: RankGpus | None, faults: Sequence[GpuFault]) -> list[GpuFault]:
    return [fault for fault in faults if gpus is not None and fault.uuid in gpus.index]


def memory_of(sample: GpuSample) -> LimitSample | None:
    """A GPU's memory as something that runs out; None where it is not told."""
    if not sample.uuid or sample.memory_used_bytes is None or not sample.memory_total_bytes:
        return None
    return LimitSample("", "gpu", sample.memory_used_bytes, sample.memory_total_bytes, str(sample.index), sample.uuid)


def span_ns(sample: GpuSample) -> int:
    """The time that a reading speaks for."""
    spent = sample.at_ns - sample.since_ns
    return spent if sample.since_ns and 0 < spent <= LONGEST_NS else 0


def same_bus(nvml: str, kernel: str) -> bool:
    """NVML writes 00000000:3B:00.0, the kernel log 0000:3b:00."""
    return bool(nvml) and nvml.lower().partition(".")[0].lstrip("0") == kernel.lower().partition(".")[0].lstrip("0")


def _stalled(rank: RankState, start_ns: int, end_ns: int) -> list[tuple[str, float]]:
    """Causes of the stalls in an interval, with their part of it; an entry of several steps has pauses between them."""
    found = []
    opened = [rank.stalls.open] if rank.stalls.open is not None else []
    for entry in [*rank.stalls.entries[-16:], *opened]:
        until = entry.end_ns if entry.end_ns is not None else end_ns
        overlap = min(end_ns, until) - max(start_ns, entry.start_ns)
        if overlap > 0:
            dense = 1.0 if entry.end_ns is None else min(1.0, entry.ns / (entry.end_ns - entry.start_ns))
            found.append((entry.cause.value, overlap * dense))
    return found


def _state(known: _Seen) -> GpuState:
    g = known.latest
    return GpuState(
        g.index,
        g.uuid,
        g.utilization,
        g.memory_used_bytes,
        g.memory_total_bytes,
        g.power_watts,
        g.temperature_celsius,
        g.sm_clock_hertz,
        g.pcie_receive_bytes_per_second,
        g.pcie_transmit_bytes_per_second,
        {reason: ns / NS for reason, ns in known.throttled_ns.items()},
        {f"{kind}/{code}": count for (kind, code), count in known.errors.items()},
        "lost" if g.lost else "hung" if g.hung else "up",
        list(g.missing),
        g.mig,
        g.tensor_active,
    )
