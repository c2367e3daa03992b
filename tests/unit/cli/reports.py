"""Reports as a night shift meets them."""

from __future__ import annotations

from trainprobe.model.report import (
    Bottleneck,
    Bound,
    Checkpoint,
    Cost,
    Counters,
    Evidence,
    Exit,
    Fds,
    Gpu,
    Host,
    LogFile,
    Memory,
    Period,
    PhaseSpan,
    Rank,
    Report,
    Run,
    SlowFile,
    Source,
    Stall,
    Steps,
    Totals,
    Verdict,
    Warning_,
    WorkerExit,
    Workers,
)

START = 1_760_000_000.0  # 2025-10-09 08:53:20 UTC
CKPT = "/data/runs/kitti/checkpoints/epoch_012_step_004200.pth"


def stalled() -> Report:
    """Four checkpoints and slow workers cost a third of five minutes."""
    saves = [
        Stall(
            id=f"s{n}",
            start=START + 30 + 60 * n,
            end=START + 36 + 60 * n,
            seconds=6.021 + n / 100,
            cause="checkpoint",
            shares={"checkpoint": 5.9, "unknown": 0.121 + n / 100},
            first_step=300 * (n + 1),
            steps=1,
            period=Period(300, 60.0),
            summary=f"6.0 s: torch.save of 340 MB to {CKPT}, 5.1 s of it in fsync",
            chain=["driver (pid 4711) in fsync", f"fsync of {CKPT} on /data (ext4, sda)"],
            evidence=[
                Evidence("bytes written", 340_000_000, "B", path=CKPT),
                Evidence("fsync", 5.1, "s"),
                Evidence("device", "sda", pid=None),
            ],
            python_stack=["<module> (train.py:212)", "main (train.py:180)", "save (checkpoint.py:88)"],
            advice=["a save costs 6.0 s each 300 steps, 9.9 % of the run; every 3000 steps it would be 1.1 %"],
        )
        for n in range(4)
    ]
    waiting = Stall(
        "w0", START + 200.5, None, 3.25, "data_storage", {"data_storage": 3.25}, 1010, 3,
        summary="waited for worker 3 (pid 4720), which read /mnt/nfs/images.tar",
    )  # fmt: skip
    rank = Rank(
        0, 1, 4711, 4711,
        wall_seconds=312.4,
        productive_seconds=262.6,
        verdict=Verdict(
            "stall", "checkpoint", 24.1, 0.0771,
            "checkpoint cost 24.1 s (7.7 %) in 4 stalls, every 300 steps: fsync of 340 MB on /data takes 5.1 s",
        ),
        bound=Bound("input", "waits for data 22 % of ordinary steps"),
        steps=Steps(1742, "autograd", "", 0.169, 0.512, 5.92, 0.083, None),
        phases=[PhaseSpan("startup", START, START + 12.1)],
        ledger={"compute": 180.0, "data_wait": 80.0, "checkpoint": 24.0, "runqueue": 20.0, "sleep": 8.4, "lock": 0.01},
        lost={"checkpoint": 24.1, "data_storage": 10.0, "logging": 3.6, "unknown": 0.0},
        stalls=[*saves, waiting],
        bottlenecks=[
            Bottleneck("logging", 0.0115, 3.6, "one fsync'ed line in train.log per step: 2.1 ms each", [],
                       ["log every 50 steps: saves 3.5 s"]),
        ],
        warnings=[
            Warning_("fd_exhaustion", START + 100, 4000.0, "open files grow by 12 a minute, the limit is 1024"),
            Warning_("checkpoint_unsafe", START + 36, None, f"for 6.2 s no complete checkpoint existed: {CKPT}"),
        ],
        checkpoints=[
            Checkpoint(CKPT, START + 30, START + 36, 340_000_000, 6.0, 0.6, 5.1, 0.001, 0.3, 6.0, "driver", "complete"),
            Checkpoint("/data/async.pt", START + 90, None, 1_200_000_000, 2.0, 2.0, 0, 0, 0, 0.0, "thread", "open"),
            Checkpoint("/full/c.pt", START + 95, START + 96, 4096, 1.0, 1.0, 0, 0, 0, 1.0, "driver", "error", "ENOSPC"),
        ],
        workers=Workers(5, 1, 4, [WorkerExit(4719, START + 150, None, 9, "killed", 4000)]),
        memory=Memory(21_000_000_000, 23_400_000_000, 0, 800_000_000, 1_000_000.0, 46_000_000_000, "cgroup"),
        fds=Fds(812, 1024),
        gpus=[Gpu("GPU-1", 0, 0.71, 80.0)],
        slow_files=[SlowFile("/mnt/nfs/images.tar", 5120, 9.8)],
        logs=[LogFile("/data/runs/train.log", 120_000, 1742, 3.6)],
        totals=Totals(14, 3, 1, 2),
        counters=Counters(phase_seconds={"startup": 12.1, "train": 300.3}),
    )  # fmt: skip
    run = Run("train.py-3f2a91c0", ["python", "train.py"], "ann", "/home/ann", START, None, {}, [rank])
    return Report(
        generated=START + 312.4,
        host=Host("gpu-7", "6.1.0", 32, 64_000_000_000),
        sources={
            "bpf": Source("up"),
            "psi": Source("unavailable", "the kernel does not count pressure (PSI)", "boot with psi=1"),
        },
        events_lost=3,
        cost=Cost(1.9, 31_000_000, 0.31, 0.007),
        runs=[run],
    )


