"""``python -m benchmarks.limits``: labelled runs of each kind, right or wrong, and how soon an event was in the report.

    --each N        runs of each kind (6)
    --only A,B      these kinds only
    --resume        go on where an earlier call with the same --out and --seed stopped
    --tries N       begin a run again, so often at most, beside which others used the processors (3)
    --seconds S     begin no further run after so long: for hosts that are quiet for a while only
    --seed N        draws the same runs again

The result is one JSON line a run in OUT/results.jsonl, and a table of all of them. 1: less than 97 % are right.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.limits.cases import CASES, wrong
from benchmarks.limits.run import watched
from benchmarks.stalls import quiet
from benchmarks.stalls.host import CannotHere
from trainprobe.pipeline import Pipeline
from trainprobe.wire.recording import read_frames, read_header

PASSING = 0.97
LIMIT_SECONDS = 0.1
TRIES = 3


def main() -> int:
    """Exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", required=True, help="an interpreter with torch")
    parser.add_argument("--each", type=int, default=6)
    parser.add_argument("--only", default=",".join(CASES))
    parser.add_argument("--out", type=Path, default=Path("build/limits"))
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--tries", type=int, default=TRIES)
    parser.add_argument("--seconds", type=float, default=math.inf)
    wanted = parser.parse_args()
    signal.signal(signal.SIGTERM, _leave)
    wanted.out = wanted.out.resolve()  # it goes into the environment of trainings
    results = wanted.out / "results.jsonl"
    if not wanted.resume:
        shutil.rmtree(wanted.out, ignore_errors=True)
    wanted.out.mkdir(parents=True, exist_ok=True)
    told = [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []
    seed = (
        wanted.seed if wanted.seed is not None else told[0]["seed"] if told else random.SystemRandom().randrange(10**6)
    )
    done = {(one["kind"], one["number"]) for one in told}
    begin = time.monotonic()
    for number in range(wanted.each):
        for kind in wanted.only.split(","):
            if (kind, number) in done or time.monotonic() - begin > wanted.seconds:
                continue
            one = {"kind": kind, "number": number, "seed": seed} | carried(kind, number, seed, wanted)
            told.append(one)
            with results.open("a") as file:
                print(json.dumps(one), file=file)
            print(kind, number, "; ".join(one["wrong"]) or "right", one["seconds"], flush=True)
    return table(told)


def _leave(*_: object) -> None:
    """What a run has borrowed is given back, however often one is told to go."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(143)


def carried(kind: str, number: int, seed: int, wanted: argparse.Namespace) -> dict[str, Any]:
    """One run: what was wrong, and the seconds from each event to the frame that explains it.

    A run in which others used the processors is done again, whatever came of it, a few times at most.
    """
    case = CASES[kind](random.Random(f"{kind}/{number}/{seed}"))
    folder = wanted.out / f"{kind}-{number}"
    for left in reversed(range(wanted.tries)):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        before = quiet.now()
        try:
            rank, said = watched(case, folder, wanted.python)
        except CannotHere as reason:
            return {"wrong": [], "seconds": [], "skipped": str(reason)}
        others = round(quiet.others(before, quiet.now()), 2)
        if others <= quiet.DISTURBED or not left:
            break
    problems = wrong(case, rank) if rank is not None else [f"no report: {said[-300:]}"]
    return {"wrong": problems, "seconds": explained(folder / "recording.jsonl"), "others": others}


def explained(recording: Path) -> list[float]:
    """From each event about a limit to the frame after which it was told."""
    pipeline, found, known = Pipeline(), [], set()
    if not recording.exists():
        return []
    with recording.open("rb") as lines:
        read_header(lines)
        for frame in read_frames(lines):
            pipeline.step(frame)
            for key, at_ns in _happened(pipeline):
                if key not in known:
                    known.add(key)
                    found.append(round(max(0, frame.at.monotonic_ns - at_ns) / 1e9, 4))
    return found


def _happened(pipeline: Pipeline) -> list[tuple[str, int]]:
    ranks = [rank for run in pipeline.runs.values() for rank in run.ranks]
    return [(key, one.at_ns) for rank in ranks for key, one in rank.notices.told.items() if one.happened]


def table(told: list[dict[str, Any]]) -> int:
    """Print what came of each kind; 1 where too little is right."""
    ran = [one for one in told if "skipped" not in one]
    for kind in CASES:
        of = [one for one in ran if one["kind"] == kind]
        seconds = [each for one in of for each in one["seconds"]]
        late = f"{max(seconds) * 1000:.0f} ms" if seconds else "-"
        if of:
            print(f"{kind:18} {sum(not one['wrong'] for one in of)} of {len(of)} right, told within {late}")
    right = sum(not one["wrong"] for one in ran)
    slow = sorted(each for one in ran for each in one["seconds"])
    p99 = slow[min(len(slow) - 1, int(0.99 * len(slow)))] if slow else 0.0
    print(f"{right} of {len(ran)} right; an event is explained within {p99 * 1000:.0f} ms (p99 of {len(slow)})")
    return 0 if ran and right >= PASSING * len(ran) and p99 <= LIMIT_SECONDS else 1


if __name__ == "__main__":
    sys.exit(main())
