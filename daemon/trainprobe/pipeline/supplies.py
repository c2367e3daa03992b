"""How full the limits of a run are, and when the next one is reached."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from trainprobe.causes.situation import Key, MemoryGrowth, used_share
from trainprobe.derive.trend.forecast import Forecast, GrowthSeries, forecast
from trainprobe.model.dataclass import dataclass
from trainprobe.model.moment import NS
from trainprobe.model.sample import LimitSample, ProcessSample

SOON_NS = NS // 2  # while something is read more often than each second: it fills up
STALE_NS = 45 * NS  # a limit that is no longer read is of a process that is gone
FOLLOWED = 4  # cgroups of a run and kind, the fullest: each keeps 22 KB of its past
WORTH = 0.1  # of a limit: what uses less is not followed
FULLER = 0.02  # of its limit a cgroup uses more than one that is followed does: it takes that one's place
GROWTH_SECONDS = 180.0
PSS_SECONDS = 60.0


@dataclass(slots=True)
class RoleMemory:
    """Memory of all processes of one role, over time. Proportional memory is read rarely: at first, growth is
    that of resident memory."""

    processes: int = 0
    bytes: int = 0
    pss: GrowthSeries = field(default_factory=GrowthSeries)
    rss: GrowthSeries = field(default_factory=GrowthSeries)
    private: GrowthSeries = field(default_factory=GrowthSeries)

    def add(self, at: float, held: Sequence[ProcessSample]) -> None:
        pss = [p.pss_bytes for p in held if p.pss_bytes is not None]
        self.processes = len(held)
        self.bytes = sum(pss) if pss else sum(p.rss_bytes or 0 for p in held)
        self.rss.add(at, sum(p.rss_bytes or 0 for p in held))
        if pss:
            self.pss.add(at, sum(pss))
            self.private.add(at, sum(p.private_bytes or 0 for p in held))

    def growth(self, role: str) -> MemoryGrowth:
        """Bytes a second."""
        pss = self.pss.slope(GROWTH_SECONDS)
        slope = pss if pss is not None and self.pss.seconds >= PSS_SECONDS else self.rss.slope(GROWTH_SECONDS)
        return MemoryGrowth(role, self.processes, self.bytes, slope, self.private.slope(GROWTH_SECONDS))


@dataclass(slots=True)
class Supplies:
    """The latest sample of each limit, and the forecasts that their series allow."""

    latest: dict[Key, LimitSample] = field(default_factory=dict)
    forecasts: dict[Key, Forecast] = field(default_factory=dict)
    container: str | None = None  # that the driver is in: a command may enter one after it was started
    hasty: bool = False  # something is read so often that it must be judged as often
    _series: dict[Key, GrowthSeries] = field(default_factory=dict)
    _seen_ns: dict[Key, int] = field(default_factory=dict)

    def add_limit(self, sample: LimitSample, at_ns: int) -> None:
        key = (sample.kind, sample.place, sample.pid if sample.kind == "fds" else 0)
        if sample.kind == "shm" and key not in self.latest:  # it has mounted another one
            for other in [other for other in self.latest if other[0] == "shm"]:
                self._forget(other)
        if sample.kind == "shm" and sample.scope not in ("", "host"):
            self.container = sample.scope
        self.latest[key] = sample
        self._seen_ns[key] = at_ns
        series = self._series.get(key)
        if series is None:
            if sample.used < WORTH * sample.limit:
                return
            if sample.scope == "cgroup" and len(self._levels(sample.kind, followed=True)) >= FOLLOWED:
                return
            series = self._series[key] = GrowthSeries()
        self.hasty = self.hasty or (series.last is not None and at_ns / NS - series.last.at <= SOON_NS / NS)
        series.add(at_ns / NS, sample.used)

    def _levels(self, kind: str, *, followed: bool) -> list[Key]:
        """Cgroups whose limits are followed, or are not; the fullest last."""
        keys = [key for key, one in self.latest.items() if key[0] == kind and one.scope == "cgroup"]
        return sorted(
            (key for key in keys if (key in self._series) == followed), key=lambda key: used_share(self.latest[key])
        )

    def _follow_fullest(self) -> None:
        """Of more cgroups than are followed the fullest. Asked when all have been read: before, those that are read
        first have grown more than the others."""
        for kind in {kind for kind, *_ in self._series}:
            fullest = reversed(self._levels(kind, followed=False))
            for least, other in zip(self._levels(kind, followed=True), fullest):
                sample = self.latest[other]
                if used_share(sample) < used_share(self.latest[least]) + FULLER:
                    break
                del self._series[least]
                self._series[other] = GrowthSeries()
                self._series[other].add(self._seen_ns[other] / NS, sample.used)

    def forecast(self, now_ns: int, started: float | None) -> None:
        """Look ahead, when all limits have been read; ``started``: when all ranks had begun to step, in seconds."""
        self.hasty = False
        for key in [key for key, seen in self._seen_ns.items() if now_ns - seen > STALE_NS]:
            self._forget(key)
        self._follow_fullest()
        self.forecasts = {
            key: found
            for key, series in self._series.items()
            if (sample := self.latest.get(key)) and (found := forecast(series, sample.limit, started)) is not None
        }

    def _forget(self, key: Key) -> None:
        for known in (self._seen_ns, self.latest, self._series, self.forecasts):
            known.pop(key, None)

    def memory(self) -> list[LimitSample]:
        return [sample for key, sample in self.latest.items() if key[0] == "memory"]

    def memory_of(self, scope: str, group: str) -> LimitSample | None:
        fitting = [sample for sample in self.memory() if sample.scope == scope]
        named = [s for s in fitting if group and (s.place.endswith(group) or group.endswith(s.place))]
        return max(named or fitting, key=used_share, default=None)

    def shm(self) -> LimitSample | None:
        return next((one for key, one in self.latest.items() if key[0] == "shm"), None)
