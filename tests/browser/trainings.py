"""Trainings on paper, as long and as troubled as a test wants them: a report and the rows of its steps."""

from __future__ import annotations

import random
from dataclasses import dataclass

from trainprobe.model.cause import KINDS, LOST, Kind
from trainprobe.model.report import (
    Bound,
    Checkpoint,
    Cost,
    Counters,
    Evidence,
    Exit,
    Fds,
    Host,
    Memory,
    Period,
    PhaseSpan,
    Rank,
    Report,
    Run,
    Samples,
    Source,
    Stall,
    Steps,
    Totals,
    Verdict,
    Warning_,
    WorkerExit,
    Workers,
)
from trainprobe.model.steprow import StepRow

BASE = 0.045
CAUSES = tuple(cause for cause in LOST if Kind.STALL in KINDS[cause])
RUN = "train.py-3f2a91c0"


@dataclass
class Training:
    """A report of one run, and its steps one by one."""

    report: Report
    rows: list[StepRow]

    @property
    def rank(self) -> Rank:
        return self.report.runs[0].ranks[0]


def training(draw: random.Random, *, end: float, steps: int = 600, stalls: int = 8, ended: bool = False) -> Training:
    """Steps with stalls among them, every cause in its turn; the last step ends at ``end``."""
    durations = [max(0.02, draw.gauss(BASE, BASE / 15)) for _ in range(steps)]
    slow = sorted(draw.sample(range(40, steps), stalls))
    excess = {step: draw.lognormvariate(0.3, 0.7) for step in slow}
    spans = [duration + excess.get(step, 0.0) for step, duration in enumerate(durations)]
    start = end - sum(spans) - 3.0
    rows, found, at = [], [], start + 3.0
    for step, span in enumerate(spans):
        rows.append(StepRow(at, span, 1, span, span, _states(draw, durations[step], excess.get(step, 0.0), step)))
        if step in excess:
            cause = CAUSES[slow.index(step) % len(CAUSES)]
            found.append(_stall(str(cause), step, at + durations[step], excess[step], draw.choice((None, 30))))
        at += span
    return Training(_report(start, end, rows, found, ended=ended), rows)


def _states(draw: random.Random, usual: float, excess: float, step: int) -> dict[str, float]:
    waited = usual * draw.uniform(0.05, 0.3)
    states = {"compute": usual - waited, "data_wait": waited}
    if excess:
        states[draw.choice(("checkpoint", "data_wait", "lock", "sleep"))] = excess
    return states


def _stall(cause: str, step: int, start: float, seconds: float, every: int | None) -> Stall:
    path = f"/data/runs/a long way/{cause}/epoch_{step:06d}.pth"
    return Stall(
        id=f"{RUN}-0-{int(start * 1000)}",
        start=start,
        end=start + seconds,
        seconds=seconds,
        cause=cause,
        shares={cause: seconds * 0.95, "unknown": seconds * 0.05},
        first_step=step,
        steps=1,
        period=Period(every, 30 * BASE) if every else None,
        summary=f"{seconds:.2f} s went to {cause}: {path}",
        chain=["training thread waits for worker 3 (4714)", f"worker 3 in read on {path}"],
        evidence=[Evidence("bytes written", 340_000_000, "bytes", 4711, path), Evidence("fsync", seconds * 0.8, "s")],
        python_stack=["<module> (train.py:212)", "main (train.py:180)", f"save (checkpoint.py:{step})"],
        advice=[f"of {cause}: every 3000 steps instead of 300 saves 9.0 % of the run"],
    )


def _middle_of_the_longest_calm(start: float, end: float, stalls: list[Stall]) -> float:
    """Where a flag lies over no stall's region."""
    begins = [start, *(stall.end or end for stall in stalls)]
    ends = [*(stall.start for stall in stalls), end]
    begin, until = max(zip(begins, ends, strict=True), key=lambda gap: gap[1] - gap[0])
    return (begin + until) / 2


def _report(start: float, end: float, rows: list[StepRow], stalls: list[Stall], *, ended: bool) -> Report:
    lost: dict[str, float] = {}
    ledger: dict[str, float] = {"sleep": 3.0}
    for stall in stalls:
        lost[stall.cause] = lost.get(stall.cause, 0.0) + stall.seconds
    for row in rows:
        for state, seconds in row.states.items():
            ledger[state] = ledger.get(state, 0.0) + seconds
    wall = end - start
    worst = max(lost, key=lambda cause: lost[cause]) if lost else None
    calm = _middle_of_the_longest_calm(start, end, stalls)
    rank = Rank(
        0,
        1,
        4711,
        wall_seconds=wall,
        productive_seconds=wall - 3.0 - sum(lost.values()),
        exit=Exit(0, None, "finished") if ended else None,
        verdict=Verdict(
            "stall" if worst else "none",
            worst,
            lost.get(worst or "", 0.0),
            lost.get(worst or "", 0.0) / wall,
            f"{worst} cost {lost[worst]:.1f} s" if worst else "healthy: nothing lost that is worth a change",
        ),
        bound=Bound("compute", "the training thread waits for data during 12 % of its training time"),
        steps=Steps(len(rows), "autograd", "", BASE, BASE * 1.2, 1 / BASE, 0.08),
        phases=[PhaseSpan("startup", start, start + 3.0)],
        ledger=ledger,
        lost=lost,
        stalls=stalls,
        warnings=[Warning_("worker_death", calm, None, "worker 4719 was killed by signal 9", [], ["look"])],
        checkpoints=[
            Checkpoint(f"/data/{n}.pth", s.start, s.end, 340_000_000, s.seconds, 0.1, s.seconds - 0.1, 0, 0, s.seconds)
            for n, s in enumerate(stalls)
            if s.cause == "checkpoint"
        ],
        workers=Workers(5, 1, 4, [WorkerExit(4719, calm, None, 9, "killed", 4000)]),
        memory=Memory(21_000_000_000, 23_400_000_000, 0, 800_000_000, None, 46_000_000_000, "cgroup"),
        fds=Fds(812, 1024),
        samples=Samples(
            [start + wall * n / 20 for n in range(20)],
            [10_000_000_000 + n * 600_000_000 for n in range(20)],
            [0] * 20,
            [0, *[4] * 19],
        ),
        totals=Totals(len(stalls), sum(s.cause == "checkpoint" for s in stalls), 1, 1),
        counters=Counters(phase_seconds={"startup": 3.0}, baseline_seconds=BASE, phase="train"),
    )
    run = Run(RUN, ["python", "train.py"], "ann", "/home/ann", start, end if ended else None, {}, [rank])
    sources = {"bpf": Source("up"), "nvml": Source("unavailable", "no NVIDIA driver", "")}
    host = Host("gpu-7", "6.1.0", 32, 64_000_000_000)
    return Report(generated=end, host=host, sources=sources, cost=Cost(1.9, 31_000_000, 0.3, 0.007), runs=[run])
