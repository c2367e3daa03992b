"""Reports on paper: what a daemon would publish, with the figures a test cares about."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, TypeVar

from trainprobe.model.cause import LOST, Cause, Phase, State
from trainprobe.model.goodput import Badput, Goodput
from trainprobe.model.report import (
    STALL_BUCKETS,
    STEP_BUCKETS,
    BlockIo,
    Cost,
    Counters,
    Exit,
    Fds,
    Gpu,
    GpuState,
    Host,
    Memory,
    Orphan,
    Rank,
    Report,
    Run,
    SharedMemory,
    Source,
    Steps,
    Workers,
)

NOW = 1_763_000_000.0


def a_rank(name: str = "0", **given: Any) -> Rank:
    """A rank that has just been seen: nothing measured yet beyond what counts from the start."""
    rank = Rank(rank=0, world_size=1, pid=4711, name=name)
    return replace(rank, **given)


def a_stepping_rank(name: str = "0", *, wall: float = 100.0, **counters: Any) -> Rank:
    """A rank with a step clock; ``counters`` are fields of Counters."""
    return a_rank(
        name,
        wall_seconds=wall,
        productive_seconds=wall / 2,
        steps=Steps(count=int(wall * 10), source="autograd", variation_ratio=0.1),
        counters=Counters(phase="train", phase_seconds={"startup": wall / 4}, **counters),
    )


Figures = TypeVar("Figures", Counters, Memory, Fds, GpuState)


def measured(found: Figures) -> Figures:
    """With a number in each figure that has none: all were measured, those of a later version too."""
    unknown = [one.name for one in fields(found) if getattr(found, one.name) is None and "str" not in str(one.type)]
    return replace(found, **dict.fromkeys(unknown, 1))


def a_busy_rank(name: str = "0", *, wall: float = 1000.0, causes: tuple[Cause, ...] = LOST) -> Rank:
    """A rank in which all that can be measured was measured, and that was stalled by all these causes."""
    by_cause = {str(cause): 1.5 + index for index, cause in enumerate(causes)}
    return a_rank(
        name,
        wall_seconds=wall,
        productive_seconds=wall / 2,
        steps=Steps(10_000, "autograd", "", 0.1, 0.2, 10.0, 0.05, 0.01),
        ledger={str(state): 10.0 for state in State},
        lost=by_cause,
        workers=Workers(started=8, ended=2, live=6),
        memory=measured(Memory(shm_bytes=1 << 30)),
        fds=measured(Fds()),
        gpus=[Gpu("GPU-1234", 0, 0.9, 3.0, {"checkpoint": 2.0})],
        counters=measured(
            Counters(
                phase_seconds={str(phase): 5.0 for phase in Phase},
                stall_seconds=by_cause,
                stalls=dict.fromkeys(by_cause, 2),
                stall_last_start=dict.fromkeys(by_cause, NOW - 50.25),
                stall_active={str(causes[0]): 1} if causes else {},
                stall_durations=[1] * (len(STALL_BUCKETS) + 1),
                stall_duration_sum=500.0,
                step_durations=[100] * (len(STEP_BUCKETS) + 1),
                step_duration_sum=900.0,
                last_step=NOW - 0.5,
                baseline_seconds=0.1,
                phase="train",
                checkpoints={"complete": 3, "error": 1, "unsafe": 0, "open": 1},
                checkpoint_bytes=1 << 32,
                checkpoint_seconds={
                    f"{operation}/{blocking}": 0.5
                    for operation in ("write", "fsync", "rename", "serialize", "other")
                    for blocking in ("true", "false")
                },
                checkpoint_last_seconds=2.5,
                checkpoint_last_bytes=1 << 30,
                log_writes=dict.fromkeys(("tensorboard", "wandb", "stdout", "log"), 7),
                log_bytes=dict.fromkeys(("tensorboard", "wandb", "stdout", "log"), 700),
                log_seconds=dict.fromkeys(("tensorboard", "wandb", "stdout", "log"), 0.7),
                worker_exits={"finished": 1, "killed": 1},
                open_fds=100,
                max_fds=1024,
                pss_bytes=5 << 30,
                swap_bytes=0,
                major_faults=12,
                reclaim_seconds=0.1,
                throttled_seconds=0.2,
                runqueue_seconds=0.3,
                fd_errors={"EMFILE": 2},
                shm_errors=1,
                shm_size_bytes=64 << 20,
                memory_exhaustion_seconds=90.0,
                fd_exhaustion_seconds=80.0,
                shm_exhaustion_seconds=70.0,
                checkpoint_available_bytes=1 << 33,
                checkpoint_files_free=1000,
            )
        ),
    )


def a_run(run: str = "train.py-3f2a91c0", *ranks: Rank, **given: Any) -> Run:
    ended = {"ranks": list(ranks) or [a_stepping_rank()], "labels": {}} | given
    return Run(run=run, command=["python", "train.py"], user=ended.pop("user", "ann"), cwd="/", **{
        "started": NOW - 100, **ended
    })  # fmt: skip


def a_report(*runs: Run, at: float = NOW, **given: Any) -> Report:
    return Report(generated=at, runs=list(runs), **given)


def a_goodput(**given: Any) -> Goodput:
    """A job's account after a failure: a hundred seconds, of which thirty were productive."""
    badput = {str(source): 7.0 for source in Badput}
    return replace(Goodput(30.0, badput, 7.0, 2, 5.0, 12.0, 7.0, earlier=dict.fromkeys(badput, 3.0)), **given)


