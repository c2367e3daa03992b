"""How often the headline names the planted line, counted over kept runs whose recordings are replayed.

``python -m benchmarks.headlines DIR …``: each DIR is a run that ``benchmarks.stalls --keep`` or
``benchmarks.frameworks`` left, with its plan and its recording. Runs whose verdict is cpu_bound or data_cpu, planted as
such, are counted; the planted function's name stands in the headline. Exit code 0: it does in 95 % of them and more.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.stalls.table import wilson
from trainprobe.model.report import Rank
from trainprobe.pipeline import Pipeline
from trainprobe.wire.recording import read_frames, read_header

CAUSES = ("cpu_bound", "data_cpu")
FUNCTIONS = {"python": ("optimal_sequence_search", "busy"), "numeric": ("numeric",), "busy": ("busy",)}
"""What each way of computing calls in the training, by a fault's ``how``."""
BAR = 0.95


@dataclass(frozen=True)
class Headline:
    """``functions``: what was planted of the verdict's cause."""

    run: str
    cause: str
    functions: frozenset[str]
    summary: str

    @property
    def names_it(self) -> bool:
        return any(f"{function} (" in self.summary for function in self.functions)


def planted(plan: dict[str, Any], cause: str) -> frozenset[str]:
    """Functions that a plan has computed for a cause."""
    faults = [*plan.get("driver", ()), *plan.get("data", ())]
    return frozenset(name for fault in faults if fault.get("cause") == cause for name in FUNCTIONS[fault["how"]])


def headline(run: str, plan: dict[str, Any], rank: Rank) -> Headline | None:
    """None: what was planted is no such cause, or the verdict is another's."""
    cause = rank.verdict.cause or ""
    functions = planted(plan, cause) if cause in CAUSES else frozenset()
    return Headline(run, cause, functions, rank.verdict.summary) if functions else None


def replayed(folder: Path) -> Iterator[Headline]:
    """Of each rank of a kept run, by what the program now makes of its recording."""
    plan = json.loads((folder / "plan.json").read_text())
    pipeline, last = Pipeline(), None
    (recording,) = folder.glob("recording.jsonl*")
    with gzip.open(recording) if recording.suffix == ".gz" else recording.open("rb") as lines:
        read_header(lines)
        for frame in read_frames(lines):
            pipeline.step(frame)
            pipeline.wants()  # whose stacks it asks for decides what they are for
            last = frame.at
    if last is None:
        return
    for run in pipeline.report(last).runs:
        for rank in run.ranks:
            if (found := headline(folder.name, plan, rank)) is not None:
                yield found


def counted(headlines: Sequence[Headline]) -> str:
    right = sum(one.names_it for one in headlines)
    low = wilson(right, len(headlines))[0]
    return f"the planted line is named in {right} of {len(headlines)}, lower 95 % bound {low:.3f}"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.headlines", description=__doc__)
    parser.add_argument("folders", type=Path, nargs="+", metavar="DIR")
    found: list[Headline] = []
    for folder in parser.parse_args(arguments).folders:
        for one in replayed(folder):
            found.append(one)
            print(f"{'ok   ' if one.names_it else 'WRONG'} {one.run}: {one.summary}", flush=True)
    for cause in CAUSES:
        print(f"{cause}: {counted([one for one in found if one.cause == cause])}")
    print(f"all: {counted(found)}")
    return 0 if sum(one.names_it for one in found) >= BAR * len(found) > 0 else 1


if __name__ == "__main__":
    sys.exit(main())
