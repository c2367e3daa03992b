"""Whether advice comes true: trainings with a wrong setting, run as they are and again as `trainprobe advise` says.

``python -m benchmarks.advice``: for each of them the gain that was predicted and the one that came, and the memory;
with ``--grid`` also what other values of the setting that gains most would have brought. Exit code 0: each brought at
least 80 % of what was predicted and 70 % of the best of the grid, and took the memory that was predicted to 15 %; for
what is set well nothing was proposed.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import programs
from benchmarks.advice.cases import CASES, Case, Pace, Settings, applied, grid
from benchmarks.advice.host import swap
from benchmarks.advice.memory import Peak
from benchmarks.limits import groups
from benchmarks.programs import ProgramError
from benchmarks.stalls import quiet, torch_python
from benchmarks.stalls.host import CannotHere

TRAINING = Path(__file__).parent / "training.py"
GAIN, BEST, MEMORY = 0.8, 0.7, 0.15
MORE, MORE_TIMES = 1.06, 4
TRIES = 3
GROUP = f"trainprobe-advice-{os.getpid()}"
TIME_LIMIT = 500.0


@dataclass
class Outcome:
    """Seconds of the training's loop, bytes. ``predicted_*`` None: nothing was proposed, or no memory was told."""

    case: str
    seed: int
    settings: Settings
    proposals: dict[str, str]
    before: float
    after: float | None = None
    predicted_gain: float | None = None
    predicted_memory: int | None = None
    memory_before: int = 0
    memory: int | None = None
    others: tuple[float, float] = (0.0, 0.0)
    """Cores that other programs used during each run: beyond quiet.DISTURBED its seconds say little."""
    well_set: bool = False
    started: tuple[float, float] = (0.0, 0.0)  # seconds of the first steps in each run: they are in before and after
    grid: dict[str, float] = dataclasses.field(default_factory=dict)  # seconds gained with other values of the setting

    @property
    def gain(self) -> float | None:
        return None if self.after is None else self.before - self.after

    @property
    def holds(self) -> bool:
        """Whether the proposal kept what it promised."""
        if self.well_set:
            return not self.proposals
        if self.gain is None or not self.predicted_gain:
            return False
        best = max(self.grid.values(), default=0.0)
        fits = self.off is None or abs(self.off) <= MEMORY
        return self.gain >= max(GAIN * self.predicted_gain, BEST * best) and fits

    @property
    def off(self) -> float | None:
        """By how much the predicted memory lies above what was taken, relative."""
        return self.predicted_memory / self.memory - 1 if self.predicted_memory and self.memory else None


def main(arguments: Sequence[str] | None = None) -> int:
    options = _arguments(arguments)
    try:
        python = torch_python.find(options.python)
        pace = Pace(*json.loads(subprocess.run([python, str(TRAINING)], check=True, capture_output=True).stdout))
        outcomes = []
        for name in options.case or CASES:
            for seed in range(options.seed, options.seed + options.times):
                kept = options.keep and options.keep / f"{name}-{seed}"
                case = CASES[name](random.Random(f"{name} {seed}"), pace, options.seconds)
                outcomes.append(measure(name, seed, case, Watched(python, options.patience, options.grid, kept)))
                print(_line(outcomes[-1]), flush=True)
    except (ProgramError, CannotHere, torch_python.NoTorch, subprocess.SubprocessError) as error:
        print(f"advice: {error}", file=sys.stderr)
        return 2
    if options.output:
        rows = [
            dataclasses.asdict(one) | {"gain": one.gain, "memory_off": one.off, "holds": one.holds} for one in outcomes
        ]
        options.output.write_text(json.dumps(rows, indent=1) + "\n")
    return 0 if all(outcome.holds for outcome in outcomes) else 1


@dataclass(frozen=True)
class Watched:
    """How trainings are run. ``patience``: seconds to wait, at most, for a quiet host; ``kept``: where reports go."""

    python: str
    patience: float
    grid: bool = False
    kept: Path | None = None


def measure(name: str, seed: int, case: Case, how: Watched) -> Outcome:
    """Runs one training as it is set, and as it is then advised. Raises ProgramError, CannotHere."""
    python, patience, kept = how.python, how.patience, how.kept
    with tempfile.TemporaryDirectory(prefix="trainprobe-advice-") as temporary, contextlib.ExitStack() as stack:
        if case.limit is not None:
            stack.enter_context(swap())
        folder = Path(temporary)
        case, one = _as_it_is(case, python, folder, patience)
        _keep(folder, kept, "before")
        proposals = [setting for setting in one.advice["settings"] if setting["proposed"] is not None]
        told = {setting["name"]: setting["proposed"] for setting in proposals}
        outcome = Outcome(
            name, seed, case.settings, told, one.seconds, memory_before=one.memory, well_set=case.well_set
        )
        outcome.others, outcome.started = (one.others, 0.0), (one.started, 0.0)
        if proposals:
            outcome.predicted_gain = one.advice["gain_seconds"]
            outcome.predicted_memory = next((setting["memory"] for setting in proposals if setting["memory"]), None)
            then = undisturbed(case, applied(case.settings, proposals), python, folder, patience)
            outcome.after, outcome.memory = then.seconds, then.memory
            outcome.others, outcome.started = (one.others, then.others), (one.started, then.started)
            _keep(folder, kept, "after")
        if proposals and how.grid:
            for label, settings in grid(case.settings, proposals[0]["name"], applied(case.settings, proposals)):
                outcome.grid[label] = one.seconds - undisturbed(case, settings, python, folder, patience).seconds
        return outcome