def healthy() -> Report:
    rank = Rank(
        0, 1, 51, wall_seconds=30.5, productive_seconds=28.6,
        verdict=Verdict("none", None, 0.0, 0.0, "healthy: 587 steps in 30.5 s, nothing lost that is worth a change"),
        bound=Bound("compute", ""), steps=Steps(587, "autograd", "", 0.049, 0.051, 20.22, 0.013),
        ledger={"compute": 30.5}, lost={"checkpoint": 0.0, "unknown": 0.0}, exit=Exit(0, None, "finished"),
        counters=Counters(phase_seconds={"startup": 1.9}),
    )  # fmt: skip
    run = Run("train.py-00000001", ["python", "train.py"], "ann", "/", START, START + 30.5, {}, [rank])
    return Report(generated=START + 31, cost=Cost(1.3, 31_000_000), runs=[run])


def killed() -> Report:
    """Two ranks; a worker of the second was killed for want of memory."""
    first, second = (
        Rank(
            n, 2, 60 + n, name=str(n), wall_seconds=100.0, productive_seconds=90.0 - n,
            verdict=Verdict(), steps=Steps(100, "autograd", "", 0.9, 0.95, 1.1), lost={"collective_wait": 1.0 + n},
        )
        for n in range(2)
    )  # fmt: skip
    second.verdict = Verdict(
        "end", "oom_kill", 0.0, 0.0, "worker 99 was killed for want of memory (limit 46 GB of the container)"
    )
    second.exit = Exit(1, None, "exit code 1 after worker 99 was killed")
    second.workers = Workers(4, 4, 0, [WorkerExit(99, START + 99, None, 9, "oom_kill")])
    run = Run("train.py-00000002", [], "bob", "/", START, START + 100, {}, [first, second])
    return Report(generated=START + 100, cost=Cost(1.0, 30_000_000), runs=[run])


def hostile() -> Report:
    """Names that try to speak to the terminal, to turn the reading direction, to break lines."""
    evil = "\x1b[2J\x1b]0;owned\x07\r\nrm -rf /\u202egpj.exe\x9b31m\udcff"
    report = healthy()
    run, rank = report.runs[0], report.runs[0].ranks[0]
    run.run, run.user = f"{evil}-1", evil
    rank.verdict.summary = rank.steps.reason = evil
    rank.checkpoints = [Checkpoint(f"/{evil}.pt", START, START + 1, 1, 1.0, error=evil, outcome="error")]
    rank.stalls = [Stall("x", START, None, 1.0, "unknown", {"unknown": 1.0}, 1, 1, summary=evil, chain=[evil, evil])]
    rank.stalls[0].python_stack, rank.stalls[0].advice = [evil], [evil]
    rank.stalls[0].evidence = [Evidence(evil, evil, evil, 1, evil)]
    rank.warnings = [Warning_("unknown", START, 1.0, evil)]
    rank.bottlenecks = [Bottleneck("unknown", 0.1, 1.0, evil, [], [evil])]
    rank.slow_files, rank.logs = [SlowFile(evil, 3, 1.0)], [LogFile(evil, 1, 1, 1.0, evil)]
    report.sources = {evil: Source("error", evil, evil)}
    return report
