"""How soon a worker's death is in the published report: killed again and again, measured from outside.

``python -m benchmarks.latency``: from just before the SIGKILL to the moment in which a reader of the daemon's published
report sees that process among the exits. ``--loaded``: beside a program for each processor that only computes. Exit
code 0: the 99th percentile is within the limit.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks import programs
from benchmarks.programs import Daemon, ProgramError
from benchmarks.stalls import torch_python
from benchmarks.stalls.run import TRAININGS

CHILDREN = 4
LIMIT_SECONDS = 0.1
LOST_AFTER = 5.0


def main(arguments: Sequence[str] | None = None) -> int:
    options = _arguments(arguments)
    try:
        python = torch_python.find(options.python)
        with programs.rivals(os.cpu_count() or 1 if options.loaded else 0):
            seconds = measure(python, options.deaths, random.Random(options.seed))
    except (ProgramError, torch_python.NoTorch) as error:
        print(f"latency: {error}", file=sys.stderr)
        return 2
    worst = percentile(seconds, 0.99)
    half, most = percentile(seconds, 0.5), percentile(seconds, 0.9)
    told = ", ".join(
        f"{1000 * value:.1f} ms ({name})"
        for name, value in (("median", half), ("p90", most), ("p99", worst), ("max", max(seconds)))
    )
    print(f"{len(seconds)} deaths, in the published report after {told}")
    return 0 if worst <= LIMIT_SECONDS else 1


def measure(python: str, deaths: int, rng: random.Random) -> list[float]:
    """Seconds from each kill to the report that tells of it; infinite for one that is never told."""
    with tempfile.TemporaryDirectory(prefix="trainprobe-latency-") as temporary:
        directory = Path(temporary)
        with Daemon(directory) as daemon:
            training = subprocess.Popen(
                [python, str(TRAININGS / "forker.py"), str(CHILDREN)], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
            )
            try:
                _wait_until_watched(daemon, training.pid)
                return [_one(daemon, training.pid, rng) for _ in range(deaths)]
            finally:
                assert training.stdin is not None
                training.stdin.close()
                try:
                    training.wait(10)
                except subprocess.TimeoutExpired:
                    programs.end(training)


def _wait_until_watched(daemon: Daemon, pid: int) -> None:
    deadline = time.monotonic() + 60
    while (found := daemon.rank_of(pid)) is None or found[1]["steps"]["count"] < 50:
        if time.monotonic() > deadline:
            raise ProgramError(f"the daemon does not see the training (pid {pid}): {daemon.said()}")
        time.sleep(0.1)


def _one(daemon: Daemon, training: int, rng: random.Random) -> float:
    time.sleep(rng.uniform(0.15, 0.45))
    victim = rng.choice(_children(training))
    published = daemon.directory / "report.json"
    seen = published.stat().st_ino
    begin = time.monotonic()
    os.kill(victim, signal.SIGKILL)
    while time.monotonic() - begin < LOST_AFTER:
        try:
            inode = published.stat().st_ino
        except FileNotFoundError:
            raise ProgramError("the daemon publishes no more: " + daemon.said()) from None
        if inode != seen:
            seen = inode
            if victim in _told(published, training):
                return time.monotonic() - begin
        time.sleep(0.0005)
    return math.inf


def _told(published: Path, training: int) -> set[int]:
    report = json.loads(published.read_bytes())
    ranks = [rank for run in report["runs"] for rank in run["ranks"] if rank["pid"] == training]
    return {death["pid"] for rank in ranks for death in rank["workers"]["exits"]}


def _children(pid: int) -> list[int]:
    while True:
        children = [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
        if children:
            return children
        time.sleep(0.01)


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that ``share`` of the values do not exceed."""
    ordered = sorted(values)
    return ordered[max(math.ceil(share * len(ordered)) - 1, 0)]


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.latency", description=__doc__)
    parser.add_argument("--deaths", type=int, default=120)
    parser.add_argument("--loaded", action="store_true", help="with all processors busy")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--python", help="an interpreter with PyTorch")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
