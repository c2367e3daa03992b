"""Whether `trainprobe compare` tells what differs and claims nothing of equal runs, on real trainings.

``python -m benchmarks.comparison``: in each round a training runs twice, in drawn order: as it is, and slower by a
planted difference: more computing in a step, a loader that waits longer for each batch, or writes through to the disk.
Both are a different pair; the one as it is and the last one of the same settings before it an equal pair. A run during
which other programs used the processors is made again, whatever it says; how often is told. ``--folder`` keeps the
reports: runs that are there are not run again, so that a long series can be made in pieces. Exit code 0: no equal pair
was told apart, and every different one was.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from math import ceil
from pathlib import Path

from benchmarks import programs
from benchmarks.advice.cases import Pace, Settings
from benchmarks.programs import Json, ProgramError
from benchmarks.stalls import quiet, torch_python

TRAINING = Path(__file__).parent / "advice" / "training.py"
WARM = 60  # steps before and around the ordinary ones
TIME_LIMIT = 100.0
KINDS = ("compute", "data", "io")
PLAIN, SLOWER = "plain", "slower"
OWN, LATE = 0.55, 0.2
"""Of a step that waits for data: what it computes itself, and what sleeps last longer than they were asked to."""


@dataclass(frozen=True)
class Told:
    """A pair. ``true``: speed of B against A by the trainings' own clocks, relative; the rest as compare says."""

    round: int
    kind: str
    equal: bool
    true: float
    change: float
    told: bool
    apart: float  # seconds from the end of A to that of B
    answer: Json

    @property
    def said(self) -> bool:
        """Whether it says of anything that it differs."""
        return any((self.told, self.answer["steady_told"], self.answer["waits_told"], self.answer["work_told"]))

    @property
    def holds(self) -> bool:
        """An equal pair must not be told apart; of a different one it must be told which is the faster."""
        if self.equal:
            return not self.said
        parts = [self.answer[f"{part}_change"] for part in ("waits", "work") if self.answer[f"{part}_told"]]
        slower = [self.told and -self.change, *parts]
        return max(slower) > 0 and min(slower) >= 0


def main(arguments: Sequence[str] | None = None) -> int:
    options = _arguments(arguments)
    until = time.monotonic() + options.minutes * 60
    with tempfile.TemporaryDirectory(prefix="trainprobe-comparison-") as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        try:
            python = torch_python.find(options.python)
            pace, again = _pace(folder, python), 0
            for number in range(options.rounds):
                for kind, role in planned(options.seed, number):
                    report = folder / f"{number}-{kind}-{role}.json"
                    slower = options.difference * options.step if role == SLOWER else 0.0
                    wanted = settings(kind, options.steps, options.step, slower, pace)
                    while time.monotonic() < until and not report.exists():
                        again += not run(report, python, wanted, options.others)
        except (ProgramError, torch_python.NoTorch, subprocess.SubprocessError) as error:
            print(f"comparison: {error}", file=sys.stderr)
            return 2
        pairs = list(compared(folder, options.seed, options.rounds))
    _show(pairs)
    if again:
        print(f"made again, because other programs used the processors meanwhile: {again} runs")
    if options.output:
        options.output.write_text(json.dumps([asdict(pair) for pair in pairs], indent=1) + "\n")
    return 0 if pairs and all(pair.holds for pair in pairs) else 1


def planned(seed: int, number: int) -> list[tuple[str, str]]:
    """A round's runs in their order: (kind, role). Of as many rounds as there are kinds, each has another one."""
    cycle, roles = list(KINDS), [PLAIN, SLOWER]
    random.Random(f"{seed} {number // len(KINDS)}").shuffle(cycle)
    random.Random(f"{seed} {number} order").shuffle(roles)
    return [(cycle[number % len(KINDS)], role) for role in roles]


def settings(kind: str, steps: int, step: float, slower: float, pace: Pace) -> Settings:
    """A training whose steps take ``step`` seconds, and at least ``slower`` more by its kind's part."""
    own = round(step * (OWN if kind == "data" else 1.0) / pace.own)
    return {
        "steps": steps + WARM, "workers": 1, "batch_work": 1, "private": 1 << 20, "batch_bytes": 1 << 16,
        "own_work": own + (ceil(slower / pace.own) if kind == "compute" else 0),
        "batch_wait": step * (1 - LATE) + slower if kind == "data" else 0.0,
        "sync": slower if kind == "io" else 0.0,
    }  # fmt: skip


def run(report: Path, python: str, wanted: Settings, others: float) -> bool:
    """One training under observation; its report, and beside it what its own clock said. Raises ProgramError.

    False: other programs used more than ``others`` cores, and there is no report.
    """
    made = report.with_suffix(".new")
    asked = json.dumps(wanted | {"directory": str(report.parent)})
    command = programs.trainprobe("run", "-o", str(made), "--", python, str(TRAINING), asked)
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


def compared(folder: Path, seed: int, rounds: int) -> Iterator[Told]:
    """Every pair of which both runs are there."""
    before: dict[bool, Path] = {}
    for number in range(rounds):
        kind = planned(seed, number)[0][0]
        plain, slower = (folder / f"{number}-{kind}-{role}.json" for role in (PLAIN, SLOWER))
        if not plain.exists():
            continue
        if last := before.get(kind == "data"):
            yield _pair(number, kind, last, plain)
        before[kind == "data"] = plain
        if slower.exists():
            yield _pair(number, kind, plain, slower)


def _pair(number: int, kind: str, a: Path, b: Path) -> Told:
    command = programs.trainprobe("compare", "--json", str(a), str(b))
    told: Json = json.loads(subprocess.run(command, check=True, capture_output=True, env=programs.environment()).stdout)
    apart = b.stat().st_mtime - a.stat().st_mtime
    true = _seconds(a) / _seconds(b) - 1
    return Told(number, kind, b.stem.endswith(PLAIN), true, told["change"], told["told"], apart, told)


def _seconds(report: Path) -> float:
    """Of the steps in which nothing starts any more."""
    clock = json.loads(report.with_suffix(".clock").read_text())
    return float(clock["seconds"]) - float(clock["started"])


def _pace(folder: Path, python: str) -> Pace:
    """The same for all runs of a series."""
    kept = folder / "pace"
    if not kept.exists():
        kept.write_bytes(subprocess.run([python, str(TRAINING)], check=True, capture_output=True).stdout)
    return Pace(*json.loads(kept.read_text()))


def _show(pairs: Sequence[Told]) -> None:
    for equal, kind, wanted in ((True, "equal", "told apart"), (False, "slower", "told")):
        these = [pair for pair in pairs if pair.equal == equal]
        if not these:
            continue
        changes = sorted(abs(pair.change) for pair in these)
        true = sorted(abs(pair.true) for pair in these)
        print(f"{len(these)} {kind} pairs: {sum(pair.said for pair in these)} {wanted}")
        print(
            f"  differences {changes[0]:.1%} to {changes[-1]:.1%}; by their own clocks {true[0]:.1%} to {true[-1]:.1%}"
        )
        for pair in these:
            if not pair.holds:
                print(f"  does not hold: {pair}")


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.comparison", description=__doc__)
    parser.add_argument(
        "--rounds", type=int, default=22, help="each a different pair, and an equal one but for the first two"
    )
    parser.add_argument("--seed", type=int, default=1, help="of the kinds and of the order within a round")
    parser.add_argument("--steps", type=int, default=500, help="ordinary steps of each run")
    parser.add_argument("--step", type=float, default=0.020, help="seconds of a step")
    parser.add_argument(
        "--difference", type=float, default=0.05, help="of a step: what a slower run takes more, at least"
    )
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
