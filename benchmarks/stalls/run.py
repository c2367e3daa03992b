"""Runs the suite: one training after the other, each watched by ``trainprobe run``, each judged by its own clock."""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.stalls import faults, host, quiet, table, torch_python, verdict_time
from benchmarks.stalls.outside import Disturber, Killed, Killer, SlowReader
from benchmarks.stalls.plan import SCRATCH, SLOW, Plan, place
from benchmarks.stalls.score import CLAIMED, Score, score
from benchmarks.stalls.truth import Truth, planted_stalls, read

TRAININGS = Path(__file__).resolve().parent / "trainings"
ROOT = Path(__file__).resolve().parents[2]
TIME_LIMIT = 180.0
"""Seconds after which a run is ended and counted as failed."""

Json = dict[str, Any]


@dataclass
class Outcome:
    """What one run left behind. ``error``: why it could not be judged."""

    plan: Plan
    code: int | None = None
    seconds: float = 0.0
    others: float = 0.0  # cores that others used meanwhile
    truth: Truth | None = None
    report: Json | None = None
    score: Score | None = None
    killed: Killed | None = None
    acts: list[tuple[str, int, int]] = field(default_factory=list)  # done from outside, CLOCK_MONOTONIC ns
    verdict_times: list[float | None] = field(default_factory=list)
    error: str = ""
    stderr: str = ""


def command() -> list[str]:
    """How the program under test is started."""
    return [sys.executable, "-m", "trainprobe.cli"]


def environment() -> dict[str, str]:
    """Ours, with the two source roots where the program is not installed."""
    paths = [str(ROOT / "daemon"), str(ROOT / "exporters"), *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths)}


def carry_out(plan: Plan, python: str, keep: Path | None = None, *, watch: bool = True) -> Outcome:
    """One run from beginning to end. Raises ``host.CannotHere``; everything else is in the outcome.

    ``keep``: where its recording, report, plan and truth are copied to. ``watch`` False: the training alone.
    """
    if "gc_pause" in (plan.cause, *plan.both) and not torch_python.tells_collections(python):
        raise host.CannotHere(f"{python} does not tell of its garbage collector")
    with host.Place(plan.device) as where:
        outcome = Outcome(plan)
        root = where.root
        training = place(plan.training, {SCRATCH: str(where.scratch), SLOW: str(where.slow)})
        (root / "plan.json").write_text(json.dumps(training))
        script = str(TRAININGS / f"{plan.style}.py")
        job = [python, script, "--plan", str(root / "plan.json"), "--truth", str(root / "truth.jsonl")]
        if watch:
            ours = ["run", "-o", str(root / "report.json"), "--record", str(root / "recording.jsonl"), "--"]
            job = [*command(), *ours, *job]
        begin = quiet.now()
        try:
            _start_and_wait(outcome, job, root, script, watch)
            end = quiet.now()
            outcome.seconds, outcome.others = end.at - begin.at, quiet.others(begin, end)
            _judge(outcome, root, watch)
        except (OSError, ValueError, KeyError, TypeError, subprocess.SubprocessError) as error:
            outcome.error = f"{type(error).__name__}: {error}"
        finally:
            outcome.stderr = _tail(root / "stderr")
            if keep is not None:
                _keep(root, keep)
        return outcome


def _start_and_wait(outcome: Outcome, job: list[str], root: Path, script: str, watch: bool) -> None:
    plan = outcome.plan
    with open(root / "stderr", "wb") as stderr:
        process = subprocess.Popen(
            job, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=stderr, cwd=root,
            start_new_session=True, env=environment() if watch else None,
        )  # fmt: skip
    assert process.stdout is not None
    reader = SlowReader(process.stdout, plan.stdout_rate)
    reader.start()
    killer = None
    if plan.kill_after is not None:
        killer = Killer(script, str(root / "plan.json"), plan.kill_after, plan.seed)
        killer.start()
    disturber = Disturber(script, str(root / "plan.json"), plan.outside) if plan.outside else None
    if disturber is not None:
        disturber.start()
    try:
        outcome.code = process.wait(TIME_LIMIT)
    finally:
        if disturber is not None:
            disturber.stop()
            outcome.acts = disturber.done
            (root / "outside.json").write_text(json.dumps(outcome.acts))
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if killer is not None:
            killer.stop()
            outcome.killed = killer.killed