DISK = BlockIo("vda", "write", [5, 0, 1], 0.004)


def a_full_report() -> Report:
    """Everything that this version can tell, with room for all of it."""
    rank = a_busy_rank(causes=(Cause.CHECKPOINT, Cause.DATA_CPU))
    for figures in (rank.counters.log_writes, rank.counters.log_bytes, rank.counters.log_seconds):
        for kind in ("wandb", "stdout", "log"):
            del figures[kind]
    rank.counters.log_file_bytes = {"tensorboard": 1 << 20}
    rank.counters.checkpoint_seconds = {"write/true": 0.5}
    rank.counters.phase_seconds = {"startup": 5.0, "train": 5.0}
    run = a_run(
        "train.py-3f2a91c0",
        rank,
        labels={
            "slurm_job": "77.0",
            "pod_uid": None,
            "container": "c0ffee",
            "namespace": "team-a",
            "pod": "trainer-0",
        },
        memory={"used_bytes": 6 << 30, "limit_bytes": 8 << 30, "scope": "cgroup"},
        goodput=a_goodput(),
    )
    return a_report(
        run,
        host=Host("node1", "6.1", 8, 16 << 30, 1 << 20, 1 << 30, 5, {"cpu.some": 1.0, "io.full": 2.0}, [DISK]),
        sources={"bpf": Source("up"), "nvml": Source("unavailable", "no NVIDIA driver", "")},
        events_lost=3,
        events_lost_by={"ring": 3},
        shared_memory=[SharedMemory("0:25", "host", 1 << 20, 64 << 20, 4096)],
        gpus=[
            GpuState(
                0,
                "GPU-1234",
                0.9,
                1 << 30,
                1 << 36,
                300.0,
                70.0,
                10**9,
                1000,
                2000,
                {"hw_thermal": 3.0},
                {"xid/79": 1},
                tensor_active=0.4,
            )
        ],
        orphans=[Orphan(99, "pt_data_worker", 1 << 28, None, 2)],
        cost=Cost(1.5, 40 << 20, 0.25, 0.001, {"sched_switch": 1000}),
    )


def ended_rank(name: str = "0", **given: Any) -> Rank:
    return replace(a_busy_rank(name), exit=Exit(0, None), **given)
