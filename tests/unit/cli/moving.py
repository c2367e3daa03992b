"""Reports of trainings that go on, as a daemon would publish them second by second."""

from __future__ import annotations

from tests.unit.cli import reports
from trainprobe.model.report import (
    Counters,
    Gpu,
    Host,
    Memory,
    Rank,
    Report,
    Run,
    Stall,
    Steps,
    Verdict,
    Warning_,
    Workers,
)

SPEED = 8.0  # steps a second while nothing stalls
BEFORE = 100.0  # seconds of training before the first report


def moving(at: float, runs: int = 3, start: float = reports.START) -> Report:
    """``at`` seconds after ``start``. The first run stalls in each second half of ten seconds, on storage."""
    made = [_run(number, at, start) for number in range(runs)]
    return Report(generated=start + at, host=Host("gpu-7", "6.1", 32, 64_000_000_000, 0, 8_000_000_000), runs=made)


def lost_until(at: float) -> float:
    """Seconds that the first run lost."""
    rounds, rest = divmod(at, 10.0)
    return rounds * 5.0 + max(0.0, rest - 5.0)


def _run(number: int, at: float, start: float) -> Run:
    lost = lost_until(at) if number == 0 else 0.0
    trained = BEFORE + at - lost
    rank = Rank(
        0, 1, 4711 + number,
        wall_seconds=BEFORE + at + 5.0,
        productive_seconds=trained,
        verdict=Verdict("stall", "data_storage", lost, lost / (BEFORE + at + 5.0), "reading data from slow storage"),
        steps=Steps(int(trained * SPEED), "autograd", "", 1 / SPEED, 0.2, trained * SPEED / (BEFORE + at)),
        ledger={"compute": trained, "data_wait": lost},
        lost={"data_storage": lost} if lost else {},
        workers=Workers(4, 0, 4),
        memory=Memory(21_000_000_000, 23_000_000_000, 0, 800_000_000, None, 46_000_000_000, "cgroup"),
        gpus=[Gpu("GPU-1", 0, 0.71, 80.0)] if number == 0 else [],
        warnings=[Warning_("fd_exhaustion", start, 4000.0, "open files grow by 12 a minute, the limit is 1024")],
        counters=Counters(phase_seconds={"startup": 5.0}, phase="train", open_fds=812, max_fds=1024),
    )  # fmt: skip
    if number == 0 and at % 10 > 5:
        rank.stalls = [_stall(at, start)]
    name = f"train_{number}.py-{number:08x}"
    memory = {"used_bytes": 21_000_000_000, "limit_bytes": 46_000_000_000, "scope": "cgroup"}
    return Run(name, ["python", "train.py"], "ann", "/", start - BEFORE + number, None, {}, [rank], memory)


def _stall(at: float, start: float) -> Stall:
    lasts = at % 10 - 5
    return Stall(
        f"s{int(at // 10)}", start + at - lasts, None, lasts, "data_storage", {"data_storage": lasts}, 900, 1,
        summary="reading data from slow storage on /mnt/nfs/images.tar",
        chain=["training thread waits for its workers", "worker 4720 in read on /mnt/nfs/images.tar"],
        python_stack=["<module> (train.py:212)", "__getitem__ (dataset.py:88)"],
        advice=["copy the data to a local SSD, or pack it into larger shards that are read in order"],
    )  # fmt: skip