def _judge(outcome: Outcome, root: Path, watch: bool) -> None:
    plan = outcome.plan
    with open(root / "truth.jsonl", encoding="utf-8") as lines:
        workers = root / "truth.jsonl.workers"
        outcome.truth = read(lines, workers.read_text().splitlines() if workers.exists() else ())
    if not watch:
        return
    outcome.report = json.loads((root / "report.json").read_text())
    outcome.truth.acts = [(begin, end) for _, begin, end in outcome.acts]
    if plan.cause == "suspended":
        outcome.truth.stopper = os.getpid()
    outcome.score = score(plan, outcome.truth, outcome.report, os.getpid() if outcome.killed else None)
    outcome.score.expect_code(outcome.code, 1 if plan.kind == "end" else 0)
    stalls = [stall for stall in planted_stalls(outcome.truth, plan.cause) if stall.seconds >= CLAIMED]
    if stalls and not plan.both:
        outcome.verdict_times = verdict_time.stall_verdicts(root / "recording.jsonl", stalls, outcome.truth)
    elif outcome.killed is not None:
        outcome.verdict_times = [
            verdict_time.death_verdict(root / "recording.jsonl", outcome.killed.pid, outcome.killed.at)
        ]


def _keep(root: Path, keep: Path) -> None:
    keep.mkdir(parents=True, exist_ok=True)
    kept = (
        "plan.json",
        "truth.jsonl",
        "truth.jsonl.workers",
        "outside.json",
        "report.json",
        "recording.jsonl",
        "stderr",
    )
    for file in kept:
        if (root / file).exists():
            shutil.copy(root / file, keep / file)


def _tail(path: Path, size: int = 4000) -> str:
    try:
        return path.read_bytes()[-size:].decode(errors="replace")
    except OSError:
        return ""