def _as_it_is(case: Case, python: str, folder: Path, patience: float) -> tuple[Case, Ran]:
    """Of processes that swap all the time the kernel kills one, now and then: they get a bit more memory then."""
    for _ in range(MORE_TIMES):
        try:
            return case, undisturbed(case, case.settings, python, folder, patience)
        except ProgramError:
            if case.limit is None:
                raise
            case = dataclasses.replace(case, limit=round(MORE * case.limit))
    return case, undisturbed(case, case.settings, python, folder, patience)


@dataclass(frozen=True)
class Ran:
    """Seconds of the loop by the training's own clock, and of its first steps; peak bytes; the advice that a user then
    gets; cores that other programs used."""

    seconds: float
    started: float
    memory: int
    advice: dict[str, Any]
    others: float


def undisturbed(case: Case, settings: Settings, python: str, folder: Path, patience: float) -> Ran:
    """The training once, and again where other programs used the processors meanwhile."""
    for _ in range(TRIES - 1):
        quiet.wait(patience)
        ran = run(case, settings, python, folder)
        if ran.others <= quiet.DISTURBED or case.limit is not None:  # the kernel's swapping is nobody else
            return ran
    return run(case, settings, python, folder)


def run(case: Case, settings: Settings, python: str, folder: Path) -> Ran:
    """One training under observation. Raises ProgramError."""
    busy = quiet.now()
    report = folder / "report.json"
    settings = settings | {"directory": str(folder)}
    with contextlib.ExitStack() as stack:
        command = [python, str(TRAINING), json.dumps(settings)]
        if case.limit is not None:
            command = groups.inside(stack.enter_context(groups.memory(GROUP, case.limit)), command)
        process = subprocess.Popen(
            programs.trainprobe("run", "-o", str(report), "--", *command),
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=programs.environment(),
        )  # fmt: skip
        with Peak(process.pid) as peak:
            try:
                out, said = process.communicate(timeout=TIME_LIMIT)
            except subprocess.TimeoutExpired:
                programs.end(process)
                raise
    if process.returncode:
        raise ProgramError(f"the training ended with {process.returncode}: {said.decode(errors='replace')[-2000:]}")
    others = quiet.others(busy, quiet.now())
    asked = programs.trainprobe("advise", "--json", str(report))
    advice = subprocess.run(asked, check=True, capture_output=True, env=programs.environment()).stdout
    clock = json.loads(out)
    return Ran(clock["seconds"], clock["started"], peak.bytes, json.loads(advice), others)


def _keep(folder: Path, kept: Path | None, when: str) -> None:
    if kept is not None:
        kept.mkdir(parents=True, exist_ok=True)
        shutil.copy(folder / "report.json", kept / f"{when}.json")


def _line(outcome: Outcome) -> str:
    settings = ", ".join(f"{name} {value}" for name, value in outcome.proposals.items()) or "nothing proposed"
    text = f"{outcome.case} (seed {outcome.seed}): {settings}; {outcome.before:.2f} s"
    if outcome.after is None or not outcome.predicted_gain or outcome.gain is None:
        return text + ("" if outcome.holds else "  <- does not hold")
    share = outcome.gain / outcome.predicted_gain
    text += f" became {outcome.after:.2f} s: {outcome.gain:.2f} s of {outcome.predicted_gain:.2f} s ({share:.0%})"
    if outcome.grid:
        label, most = max(outcome.grid.items(), key=lambda pair: pair[1])
        text += f"; the best of {len(outcome.grid)} others is {label}: {most:.2f} s"
    if outcome.off is not None and outcome.memory and outcome.predicted_memory:
        told = f"{outcome.memory_before / 1e6:.0f} MB became {outcome.memory / 1e6:.0f} MB"
        text += f"; {told}, predicted {outcome.predicted_memory / 1e6:.0f} MB ({outcome.off:+.0%})"
    if max(outcome.others) > quiet.DISTURBED:
        text += f"  (other programs used {outcome.others[0]:.2f} and {outcome.others[1]:.2f} cores)"
    return text + ("" if outcome.holds else "  <- does not hold")


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.advice", description=__doc__)
    parser.add_argument("--case", action="append", choices=sorted(CASES), help="only these")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--times", type=int, default=1, help="each of them, with seeds that follow")
    parser.add_argument("--grid", action="store_true", help="try other values of the setting that gains most, too")
    parser.add_argument("--seconds", type=float, default=15.0, help="about how long a training is")
    parser.add_argument("--patience", type=float, default=30.0, help="seconds to wait for a quiet host, before each")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep the reports of both runs there")
    parser.add_argument("-o", "--output", type=Path, help="all figures as JSON")
    parser.add_argument("--python", help="an interpreter with PyTorch")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
