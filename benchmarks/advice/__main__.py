"""Whether advice comes true: trainings with a wrong setting, run as they are and again as `trainprobe advise` says.

``python -m benchmarks.advice``: each is watched once, for the advice, and then runs unwatched in turns as it was and as
it was advised, by its own clock; with ``--grid`` also with other values of the setting that gains most. Exit code 0:
each brought 80 % of what was predicted and 70 % of the best of the grid, and took the predicted memory to 15 %;
for what is set well nothing was proposed. ``--results`` keeps what was measured, so that cases may be measured one by
one; ``--markdown`` prints all that it has as a table, and measures nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.advice.cases import CASES, Case, Pace, Settings, applied, grid
from benchmarks.advice.host import swap
from benchmarks.advice.outcome import Outcome, line, markdown
from benchmarks.advice.running import TRAINING, Ran, advice_of, run
from benchmarks.programs import ProgramError
from benchmarks.stalls import quiet, torch_python
from benchmarks.stalls.host import CannotHere

MORE, MORE_TIMES = 1.06, 4


def main(arguments: Sequence[str] | None = None) -> int:
    options = _arguments(arguments)
    if options.markdown:
        outcomes = Outcome.read(options.results)
        print(markdown(outcomes))
        return 0 if all(outcome.holds for outcome in outcomes) else 1
    outcomes = []
    try:
        python = torch_python.find(options.python)
        pace = Pace(*json.loads(subprocess.run([python, str(TRAINING)], check=True, capture_output=True).stdout))
        for name in options.case or CASES:
            for seed in range(options.seed, options.seed + options.times):
                kept = options.keep and options.keep / f"{name}-{seed}.json"
                case = CASES[name](random.Random(f"{name} {seed}"), pace, options.seconds)
                how = Watched(python, options.patience, options.pairs, options.grid, kept)
                outcomes.append(measure(name, seed, case, how))
                print(line(outcomes[-1]), flush=True)
                if options.results:
                    outcomes[-1].append_to(options.results)
    except (ProgramError, CannotHere, torch_python.NoTorch, subprocess.SubprocessError) as error:
        print(f"advice: {error}", file=sys.stderr)
        return 2
    return 0 if all(outcome.holds for outcome in outcomes) else 1


@dataclass(frozen=True)
class Watched:
    """How trainings are run. ``patience``: seconds to wait, at most, for a quiet host; ``pairs``: runs as it was and as
    it was advised; ``kept``: where the report goes."""

    python: str
    patience: float
    pairs: int = 2
    grid: bool = False
    kept: Path | None = None


def measure(name: str, seed: int, case: Case, how: Watched) -> Outcome:
    """Runs one training as it is set, and as it is then advised. Raises ProgramError, CannotHere."""
    with tempfile.TemporaryDirectory(prefix="trainprobe-advice-") as temporary, contextlib.ExitStack() as stack:
        if case.limit is not None:
            stack.enter_context(swap())
        folder = Path(temporary)
        quiet.wait(how.patience)
        case, one = _as_it_is(case, how.python, folder)
        if how.kept is not None:
            how.kept.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(folder / "report.json", how.kept)
        advice = advice_of(folder)
        proposals = [setting for setting in advice["settings"] if setting["proposed"] is not None]
        told = {setting["name"]: setting["proposed"] for setting in proposals}
        outcome = Outcome(name, seed, case.settings, told, one.seconds, others=one.others, well_set=case.well_set)
        if proposals:
            outcome.predicted_gain = advice["gain_seconds"]
            outcome.predicted_memory = next((setting["memory"] for setting in proposals if setting["memory"]), None)
            _changed(outcome, case, applied(case.settings, proposals), proposals[0]["name"], (how, folder))
        return outcome


def _changed(outcome: Outcome, case: Case, better: Settings, name: str, where: tuple[Watched, Path]) -> None:
    """Enters what the training takes as it is, as it was advised, and on the grid of setting ``name``, in turns."""
    how, folder = where
    others = list(grid(case, name, better)) if how.grid else []
    for _ in range(how.pairs):
        before = _unwatched(case, how.python, folder)
        after = run(case, better, how.python, folder, watched=False)
        outcome.before.append(before.seconds)
        outcome.after.append(after.seconds)
        outcome.memory = max(outcome.memory or 0, after.memory)
        outcome.others = max(outcome.others, before.others, after.others)
        for label, settings in others:
            seconds = run(case, settings, how.python, folder, watched=False).seconds
            outcome.grid.setdefault(label, []).append(seconds)


def _unwatched(case: Case, python: str, folder: Path) -> Ran:
    """As it is set. Where its memory is limited, the kernel may kill one now and then: that one runs again."""
    for _ in range(MORE_TIMES):
        try:
            return run(case, case.settings, python, folder, watched=False)
        except ProgramError:
            if case.limit is None:
                raise
    return run(case, case.settings, python, folder, watched=False)


def _as_it_is(case: Case, python: str, folder: Path) -> tuple[Case, Ran]:
    """Of processes that swap all the time the kernel kills one, now and then: they get a bit more memory then."""
    for _ in range(MORE_TIMES):
        try:
            return case, run(case, case.settings, python, folder)
        except ProgramError:
            if case.limit is None:
                raise
            case = replace(case, limit=round(MORE * case.limit))
    return case, run(case, case.settings, python, folder)


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.advice", description=__doc__)
    parser.add_argument("--case", action="append", choices=sorted(CASES), help="only these")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--times", type=int, default=1, help="each of them, with seeds that follow")
    parser.add_argument("--grid", action="store_true", help="try other values of the setting that gains most, too")
    parser.add_argument("--seconds", type=float, default=10.0, help="about how long a training is")
    parser.add_argument("--patience", type=float, default=0.0, help="seconds to wait for a quiet host, before each")
    parser.add_argument("--pairs", type=int, default=2, help="runs as it was and as it was advised")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep the reports there")
    parser.add_argument("--results", type=Path, metavar="FILE", help="add all figures to it, as JSON lines")
    parser.add_argument("--markdown", action="store_true", help="print the table of --results, measure nothing")
    parser.add_argument("--python", help="an interpreter with PyTorch")
    options = parser.parse_args(arguments)
    if options.markdown and not options.results:
        parser.error("--markdown needs --results")
    return options


if __name__ == "__main__":
    sys.exit(main())
