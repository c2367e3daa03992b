"""``python -m benchmarks.limits.ramps``: real trainings that use something up at a steady pace, drawn at random.

How long before the end is it told, and how far off is the time that is said when half of the ramp is left?

    --each N        ramps of each kind (2); those of a round run beside each other
    --only A,B      these kinds only: fds, shm, memory
    --seconds A B   how long a ramp is (60 90)

A ramp holds where it is told in its first half (or 60 s before the end), and where, at half of it, the time left is
right to 25 %. 1: one of them does not.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from benchmarks.limits import places
from benchmarks.limits.cases import MB, TORCH, Case
from benchmarks.limits.run import watched
from trainprobe.model.moment import NS
from trainprobe.pipeline import Pipeline
from trainprobe.wire.recording import read_frames, read_header

EARLY_SECONDS, EARLY_PART = 60.0, 0.5
WITHIN = 0.25


@dataclass(frozen=True)
class Told:
    """Seconds. ``left_at_half``: what was said then, None: nothing."""

    ramp: float
    before_end: float | None
    left_at_half: float | None

    @property
    def holds(self) -> bool:
        if self.before_end is None or self.left_at_half is None:
            return False
        early = self.before_end >= min(EARLY_SECONDS, EARLY_PART * self.ramp)
        return early and abs(self.left_at_half / (self.ramp / 2) - 1) <= WITHIN


def fds(draw: random.Random, seconds: float) -> Case:
    """Two descriptors with each batch that is kept."""
    limit = draw.randrange(400, 1500)
    pause = seconds / ((limit - 30) / 2)
    return Case(
        "exhaust", ["--keep", "--descriptors", limit, "--steps", 10**6, "--pause", round(pause, 4)], "fd_exhaustion"
    )


def shm(draw: random.Random, seconds: float) -> Case:
    """Kept batches in a small /dev/shm."""
    steps, size = draw.randrange(300, 700), draw.randrange(150, 400)
    width = size * MB // steps // 16 // 4
    mount = f'mount -t tmpfs -o size={size}m none /dev/shm && exec "$@"'
    arguments = ["--keep", "--width", width, "--steps", 10**6, "--pause", round(seconds / steps, 4)]
    return Case(
        "exhaust", arguments, "shm_exhaustion", None, places.wrapped("unshare", "--mount", "sh", "-c", mount, "sh")
    )


def memory(draw: random.Random, seconds: float) -> Case:
    """A list that grows, in a cgroup."""
    steps, limit = draw.randrange(300, 900), draw.randrange(700, 1200) * MB
    leak = (limit - TORCH) // steps
    arguments = ["--leak-bytes", leak, "--steps", 10**6, "--pause", round(seconds / steps, 4)]
    return Case("exhaust", arguments, "oom_kill", None, places.grouped("memory", "memory.limit_in_bytes", limit))


KINDS: dict[str, Callable[[random.Random, float], Case]] = {"fds": fds, "shm": shm, "memory": memory}


def main() -> int:
    """Exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", required=True, help="an interpreter with torch")
    parser.add_argument("--each", type=int, default=2)
    parser.add_argument("--only", default=",".join(KINDS))
    parser.add_argument("--seconds", type=float, nargs=2, default=(60.0, 90.0))
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--out", type=Path, default=Path("build/ramps"))
    wanted = parser.parse_args()
    shutil.rmtree(wanted.out, ignore_errors=True)
    seed = wanted.seed if wanted.seed is not None else random.SystemRandom().randrange(10**6)
    print("seed", seed, flush=True)
    held = True
    for number in range(wanted.each):

        def ramp(kind: str, number: int = number) -> Told:
            draw = random.Random(f"{kind}/{number}/{seed}")
            folder = wanted.out.resolve() / f"{kind}-{number}"
            folder.mkdir(parents=True)
            watched(KINDS[kind](draw, draw.uniform(*wanted.seconds)), folder, wanted.python)
            return told(folder / "recording.jsonl", kind)

        kinds = wanted.only.split(",")
        with ThreadPoolExecutor(len(kinds)) as all_at_once:
            for kind, one in zip(kinds, all_at_once.map(ramp, kinds)):
                held = held and one.holds
                print(line(kind, one), flush=True)
    return 0 if held else 1


def line(kind: str, one: Told) -> str:
    if one.before_end is None or one.left_at_half is None:
        return f"{kind:7} {one.ramp:4.0f} s: not told in time  <- does not hold"
    off = one.left_at_half / (one.ramp / 2) - 1
    text = f"{kind:7} {one.ramp:4.0f} s: told {one.before_end:3.0f} s before the end; at half, {off:+.0%} off"
    return text + ("" if one.holds else "  <- does not hold")


def told(recording: Path, kind: str) -> Told:
    """From the first step to what ran out: when the forecast came, and what it was half way."""
    pipeline = Pipeline()
    began = ended = None
    said: list[tuple[int, float]] = []  # (when, seconds left)
    with recording.open("rb") as lines:
        read_header(lines)
        for frame in read_frames(lines):
            pipeline.step(frame)
            at = frame.at.monotonic_ns
            for run in pipeline.runs.values():
                for rank in run.ranks:
                    began = began or rank.progress.first_boundary_ns or None
                    happened = [one.at_ns for one in rank.notices.told.values() if one.happened]
                    ended = ended or min(happened, default=None)
                    eta = run.limits.eta(kind, rank)
                    if eta is not None and ended is None:
                        said.append((at, eta))
    if began is None or ended is None:
        return Told(0.0, None, None)
    half = (began + ended) / 2
    near = [eta - (half - at) / NS for at, eta in said if abs(at - half) <= 3 * NS]
    before = (ended - said[0][0]) / NS if said else None
    return Told((ended - began) / NS, before, near[len(near) // 2] if near else None)


if __name__ == "__main__":
    sys.exit(main())
