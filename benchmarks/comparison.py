"""Whether `trainprobe compare` tells what differs and claims nothing of equal runs, on real trainings.

``python -m benchmarks.comparison``: the same training again and again, with one of slower steps after each. Neighbours
of the first kind are equal pairs, a training and the slower one after it a different pair. A run during which other
programs used the processors is made again, whatever it says; how often is told. ``--folder`` keeps the reports: runs
that are there are not run again, so that a long series can be made in pieces. Exit code 0: no equal pair was told
apart, and every different one was.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks import programs
from benchmarks.advice.cases import Pace
from benchmarks.programs import Json, ProgramError
from benchmarks.stalls import quiet, torch_python

TRAINING = Path(__file__).parent / "advice" / "training.py"
WARM = 60  # steps before and around the ordinary ones
TIME_LIMIT = 100.0


@dataclass(frozen=True)
class Told:
    """A pair. ``true``: speed of B against A by the trainings' own clocks, relative; the rest as compare says."""

    kind: str
    true: float
    change: float
    spread: float | None
    told: bool
    steady: float | None = None  # of the quickest stretches
    steady_told: bool = False

    @property
    def holds(self) -> bool:
        """An equal pair must not be told apart; of a different one it must be told which is the faster."""
        if self.kind == "equal":
            return not (self.told or self.steady_told)
        return (self.told and self.change < 0) or (self.steady_told and (self.steady or 0) < 0)


def main(arguments: Sequence[str] | None = None) -> int:
    options = _arguments(arguments)
    until = time.monotonic() + options.minutes * 60
    with tempfile.TemporaryDirectory(prefix="trainprobe-comparison-") as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        try:
            python = torch_python.find(options.python)
            pace, again = _pace(folder, python), 0
            for number in range(options.pairs + 1):
                for kind, slower in (("plain", 0.0), ("slower", options.difference)):
                    report = folder / f"{kind}-{number}.json"
                    while time.monotonic() < until and not report.exists():
                        again += not run(report, python, pace, options.steps, options.step, slower, options.others)
        except (ProgramError, torch_python.NoTorch, subprocess.SubprocessError) as error:
            print(f"comparison: {error}", file=sys.stderr)
            return 2
        pairs = list(compared(folder, options.pairs))
    _show(pairs)
    if again:
        print(f"made again, because other programs used the processors meanwhile: {again} runs")
    if options.output:
        options.output.write_text(json.dumps([asdict(pair) for pair in pairs], indent=1) + "\n")
    return 0 if pairs and all(pair.holds for pair in pairs) else 1


def run(report: Path, python: str, pace: Pace, steps: int, step: float, slower: float, others: float) -> bool:
    """One training under observation; its report, and beside it what its own clock said. Raises ProgramError.

    False: other programs used more than ``others`` cores, and there is no report.
    """
    settings = {
        "steps": steps + WARM, "workers": 1, "own_work": round(step * (1 + slower) / pace.own), "batch_work": 1,
        "private": 1 << 20, "batch_bytes": 1 << 16, "directory": str(report.parent),
    }  # fmt: skip
    made = report.with_suffix(".new")
    command = programs.trainprobe("run", "-o", str(made), "--", python, str(TRAINING), json.dumps(settings))
    before = quiet.now()
    ended = subprocess.run(
        command, check=False, capture_output=True, stdin=subprocess.DEVNULL, timeout=TIME_LIMIT,
        env=programs.environment(),
    )  # fmt: skip
    if ended.returncode:
        raise ProgramError(f"the training ended with {ended.returncode}: {ended.stderr.decode(errors='replace')}")
    if quiet.others(before, quiet.now()) > others:
        return False
    report.with_suffix(".clock").write_bytes(ended.stdout)
    made.rename(report)
    return True


def compared(folder: Path, pairs: int) -> Iterator[Told]:
    """Every pair of which both runs are there."""
    for number in range(pairs):
        plain = folder / f"plain-{number}.json"
        for kind, other in (
            ("equal", folder / f"plain-{number + 1}.json"),
            ("slower", folder / f"slower-{number}.json"),
        ):
            if plain.exists() and other.exists():
                told = _compare(plain, other)
                true = _seconds(plain) / _seconds(other) - 1
                yield Told(
                    kind, true, told["change"], told["spread"], told["told"], told["steady_change"], told["steady_told"]
                )


def _compare(a: Path, b: Path) -> Json:
    command = programs.trainprobe("compare", "--json", str(a), str(b))
    answer = subprocess.run(command, check=True, capture_output=True, env=programs.environment())
    told: Json = json.loads(answer.stdout)
    return told


def _seconds(report: Path) -> float:
    return float(json.loads(report.with_suffix(".clock").read_text())["seconds"])


def _pace(folder: Path, python: str) -> Pace:
    """The same for all runs of a series."""
    kept = folder / "pace"
    if not kept.exists():
        kept.write_bytes(subprocess.run([python, str(TRAINING)], check=True, capture_output=True).stdout)
    return Pace(*json.loads(kept.read_text()))


def _show(pairs: Sequence[Told]) -> None:
    for kind, wanted in (("equal", "told apart"), ("slower", "told")):
        these = [pair for pair in pairs if pair.kind == kind]
        if not these:
            continue
        number = sum(pair.told for pair in these)
        steady = sum(pair.steady_told for pair in these)
        changes = sorted(abs(pair.change) for pair in these)
        spreads = [pair.spread for pair in these if pair.spread is not None]
        off = max(abs(pair.change - pair.true) for pair in these)
        print(
            f"{len(these)} {kind} pairs: {number} {wanted}, {steady} more by their quickest stretches; "
            f"differences {changes[0]:.1%} to {changes[-1]:.1%}, "
            f"± {statistics.median(spreads):.1%} in the middle and {max(spreads):.1%} at most; "
            f"off the trainings' own clocks by {off:.1%} at most"
        )
        for pair in these:
            if not pair.holds:
                print(f"  does not hold: {pair}")


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.comparison", description=__doc__)
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--steps", type=int, default=500, help="ordinary steps of each run")
    parser.add_argument("--step", type=float, default=0.016, help="seconds of a step")
    parser.add_argument("--difference", type=float, default=0.065, help="more work in a slower run's steps")
    parser.add_argument(
        "--others", type=float, default=quiet.DISTURBED, help="cores that other programs may use during a run"
    )
    parser.add_argument("--minutes", type=float, default=60.0, help="start no more runs after so many")
    parser.add_argument("--folder", type=Path, help="keep the reports here, and go on where it was left")
    parser.add_argument("-o", "--output", type=Path, help="all figures as JSON")
    parser.add_argument("--python", help="an interpreter with PyTorch")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
