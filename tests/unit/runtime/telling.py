"""A training's reports as a daemon would tell them to the history, one a second."""

from __future__ import annotations

import os
import pwd
from dataclasses import dataclass, field

from trainprobe.model.goodput import Goodput
from trainprobe.model.report import Checkpoint, Rank, Report, Run, Stall, Totals
from trainprobe.model.steprow import RankSteps, StepRow

NOW = 1_763_000_000.0
RUN = "train.py-3f2a91c0"
USER = pwd.getpwuid(os.getuid()).pw_name


@dataclass
class Training:
    """Steps of 50 ms; each tenth second, or as often as asked, a stall of one second begins."""

    run: str = RUN
    user: str = USER
    second: int = 0
    every: int = 10
    ended: float | None = None
    stalls: list[Stall] = field(default_factory=list)
    saved: list[Checkpoint] = field(default_factory=list)

    @property
    def now(self) -> float:
        return NOW + self.second

    def tell(self) -> tuple[Report, list[RankSteps]]:
        """One more second."""
        self.second += 1
        if self.stalls and self.stalls[-1].end is None:
            self.close()
        elif self.second % self.every == 0:
            self.open()
        begin = self.now - 1
        rows = [StepRow(begin + n * 0.05, 0.05, 1, 0.05, 0.05, {"compute": 0.05}) for n in range(20)]
        return self.report(), [RankSteps(self.run, "0", rows)]

    def open(self) -> None:
        name = f"{self.run}-0-{int(self.now * 1000)}"
        self.stalls.append(Stall(name, self.now, None, 0.2, "checkpoint", {"checkpoint": 0.2}, self.second * 20, 1))

    def close(self) -> None:
        stall = self.stalls[-1]
        stall.end, stall.seconds, stall.shares = stall.start + 1.0, 1.0, {"checkpoint": 1.0}
        self.saved.append(Checkpoint(f"/out/{self.second}.pt", stall.start, stall.end, 1000, 1.0, outcome="complete"))

    def report(self) -> Report:
        """As of now."""
        rank = Rank(0, 1, 4242, wall_seconds=self.second, stalls=self.stalls[-200:], checkpoints=self.saved[-200:])
        rank.totals = Totals(len(self.stalls), len(self.saved))
        rank.steps.count = 20 * self.second
        run = Run(self.run, ["python", "train.py"], self.user, "/w", NOW, self.ended, ranks=[rank])
        run.goodput, run.job = Goodput(7.0), self.run
        return Report(generated=self.now, runs=[run])
