"""What runs at once: healthy trainings, each with something that looks like a stall and is none. Pure, by a seed."""

from __future__ import annotations

import math
import random
from typing import Any

from benchmarks.stalls.plan import SCRATCH, Plan

WIDTH, BATCH = 128, 32
PAUSE_SECONDS = (0.16, 0.22)
"""Of each step, in which a training waits as for an accelerator: a few per cent of a core are left."""
STORE_BYTES, STORE_BATCHES = 1_000_000, 40
EVALUATION_SECONDS, EVALUATION_STEPS = (0.5, 1.2), 150
CASES: tuple[tuple[str, str], ...] = (
    ("plain", "tensorboard"),
    ("trainer", "wandb"),
    ("lightning_fit", "omp"),
    ("handmade", "async_save"),
    ("gan", "store"),
    ("amp", "cache"),
    ("accumulate", "evaluation"),
    ("plain", "compile"),
)
"""(module of the trainings, what it has)"""
REAL = {"tensorboard": "tensorboard", "wandb": "wandb_offline"}
LIKE = {"tensorboard": "events", "wandb": "wandb"}
"""Where the package is not installed, threads of the same manner stand for it."""

Json = dict[str, Any]


def make(style: str, what: str, seconds: float, seed: int, real: bool) -> Plan:
    """A training of at least ``seconds``. ``real``: the package that it is about is installed."""
    rng = random.Random(f"{seed}/{style}/{what}")
    pause = round(rng.uniform(*PAUSE_SECONDS), 4)
    steps = math.ceil(seconds / pause)
    training: Json = {
        "seed": rng.randrange(1 << 30), "width": WIDTH, "batch": BATCH, "workers": 1, "steps": steps,
        "scratch": SCRATCH, "driver": [], "data": [], "pause": pause, "background": [],
    }  # fmt: skip
    if what in REAL:
        training["background"] = [REAL[what] if real else LIKE[what]]
    elif what in ("store", "cache"):
        batches = range(rng.randint(20, 40), steps, STORE_BATCHES)
        at = {str(batch): float(STORE_BYTES) for batch in batches}
        training["data"] = [{"id": 0, "cause": "none", "how": what, "directory": SCRATCH, "at": at}]
    elif what == "evaluation":
        when = range(rng.randint(60, 100), steps - 8, EVALUATION_STEPS)
        at = {str(step + rng.randint(-10, 10)): round(rng.uniform(*EVALUATION_SECONDS), 3) for step in when}
        training["driver"] = [{"id": 0, "cause": "evaluation", "how": "with_loader", "at": at}]
    elif what == "compile":
        training |= {"compile": True, "jitter": 0.3}  # batches of many sizes: it compiles more than once
    else:
        training["background"] = [what]
    cause = "evaluation" if what == "evaluation" else "none"
    return Plan(f"clean/{style}-{what}", cause, "none", style, what, training["seed"], training)


def stalling(seed: int, seconds: float) -> Plan:
    """The neighbour of the clean ones: it saves and computes between its steps. Its stalls are none of theirs."""
    faults: list[Json] = [
        {"id": 0, "cause": "checkpoint", "how": "save_path_fsync", "directory": SCRATCH, "every": 60, "size": 3 << 24,
         "at": {"0": 3 << 24}},
        {"id": 1, "cause": "cpu_bound", "how": "python", "every": 85, "size": 0.7},
    ]  # fmt: skip
    training = {
        "seed": seed, "width": WIDTH, "batch": BATCH, "workers": 1, "steps": math.ceil(seconds / PAUSE_SECONDS[0]),
        "scratch": SCRATCH, "driver": faults, "data": [], "pause": PAUSE_SECONDS[0],
    }  # fmt: skip
    return Plan("clean/neighbour", "cpu_bound", "stall", "plain", "stalls", seed, training)
