"""What the exporters of many hosts serve: reports on paper, rendered by the exporter's own code, named anew per host.

Hosts are in cohorts. The runs of a cohort begin and end together and lose their time alike, so one rendering for each
cohort and scrape interval serves all of its hosts; names of runs, ranks, users and devices differ from host to host.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import cast

from tests.unit.exporters.reports import DISK, a_busy_rank, a_report, a_run, measured
from trainprobe import __version__
from trainprobe.model.cause import LOST, Cause, State
from trainprobe.model.goodput import Badput, Goodput
from trainprobe.model.moment import NS, Moment
from trainprobe.model.report import Cost, Counters, Gpu, GpuState, Host, Rank, Report, Run, SharedMemory, Source
from trainprobe_exporters.exposition import Format
from trainprobe_exporters.families import RUN_LINGER_SECONDS, SeriesTable
from trainprobe_exporters.publication import Publication
from trainprobe_exporters.source import SnapshotReader, SnapshotState

RANKS = 8
USERS = 20
STARTUP_SECONDS = 20.0
SOURCES = ("bpf", "daemon", "disks", "gpu", "kernel_log", "memory", "nvml", "pressure", "processes", "python_stack")
_C = Cause


@dataclass(frozen=True)
class Cohort:
    """Runs on ``hosts`` hosts each. ``lost``: share of the time by cause. ``late``: rank 3 of its first host is."""

    hosts: int
    lost: Mapping[Cause, float]
    late: bool = False


COHORTS = (
    Cohort(1, dict.fromkeys(LOST, 0.01)),  # the most series that a rank can have
    Cohort(1, {_C.DATA_CPU: 0.12, _C.GC_PAUSE: 0.02}),
    Cohort(1, {_C.CHECKPOINT: 0.01}),
    Cohort(2, {_C.CHECKPOINT: 0.04, _C.COLLECTIVE_WAIT: 0.03}),
    Cohort(2, {_C.DATA_STORAGE: 0.6, _C.COLLECTIVE_WAIT: 0.05}),
    Cohort(4, {_C.COLLECTIVE_WAIT: 0.2, _C.LOGGING: 0.01}, late=True),
    Cohort(8, {_C.CHECKPOINT: 0.02, _C.SWAP: 0.01, _C.UNKNOWN: 0.005}),
    Cohort(8, {_C.COLLECTIVE_WAIT: 0.3}, late=True),
    Cohort(16, {_C.CHECKPOINT: 0.03, _C.NETWORK: 0.04, _C.COLLECTIVE_WAIT: 0.02}),
    Cohort(32, {_C.CHECKPOINT: 0.02, _C.GPU_THROTTLE: 0.02, _C.COLLECTIVE_WAIT: 0.06}, late=True),
)
LATE_RANK, LATE_CAUSE = 3, Cause.DATA_INLINE


@dataclass(frozen=True)
class Place:
    """A host's place: its cohort, its run among those of the cohort, and its number among the run's hosts."""

    cohort: int
    run: int
    number: int


def place_of(host: int) -> Place:
    index, cohort = divmod(host, len(COHORTS))
    return Place(cohort, *divmod(index, COHORTS[cohort].hosts))


def run_name(place: Place, launch: int) -> str:
    return f"train.py-{zlib.crc32(f'{place.cohort}/{place.run}/{launch}'.encode()):08x}"


def user_of(place: Place) -> str:
    return f"user{(place.run * len(COHORTS) + place.cohort) % USERS:02d}"


class _Exporter:
    """The exporter's own publication, without its process: what it reads is handed to it."""

    errors, read_seconds = 0, 0.001

    def __init__(self) -> None:
        self._report, self._now = Report(), 0.0
        reader = cast(SnapshotReader, self)
        self._publication = Publication(reader, SeriesTable(), __version__, lambda: self._moment)

    def metrics(self, report: Report, now: float) -> bytes:
        self._report, self._now = report, now
        return self._publication.metrics(Format.TEXT, compressed=False)

    def read(self, at: Moment) -> SnapshotState:
        del at
        return SnapshotState(self._report, is_new=True, problem="", now=self._now)

    @property
    def _moment(self) -> Moment:
        return Moment(int(self._now * NS), int(self._now * NS))


