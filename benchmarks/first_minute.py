"""What `trainprobe run` costs in the first minute: its processor time beside a training of a minute with ten stalls.

``python -m benchmarks.first_minute [--turns N] [--against CHECKOUT]``: the training takes no notice; all that `run`
used, both its halves and their children (the loader of the kernel's programs, py-spy), is counted to its very end, and
split: until the command starts; the children, the watching half, the caller's half while it runs; after its end.
``--against``: the same with another checkout, by turns. A first start on a machine compiles, which comes on top and is
not counted here. Exit code 0: within the limits.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks import programs
from benchmarks.programs import ProgramError
from benchmarks.stalls import torch_python
from benchmarks.stalls.run import TRAININGS

WIDTH, STEP_SECONDS = 1024, 0.045
ALL_LIMIT, START_LIMIT = 1.0, 0.6
MB = 1_000_000
TIMES = re.compile(r"(\d+)m([\d.]+)s")


@dataclass(frozen=True)
class Cost:
    """Seconds of a processor."""

    start: float
    children: float
    watching: float
    caller: float
    end: float
    wall: float  # of the training

    @property
    def all_in(self) -> float:
        return self.start + self.children + self.watching + self.caller + self.end


@dataclass(frozen=True)
class _Used:
    """So far: by the caller's half, by the watching one, by the children of that."""

    caller: float
    watching: float
    children: float


class _Sampler(threading.Thread):
    """Reads what both halves have used, from outside, as long as they live."""

    def __init__(self, run: int) -> None:
        super().__init__(daemon=True)
        self._run = run
        self.at_start: _Used | None = None
        self.last = _Used(0.0, 0.0, 0.0)
        self.at_end: _Used | None = None

    def run(self) -> None:
        with suppress(OSError, IndexError):  # it has ended
            while True:
                self._sample()
                time.sleep(0.02)

    def _sample(self) -> None:
        children = [int(pid) for pid in Path(f"/proc/{self._run}/task/{self._run}/children").read_text().split()]
        commands = {pid: Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0") for pid in children}
        watching = next((pid for pid, command in commands.items() if b"observe" in command), None)
        started = any(command[0] == b"sh" for command in commands.values())
        if watching is not None:
            own = programs.cpu_seconds(watching)
            self.last = _Used(_threads(self._run), own, programs.cpu_seconds(watching, children=True) - own)
        if started:
            self.at_start = self.at_start or self.last
            self.at_end = self.last


def _threads(pid: int) -> float:
    return programs.cpu_seconds(pid)


def measure(python: str, directory: Path, batch: int, seed: int, root: Path) -> Cost:
    """One run."""
    plan = _plan(seed, batch, directory)
    (directory / "plan.json").write_text(json.dumps(plan))
    training = f"{python} {TRAININGS / 'plain.py'} --plan {directory / 'plan.json'} --truth {directory / 'truth.jsonl'}"
    # The shell waits for its only child and tells what that used; we know the sum from the kernel.
    command = programs.trainprobe("run", "-o", str(directory / "report.json"), "--", "sh", "-c", f"{training}; times")
    paths = os.pathsep.join((str(root / "daemon"), str(root / "exporters")))
    with open(directory / "run.log", "w+b") as log:
        begin = time.monotonic()
        run = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            env=programs.environment(PYTHONPATH=paths), cwd=root,
        )  # fmt: skip
        sampler = _Sampler(run.pid)
        sampler.start()
        _, status, used = os.wait4(run.pid, 0)
        run.returncode = os.waitstatus_to_exitcode(status)
        wall = time.monotonic() - begin
        sampler.join()
        log.seek(0)
        said = log.read().decode(errors="replace")
    if run.returncode or sampler.at_start is None or sampler.at_end is None:
        raise ProgramError(f"the run failed: {said[-2000:]}")
    theirs = sum(60 * int(minutes) + float(seconds) for minutes, seconds in TIMES.findall(said)[:4])
    first, last = sampler.at_start, sampler.at_end
    start = first.caller + first.watching + first.children
    children, watching, caller = (
        getattr(last, name) - getattr(first, name) for name in ("children", "watching", "caller")
    )
    end = used.ru_utime + used.ru_stime - theirs - start - children - watching - caller
    _check(json.loads((directory / "report.json").read_bytes()), plan)
    return Cost(start, children, watching, caller, end, wall)


