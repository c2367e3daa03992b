"""Whether predicted memory comes true: a training, and the same with fewer workers, with more, and with more batches
made ahead.

``python -m benchmarks.advice.settings``: what `trainprobe advise` says that each would take, and what it took. Exit
code 0: all of them to 15 %. Memory does not depend on how busy the host is.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import random
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.advice.cases import MB, Case, Settings
from benchmarks.advice.outcome import MEMORY
from benchmarks.advice.running import advice_of, run
from benchmarks.programs import ProgramError
from benchmarks.stalls import torch_python

AT_LEAST = 0.03  # seconds of a step


@dataclass(frozen=True)
class Taken:
    """``predicted`` None: the run itself."""

    seed: int
    workers: int
    prefetch: int
    predicted: int | None
    bytes: int
    told: int | None = None  # of the run itself, what the report says that it took
    unsure: tuple[str, ...] = ()

    @property
    def off(self) -> float | None:
        return None if self.predicted is None else self.predicted / self.bytes - 1


def drawn(seed: int, batches: int) -> Settings:
    """A training of two to four workers, each of which makes so many batches."""
    draw = random.Random(f"settings {seed}")
    workers = draw.randint(2, 4)
    return {
        "steps": batches * workers,
        "workers": workers,
        "prefetch": draw.randint(2, 4),
        "own_work": 1,
        "batch_work": draw.randint(0, 2) * 64,
        "pause": draw.uniform(AT_LEAST, 2 * AT_LEAST),
        "long_pause": 4.0,
        "private": draw.randint(5, 120) * MB,
        "batch_bytes": draw.randint(1, 12) * MB,
        "objects": draw.choice((0, draw.randint(10, 80))) * MB,
        "weights": draw.randint(1, 80) * MB,
    }


def measure(seed: int, python: str, batches: int) -> Iterator[Taken]:
    """The run itself, then each setting for which something was predicted. Raises ProgramError."""
    settings = drawn(seed, batches)
    with tempfile.TemporaryDirectory(prefix="trainprobe-advice-") as temporary:
        folder = Path(temporary)
        taken = run(Case(settings), settings, python, folder).memory
        told = advice_of(folder)["memory"]
        yield Taken(
            seed, settings["workers"], settings["prefetch"], None, taken, told["now"]["bytes"], tuple(told["unsure"])
        )
        for other in told["then"]:
            workers, prefetch = other["num_workers"], other["prefetch_factor"]
            changed = settings | {"workers": workers, "prefetch": prefetch, "steps": batches * workers}
            taken = run(Case(changed), changed, python, folder).memory
            yield Taken(seed, workers, prefetch, other["bytes"], taken)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.advice.settings", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--times", type=int, default=1, help="with seeds that follow")
    parser.add_argument("--batches", type=int, default=200, help="that each worker makes")
    parser.add_argument("-o", "--output", type=Path, help="all figures as JSON")
    parser.add_argument("--python", help="an interpreter with PyTorch")
    options = parser.parse_args(arguments)
    found = []
    print(f"{'seed':>6} {'workers':>8} {'prefetch':>9} {'predicted':>10} {'taken':>10} {'off':>6}")
    try:
        python = torch_python.find(options.python)
        for seed in range(options.seed, options.seed + options.times):
            for one in measure(seed, python, options.batches):
                found.append(one)
                print(_line(one), flush=True)
    except (ProgramError, torch_python.NoTorch) as error:
        print(f"settings: {error}", file=sys.stderr)
        return 2
    if options.output:
        options.output.write_text(json.dumps([dataclasses.asdict(one) for one in found], indent=1) + "\n")
    return 0 if all(one.off is None or abs(one.off) <= MEMORY for one in found) else 1


def _line(one: Taken) -> str:
    predicted = "" if one.predicted is None else f"{one.predicted / 1e6:.0f} MB"
    off = "" if one.off is None else f"{one.off:+.0%}"
    told = (
        ""
        if one.told is None
        else f"  (watched, told {one.told / 1e6:.0f} MB{''.join(f'; {why}' for why in one.unsure)})"
    )
    return f"{one.seed:>6} {one.workers:>8} {one.prefetch:>9} {predicted:>10} {one.bytes / 1e6:>7.0f} MB {off:>6}{told}"


if __name__ == "__main__":
    sys.exit(main())