@dataclass
class Fleet:
    """The texts of all hosts at any time. ``life_seconds`` after its launch a run ends and the next one begins."""

    began: float
    life_seconds: float
    interval: float
    _texts: dict[tuple[int, bool], tuple[int, bytes]] = field(default_factory=dict)
    _exporters: dict[tuple[int, bool], _Exporter] = field(default_factory=dict)

    def text(self, host: int, now: float) -> bytes:
        place = place_of(host)
        late = COHORTS[place.cohort].late and place.number == 0
        text = self._rendered((place.cohort, late), now)
        launch = self._launch(place.cohort, now)[0]
        for each in (launch - 1, launch):
            text = text.replace(_run_token(each).encode(), run_name(place, each).encode())
        for rank in range(RANKS if place.number else 0):
            text = text.replace(f'rank="{rank}"'.encode(), f'rank="{place.number * RANKS + rank}"'.encode())
        return text.replace(b"hhhhhhhh", f"{host:08x}".encode()).replace(b'"uuuu"', f'"{user_of(place)}"'.encode())

    def _launch(self, cohort: int, now: float) -> tuple[int, float]:
        """Which launch of a cohort lives, and since when. They do not all end at once; the first began before."""
        shift = self.life_seconds * (cohort + 1) / len(COHORTS)
        launch, age = divmod(now - self.began + shift, self.life_seconds)
        return int(launch), now - age

    def _rendered(self, which: tuple[int, bool], now: float) -> bytes:
        window = int(now // self.interval)
        known = self._texts.get(which)
        if known is None or known[0] != window:
            exporter = self._exporters.setdefault(which, _Exporter())
            self._texts[which] = known = (window, exporter.metrics(self._report(which, now), now))
        return known[1]

    def _report(self, which: tuple[int, bool], now: float) -> Report:
        launch, since = self._launch(which[0], now)
        runs = [_run(which, launch, since, now)]
        if launch and now - since < RUN_LINGER_SECONDS:
            runs.append(replace(_run(which, launch - 1, since - self.life_seconds, since), ended=since))
        return _of_host(runs, now, now - self.began)


def _run_token(launch: int) -> str:
    return f"train.py-launch{launch:02d}"


def _run(which: tuple[int, bool], launch: int, since: float, now: float) -> Run:
    cohort, late = COHORTS[which[0]], which[1]
    age = max(now - since, 0.0)
    everything = len(cohort.lost) == len(LOST)
    ranks = [_rank(number, age, cohort, is_late=late and number == LATE_RANK) for number in range(RANKS)]
    if not everything:
        for rank in ranks:
            rank.counters.shm_exhaustion_seconds = rank.counters.fd_exhaustion_seconds = None
            rank.counters.memory_exhaustion_seconds = None
    goodput = _goodput(age, sum(cohort.lost.values()))
    return a_run(
        _run_token(launch),
        *ranks,
        started=since,
        user="uuuu",
        labels={
            "slurm_job": f"{which[0]}{launch}.0",
            "container": "hhhhhhhh",
            "namespace": "team",
            "pod": "p-hhhhhhhh",
        },
        memory={"used_bytes": 600 << 30, "limit_bytes": 1 << 40, "scope": "cgroup"},
        goodput=goodput,
    )


def _goodput(age: float, lost_share: float) -> Goodput:
    start, rest = min(age, STARTUP_SECONDS), max(age - STARTUP_SECONDS, 0.0)
    shares = {Badput.DATA_LOADING: 0.3, Badput.CHECKPOINT_SAVE: 0.3, Badput.EVALUATION: 0.2, Badput.OTHER: 0.2}
    badput = {str(source): part * lost_share * rest for source, part in shares.items()}
    badput |= {str(Badput.STARTUP): start / 2, str(Badput.TRAINING_PREP): start / 2}
    badput |= {str(source): 0.0 for source in Badput if str(source) not in badput}
    return Goodput(rest * (1 - lost_share), badput, 0.0, 1, None, STARTUP_SECONDS, 2.0)


def _rank(number: int, age: float, cohort: Cohort, *, is_late: bool) -> Rank:
    shares = {LATE_CAUSE: 0.25} if is_late else cohort.lost
    train = max(age - STARTUP_SECONDS, 0.0)
    lost = {str(cause): round(share * train, 6) for cause, share in shares.items()}
    rank = a_busy_rank(str(number), wall=age, causes=tuple(shares))
    steps = int(train * 4)
    counters: Counters = replace(
        rank.counters,
        phase="train" if train else "startup",
        phase_seconds={"startup": min(age, STARTUP_SECONDS), "train": train},
        stall_seconds=lost,
        stalls={cause: int(seconds) for cause, seconds in lost.items()},
        stall_active={},
        stall_last_start=dict.fromkeys(lost, 1700000000.0 + train // 60 * 60),
        step_durations=[steps // 15] * len(rank.counters.step_durations),
        step_duration_sum=train,
        stall_durations=[int(train / 20)] * len(rank.counters.stall_durations),
        stall_duration_sum=sum(lost.values()),
        checkpoints={"complete": int(train / 300), "error": 0, "unsafe": 0, "open": 0},
        checkpoint_bytes=int(train / 300) << 34,
        runqueue_seconds=train * 0.001,
        worker_exits={"finished": int(train / 300)},
        fd_errors={},
        shm_errors=0,
        major_faults=int(train / 100),
    )
    share = {str(state): 0.01 for state in State} | {str(State.COMPUTE): 0.5}
    share["collective"] = 0.0 if is_late else shares.get(Cause.COLLECTIVE_WAIT, 0.0)
    return replace(
        rank,
        rank=number,
        productive_seconds=train - sum(lost.values()),
        lost=lost,
        ledger={state: part * age for state, part in share.items()},
        steps=replace(rank.steps, count=steps),
        gpus=[Gpu(f"GPU-hhhhhhhh-{number}", number, 0.9, 3.0, {"checkpoint": train * 0.001})],
        counters=replace(counters, last_step=1.7e9 + steps / 4),
    )


def _of_host(runs: list[Run], now: float, age: float) -> Report:
    """A whole report; what belongs to the host grows with ``age``."""
    gpus = [
        replace(
            measured(GpuState(number, f"GPU-hhhhhhhh-{number}", throttled_seconds={"hw_thermal": age * 0.01})),
            errors={},
        )
        for number in range(RANKS)
    ]
    return a_report(
        *runs,
        at=now,
        private_labels=True,
        host=Host(
            "hhhhhhhh", "6.1", 128, 2 << 40, 0, 1 << 34, 5,
            {f"{what}.{kind}": age * 0.01 for what in ("cpu", "memory", "io") for kind in ("some", "full")},
            [replace(DISK, device=f"nvme{disk}n1", operation=operation)
             for disk in range(2) for operation in ("read", "write")],
        ),
        sources={name: Source("up") for name in SOURCES},
        events_lost_by={"ring": 0},
        shared_memory=[SharedMemory("0:25", "host", 1 << 30, 1 << 40, 0)],
        gpus=gpus,
        cost=Cost(age * 0.001, 40 << 20, age * 0.0005, 0.001, {"sched_switch": int(age * 1000)}),
    )  # fmt: skip