def _check(report: programs.Json, plan: programs.Json) -> None:
    """Every planted stall was found: what is cheap and blind does not count."""
    [rank] = report["runs"][0]["ranks"]
    found = [stall for stall in rank["stalls"] if stall["seconds"] > 0.2]
    planted = sum(len(fault["at"]) for fault in (*plan["driver"], *plan["data"]))
    if len(found) < planted - 1:  # the workers' head start hides a slow batch now and then
        raise ProgramError(f"{planted} stalls were planted and {len(found)} were found")


def _plan(seed: int, batch: int, directory: Path) -> programs.Json:
    """Ten stalls: checkpoints with fsync, slow batches, Python functions."""
    rng = random.Random(seed)
    scratch = directory / "scratch"
    scratch.mkdir(exist_ok=True)
    places = [100 + 95 * place + rng.randrange(40) for place in range(10)]
    rng.shuffle(places)
    return {
        "seed": seed, "steps": 1100, "epoch_steps": 100_000, "width": WIDTH, "batch": batch, "workers": 2,
        "scratch": str(scratch),
        "driver": [
            {"id": 0, "cause": "checkpoint", "how": "save_file_fsync", "directory": str(scratch),
             "at": {str(step): rng.randrange(200, 300) * MB for step in places[:3]}},
            {"id": 1, "cause": "cpu_bound", "how": "python",
             "at": {str(step): round(rng.uniform(0.5, 1.5), 2) for step in places[3:7]}},
        ],
        "data": [
            {"id": 2, "cause": "data_cpu", "how": "busy",
             "at": {str(step): round(rng.uniform(0.9, 1.6), 2) for step in places[7:]}},
        ],
    }  # fmt: skip


def _batch(python: str) -> int:
    script = str(TRAININGS / "step_time.py")
    done = subprocess.run([python, script, str(WIDTH), "128"], check=True, capture_output=True, text=True, timeout=120)
    return max(32, min(int(128 * STEP_SECONDS / float(done.stdout)), 2048))


def show(name: str, costs: Sequence[Cost]) -> Cost:
    """Prints the medians with their range; gives them."""
    middle = Cost(*(median(getattr(one, field.name) for one in costs) for field in dataclasses.fields(Cost)))
    totals = sorted(one.all_in for one in costs)
    print(
        f"{name}: {middle.all_in:.2f} s of a processor all in ({totals[0]:.2f} to {totals[-1]:.2f}, {len(costs)} runs"
        f" of {middle.wall:.0f} s): until the command starts {middle.start:.2f}; while it runs: children"
        f" {middle.children:.2f}, the watching half {middle.watching:.2f}, the caller's half {middle.caller:.2f};"
        f" after its end {middle.end:.2f}",
        flush=True,
    )
    return middle


def main(arguments: Sequence[str] | None = None) -> int:
    options = _arguments(arguments)
    roots = [programs.ROOT, *filter(None, [options.against])]
    found: dict[Path, list[Cost]] = {root: [] for root in roots}
    try:
        python = torch_python.find(options.python)
        batch = _batch(python)
        for turn in range(-1, options.turns):
            for root in roots:
                with tempfile.TemporaryDirectory(prefix="trainprobe-minute-") as temporary:
                    if turn < 0:  # bytecode and the kept programs: as from the second start on
                        _warm_up(root)
                        continue
                    found[root].append(measure(python, Path(temporary), batch, options.seed + turn, root))
                    show(str(root), found[root][-1:])
    except (ProgramError, torch_python.NoTorch) as error:
        print(f"first_minute: {error}", file=sys.stderr)
        return 2
    middle, *_ = [show(str(root), costs) for root, costs in found.items()]
    return 0 if middle.all_in <= ALL_LIMIT and middle.start <= START_LIMIT else 1


def _warm_up(root: Path) -> None:
    paths = os.pathsep.join((str(root / "daemon"), str(root / "exporters")))
    subprocess.run(
        programs.trainprobe("run", "--", "true"), check=True, cwd=root, capture_output=True,
        env=programs.environment(PYTHONPATH=paths),
    )  # fmt: skip


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.first_minute", description=__doc__)
    parser.add_argument("--python", help="an interpreter with PyTorch")
    parser.add_argument("--turns", type=int, default=1)
    parser.add_argument("--against", type=Path, help="another checkout to measure by turns")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