def to_row(outcome: Outcome, seed: int, recording: Path | None) -> Json:
    """A line of the results file."""
    plan, judged = outcome.plan, outcome.score
    row: Json = {
        "key": plan.key, "seed": seed, "cause": plan.cause, "kind": plan.kind, "style": plan.style, "how": plan.how,
        "code": outcome.code, "seconds": round(outcome.seconds, 2), "others": round(outcome.others, 3),
        "error": outcome.error,
        "recording": str(recording) if recording else None, "plan": plan.to_json(),
    }  # fmt: skip
    if judged is not None:
        row |= {
            "said": [judged.said_kind, judged.said_cause], "top": judged.top_right, "right": judged.right,
            "wrong": judged.wrong(), "verdict_times": outcome.verdict_times,
            "matches": [asdict(m) | {"named": m.named, "close": m.close} for m in judged.matches],
        }  # fmt: skip
    return row


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """Held during a run: two trainings at once would plant contention in each other."""
    with open(path, "a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def main(arguments: Sequence[str] | None = None) -> int:
    """0: every run was right in all respects; 1: some were not; 2: wrong arguments or no PyTorch."""
    options = _arguments(arguments)
    try:
        python = torch_python.find(options.python)
    except torch_python.NoTorch as error:
        print(error, file=sys.stderr)
        return 2
    results = Path(options.results)
    results.parent.mkdir(parents=True, exist_ok=True)
    rows = _earlier(results, options.seed) if options.resume else []
    if not options.resume:
        results.unlink(missing_ok=True)
    host.sweep()
    styles = torch_python.styles(python, options.styles or faults.ALL)
    todo = [
        (cause, number) for number in range(options.first, options.first + options.runs) for cause in options.causes
    ]
    done = {row["key"] for row in rows}
    for place_, (cause, number) in enumerate(todo, 1):
        plan = faults.make(cause, number, options.seed, styles)
        if plan.key in done:
            continue
        row = _one(plan, python, options)
        rows.append(row)
        with open(results, "a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        print(_line(row, place_, len(todo)), flush=True)
    asked = [row for row in rows if row["cause"] in options.causes]
    print("\n" + (table.markdown if options.markdown else table.render)(asked))
    print(f"\nresults in {results}; recordings of failures beside it")
    return 0 if all(row.get("right") or row.get("skipped") for row in asked) else 1


def _one(plan: Plan, python: str, options: argparse.Namespace) -> Json:
    keep = Path(options.results).with_suffix("") / plan.key.replace("/", "-")
    try:
        outcome = undisturbed(plan, python, keep, Path(options.lock), options.patience)
    except host.CannotHere as reason:
        return {"key": plan.key, "seed": options.seed, "cause": plan.cause, "skipped": str(reason)}
    failed = outcome.score is None or not outcome.score.right
    if not failed and not options.keep:
        shutil.rmtree(keep, ignore_errors=True)
    return to_row(outcome, options.seed, keep if failed or options.keep else None)


def undisturbed(plan: Plan, python: str, keep: Path, lock: Path, patience: float) -> Outcome:
    """A run while nobody else uses the processors: waits for that, and begins again when somebody came between.

    After ``patience`` seconds the run counts as it is; how much others used is in the outcome.
    """
    end = time.monotonic() + patience
    while True:
        with alone(lock):
            late = time.monotonic() >= end
            if late or quiet.wait(0):
                shutil.rmtree(keep, ignore_errors=True)
                outcome = carry_out(plan, python, keep)
                if outcome.others <= quiet.DISTURBED or late:
                    return outcome
        time.sleep(quiet.LOOK_SECONDS)


def _line(row: Json, number: int, total: int) -> str:
    if row.get("skipped"):
        return f"[{number}/{total}] {row['key']:<18} skipped: {row['skipped']}"
    what = f"[{number}/{total}] {row['key']:<18} {row['style']:<13} {row['how']:<28} {row['seconds']:6.1f} s"
    if row["error"]:
        return f"{what}  FAILED {row['error']}"
    verdict = "right" if row["right"] else "WRONG " + " | ".join(row["wrong"])
    disturbed = f" (others used {row['others']:.2f} cores)" if row["others"] > quiet.DISTURBED else ""
    return f"{what}  {row['said'][1] or 'none':<14} {verdict}{disturbed}"


def _earlier(results: Path, seed: int) -> list[Json]:
    if not results.exists():
        return []
    rows = [json.loads(line) for line in results.read_text().splitlines() if line.strip()]
    return [row for row in rows if row["seed"] == seed]


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.stalls", description=__doc__)
    parser.add_argument("--causes", type=_causes, default=list(faults.CAUSES), help="comma-separated; default: all")
    parser.add_argument("--styles", type=lambda text: text.split(","), help="comma-separated; default: all")
    parser.add_argument("--runs", type=int, default=5, help="of each cause (5)")
    parser.add_argument("--first", type=int, default=0, help="number of the first run of each cause (0)")
    parser.add_argument("--seed", type=int, default=1, help="of all that is random (1)")
    parser.add_argument("--results", default=str(ROOT / "build" / "stalls" / "results.jsonl"), help="JSON lines")
    parser.add_argument("--resume", action="store_true", help="leave out what the results file already has")
    parser.add_argument("--keep", action="store_true", help="keep the recordings of the runs that were right, too")
    parser.add_argument("--markdown", action="store_true", help="the table as Markdown, a row for each cause")
    parser.add_argument("--patience", type=float, default=120.0, help="seconds to wait for a quiet host, per run (120)")
    parser.add_argument("--python", help="an interpreter with PyTorch")
    parser.add_argument(
        "--lock", default=os.path.join(tempfile.gettempdir(), "trainprobe-stalls.lock"), help="held during a run"
    )
    return parser.parse_args(arguments)


def _causes(text: str) -> list[str]:
    causes = text.split(",")
    unknown = [cause for cause in causes if cause not in faults.GENERATORS]
    if unknown:
        raise argparse.ArgumentTypeError(
            f"no such cause: {', '.join(unknown)}; there are {', '.join(faults.GENERATORS)}"
        )
    return causes


if __name__ == "__main__":
    sys.exit(main())
