"""One daemon over many healthy trainings, a stalling one beside them and a program that only writes .pth files.

``python -m benchmarks.clean --hours 6 --at-once 8``: 45 minutes. Exit code 0: not one false stall, bottleneck or
warning was told of the healthy ones, at any time. A wait for processors that the kernel counted is no false one.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks import programs
from benchmarks.clean import plans
from benchmarks.clean.judge import Json, Told, Verdict, judge, summary
from benchmarks.programs import Daemon, ProgramError
from benchmarks.stalls import torch_python
from benchmarks.stalls.plan import SCRATCH, Plan, place
from benchmarks.stalls.run import TRAININGS
from benchmarks.stalls.truth import read

LOOK_SECONDS = 2.0
APART_SECONDS = 6.0  # between two starts: importing torch takes a core for some seconds
WARM_SECONDS = 30.0  # added to each training, so that start-up does not count among its hours
END_SECONDS = 10.0
TICKER = Path(programs.__file__).with_name("ticker.py")
PTH = ("120", "25")  # megabytes, and seconds between two files


@dataclass
class Job:
    """A training that runs, or ran."""

    plan: Plan
    root: Path
    process: subprocess.Popen[bytes]
    begun: float
    ended: float | None = None
    told: Told = field(default_factory=Told)

    @property
    def seconds(self) -> float:
        return (self.ended or time.monotonic()) - self.begun

    def close(self) -> None:
        programs.end(self.process)


def main(arguments: Sequence[str] | None = None) -> int:
    options = _arguments(arguments)
    try:
        python = torch_python.find(options.python)
        with tempfile.TemporaryDirectory(prefix="trainprobe-clean-") as name:
            verdicts, told, facts = _watch(Path(name), python, options)
    except (ProgramError, torch_python.NoTorch) as error:
        print(f"clean: {error}", file=sys.stderr)
        return 2
    print("\n".join(summary(verdicts)))
    for name_, verdict in verdicts.items():
        for line in (*verdict.false, *verdict.crowded):
            print(f"{name_}: {line}")
    print(facts)
    if options.results:
        options.results.parent.mkdir(parents=True, exist_ok=True)
        rows = {name: verdict.to_json() | {"told": told[name].to_json()} for name, verdict in verdicts.items()}
        options.results.write_text(json.dumps(facts | {"trainings": rows}, indent=1))
    return 1 if any(verdict.false for verdict in verdicts.values()) else 0


def _watch(place_: Path, python: str, options: argparse.Namespace) -> tuple[dict[str, Verdict], dict[str, Told], Json]:
    seconds = 3600 * options.hours / options.at_once + WARM_SECONDS
    styles = torch_python.styles(python, [style for style, _ in plans.CASES])
    cases = [case for case in plans.CASES if case[0] in styles]
    real = {what: torch_python.has(python, what) for what in plans.REAL}
    configuration: Json = {"targets": {"exclude": {"commands": options.exclude}}}
    if options.record:
        configuration["record"] = {"path": str(options.record.resolve())}
    with ExitStack() as stack:
        daemon = stack.enter_context(Daemon(place_, json.dumps(configuration)))
        beside = [python, str(TRAININGS / "beside.py"), str(place_), str(seconds + 600), *PTH]
        writer = subprocess.Popen(beside, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        stack.callback(programs.end, writer)
        ticks = stack.enter_context((place_ / "standstills").open("wb"))
        ticker = subprocess.Popen([sys.executable, TICKER], stdin=subprocess.DEVNULL, stdout=ticks)
        stack.callback(programs.end, ticker)
        total = seconds + APART_SECONDS * options.at_once
        neighbour = _start(plans.stalling(options.seed, 2 * total), python, place_, stack)
        jobs: list[Job] = []
        for number in range(options.at_once):
            style, what = cases[number % len(cases)]
            plan = plans.make(style, what, seconds, options.seed + number // len(cases), real.get(what, False))
            jobs.append(_start(plan, python, place_, stack))
            _look(daemon, [*jobs, neighbour], APART_SECONDS)
        while any(job.ended is None for job in jobs):
            _look(daemon, [*jobs, neighbour], LOOK_SECONDS)
        _look(daemon, [*jobs, neighbour], END_SECONDS)
        names = [f"{number} {job.plan.style} {job.plan.how}" for number, job in enumerate(jobs)]
        standstills = _standstills(place_ / "standstills")
        for job in jobs:
            job.told.standstills = standstills
        verdicts = {name: _judged(job, options.results) for name, job in zip(names, jobs)}
        report = daemon.report()
        stalls: dict[str, int] = {}
        for stall in neighbour.told.stalls.values():
            stalls[stall["cause"]] = stalls.get(stall["cause"], 0) + 1
        facts: Json = {
            "seed": options.seed, "real_packages": real,
            "daemon_cost": report["cost"], "events_lost": report["events_lost"],
            "stalls_of_the_neighbour": stalls, "standstills": standstills,
            "sources": {name: one for name, one in report["sources"].items() if one["state"] != "up"},
        }  # fmt: skip
    return verdicts, {name: job.told for name, job in zip(names, jobs)}, facts


def _standstills(path: Path) -> list[tuple[float, float]]:
    """As ``ticker`` told them."""
    rows = (line.split() for line in path.read_text().splitlines())
    return [(float(at), float(seconds)) for at, seconds in rows]


def _start(plan: Plan, python: str, place_: Path, stack: ExitStack) -> Job:
    root = Path(tempfile.mkdtemp(dir=place_, prefix="training-"))
    (root / "plan.json").write_text(json.dumps(place(plan.training, {SCRATCH: str(root)})))
    script = str(TRAININGS / f"{plan.style}.py")
    with open(root / "output", "wb") as log:
        process = subprocess.Popen(
            [python, script, "--plan", str(root / "plan.json"), "--truth", str(root / "truth.jsonl")],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=root,
        )  # fmt: skip
    job = Job(plan, root, process, time.monotonic())
    stack.callback(job.close)
    return job


def _look(daemon: Daemon, jobs: Sequence[Job], seconds: float) -> None:
    """Keeps what is told now, and every two seconds until ``seconds`` have passed."""
    end = time.monotonic() + seconds
    while True:
        if daemon.process.poll() is not None:
            raise ProgramError(f"the daemon ended: {daemon.said()[-2000:]}")
        ranks = {rank["pid"]: rank for run in daemon.report()["runs"] for rank in run["ranks"]}
        for job in jobs:
            job.told.queues.append((time.time(), _queues(job.process.pid)))
            if job.process.pid in ranks:
                job.told.add(ranks[job.process.pid])
            if job.ended is None and job.process.poll() is not None:
                job.ended = time.monotonic()
        left = end - time.monotonic()
        if left <= 0:
            return
        time.sleep(min(left, LOOK_SECONDS))


def _queues(pid: int) -> dict[int, float]:
    """What a training and its children have waited for processors so far, their main threads."""
    found = {}
    try:
        children = [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        children = []
    for one in (pid, *children):
        try:
            found[one] = int(Path(f"/proc/{one}/schedstat").read_text().split()[1]) / 1e9
        except (OSError, IndexError):
            continue  # it has ended
    return found


def _judged(job: Job, results: Path | None) -> Verdict:
    if results:
        kept = results.with_suffix("")
        kept.mkdir(parents=True, exist_ok=True)
        for file in ("truth.jsonl", "output"):
            if (job.root / file).exists():
                shutil.copy(job.root / file, kept / f"{job.plan.style}-{job.plan.how}-{job.process.pid}-{file}")
    if job.process.returncode != 0:
        said = (job.root / "output").read_text(errors="replace")[-2000:]
        raise ProgramError(f"{job.plan.key} ended with {job.process.returncode}: {said}")
    with open(job.root / "truth.jsonl", encoding="utf-8") as lines:
        truth = read(lines)
    try:
        return judge(job.told, truth, job.seconds)
    except ValueError as error:
        raise ProgramError(str(error)) from error


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.clean", description=__doc__)
    parser.add_argument("--hours", type=_positive, default=6.0, help="job-hours in all (6)")
    parser.add_argument("--at-once", type=int, default=8, help="trainings at a time (8)")
    parser.add_argument("--seed", type=int, default=1, help="of all that is random (1)")
    parser.add_argument("--results", type=Path, help="a JSON file with everything that was told")
    parser.add_argument("--record", type=Path, help="where the daemon's recording is kept; else there is none")
    parser.add_argument("--exclude", action="append", default=[], help="command lines that the daemon leaves alone")
    parser.add_argument(
        "--python", help="an interpreter with PyTorch, and with tensorboard and wandb for the real ones"
    )
    return parser.parse_args(arguments)


def _positive(text: str) -> float:
    value = float(text)
    if not (value > 0 and math.isfinite(value)):
        raise argparse.ArgumentTypeError("more than 0")
    return value
