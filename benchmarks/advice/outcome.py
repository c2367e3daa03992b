"""What became of one training as it was advised, and the table of all."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import mean

from benchmarks.advice.cases import Settings
from benchmarks.stalls import quiet

GAIN, BEST, MEMORY = 0.8, 0.7, 0.15
"""Of what was predicted and of the best of the grid, what must be gained; by what the memory may be off."""


@dataclass
class Outcome:
    """Seconds of the training's loop, bytes. ``predicted_*`` None: nothing was proposed, or no memory was told."""

    case: str
    seed: int
    settings: Settings
    proposals: dict[str, str]
    watched: float
    before: list[float] = field(default_factory=list)  # unwatched, as it was …
    after: list[float] = field(default_factory=list)  # … and as it was advised, in turns
    predicted_gain: float | None = None
    predicted_memory: int | None = None
    memory: int | None = None
    others: float = 0.0  # cores that other programs used, at most
    well_set: bool = False
    grid: dict[str, list[float]] = field(default_factory=dict)  # with other values of the setting, in turns, too

    @classmethod
    def read(cls, path: Path) -> list[Outcome]:
        """Of each case and seed the latest."""
        kept = [cls(**json.loads(one)) for one in path.read_text().splitlines()]
        return list({(one.case, one.seed): one for one in kept}.values())

    def append_to(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as file:
            file.write(json.dumps(asdict(self)) + "\n")

    @property
    def gain(self) -> float | None:
        """Seconds; None: nothing was changed."""
        return mean(self.before) - mean(self.after) if self.after else None

    @property
    def best(self) -> tuple[str, float] | None:
        """The value of the grid that gains most, and the seconds."""
        if not self.grid:
            return None
        label = min(self.grid, key=lambda one: mean(self.grid[one]))
        return label, mean(self.before) - mean(self.grid[label])

    @property
    def holds(self) -> bool:
        """Whether the proposal kept what it promised."""
        if self.well_set:
            return not self.proposals
        if self.gain is None or not self.predicted_gain:
            return False
        fits = self.off is None or abs(self.off) <= MEMORY
        return self.gain >= max(GAIN * self.predicted_gain, BEST * (self.best or ("", 0.0))[1]) and fits

    @property
    def off(self) -> float | None:
        """By how much the predicted memory lies above what was taken, relative."""
        return self.predicted_memory / self.memory - 1 if self.predicted_memory and self.memory else None


def _proposed(outcome: Outcome) -> str:
    return ", ".join(f"{name} {value}" for name, value in outcome.proposals.items()) or "nothing"


def line(outcome: Outcome) -> str:
    text = f"{outcome.case} (seed {outcome.seed}): {_proposed(outcome)}; watched {outcome.watched:.2f} s"
    if outcome.gain is not None and outcome.predicted_gain:
        share = outcome.gain / outcome.predicted_gain
        text += f"; {mean(outcome.before):.2f} s became {mean(outcome.after):.2f} s: {outcome.gain:.2f} s of"
        text += f" {outcome.predicted_gain:.2f} s ({share:.0%})"
    if outcome.best is not None:
        text += f"; the best of {len(outcome.grid)} others is {outcome.best[0]}: {outcome.best[1]:.2f} s"
    if outcome.off is not None and outcome.memory and outcome.predicted_memory:
        text += f"; {outcome.memory / 1e6:.0f} MB, predicted {outcome.predicted_memory / 1e6:.0f} MB"
    if outcome.others > quiet.DISTURBED:
        text += f"  (other programs used {outcome.others:.2f} cores)"
    return text + ("" if outcome.holds else "  <- does not hold")


def markdown(outcomes: Iterable[Outcome]) -> str:
    """Steps per second of the training are its gain, too: the number of steps is the same."""
    rows = ["| training | advised | predicted | measured | best of the grid |", "|---|---|---|---|---|"]
    for one in outcomes:
        cells = ["", "", ""]
        if one.gain is not None and one.predicted_gain:
            whole = mean(one.before)
            cells = [f"{one.predicted_gain:.2f} s", f"{one.gain:.2f} of {whole:.1f} s", ""]
            if one.best is not None:
                cells[2] = f"{one.best[0]}: {one.best[1]:.2f} s"
        wrong = "" if one.holds else " **(does not hold)**"
        rows.append(f"| {one.case} | {_proposed(one)} | {' | '.join(cells)}{wrong} |")
    return "\n".join(rows)
