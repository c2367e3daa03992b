"""Trainings with a setting that is wrong, drawn anew each time: how wrong, and what the training is like otherwise."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

MB = 1 << 20
HOT_BYTES = 60 * MB
"""What PyTorch itself uses in each step, about; the rest of it can be swapped out for good and costs nothing then."""
Settings = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """``limit``: bytes of memory for all of it, None: the host's. ``well_set``: nothing of it should be changed."""

    settings: Settings
    limit: int | None = None
    well_set: bool = False


@dataclass(frozen=True)
class Pace:
    """Seconds of one piece of a batch's work and of a step's own on this host."""

    batch: float
    own: float


def _plain(draw: random.Random, pace: Pace, own: float, batch: float, seconds: float, **more: Any) -> Settings:
    return {
        "steps": round(seconds / max(own, batch / max(more.get("workers", 1), 1))),
        "workers": 1,
        "own_work": max(1, round(own / pace.own)),
        "batch_work": max(1, round(batch / pace.batch)),
        "private": draw.randint(5, 40) * MB,
        "batch_bytes": draw.randint(1, 6) * MB,
    } | more


def too_few_workers(draw: random.Random, pace: Pace, seconds: float) -> Case:
    own = draw.uniform(0.03, 0.06)
    return Case(_plain(draw, pace, own, own * draw.uniform(1.4, 2.2), seconds, private=draw.randint(10, 120) * MB))


def too_few_for_slow_storage(draw: random.Random, pace: Pace, seconds: float) -> Case:
    """A batch waits most of its time, as for an answer over the network."""
    own, workers = draw.uniform(0.03, 0.06), draw.randint(1, 2)
    wait, work = own * draw.uniform(1.4, 3.5) * workers, own * draw.uniform(0.1, 0.3)
    steps = round(seconds / ((wait + work) / workers))
    return Case(_plain(draw, pace, own, work, seconds, workers=workers, batch_wait=wait, steps=steps))


def too_many_for_the_memory(draw: random.Random, pace: Pace, seconds: float) -> Case:
    own, workers, private = draw.uniform(0.03, 0.06), draw.randint(4, 6), draw.randint(60, 110) * MB
    # Steps that swap take several times as long.
    settings = _plain(draw, pace, own, own * draw.uniform(0.5, 0.8), seconds / 3, private=private, workers=workers)
    return Case(settings, round(HOT_BYTES + (workers - draw.uniform(0.5, 1.2)) * private))


def checkpoints_too_often(draw: random.Random, pace: Pace, seconds: float) -> Case:
    own = draw.uniform(0.03, 0.06)
    often = {"save_every": draw.randint(10, 25), "save_bytes": draw.randint(40, 120) * MB}
    return Case(_plain(draw, pace, own, own * draw.uniform(0.2, 0.5), seconds, **often))


def logging_each_step(draw: random.Random, pace: Pace, seconds: float) -> Case:
    own = draw.uniform(0.03, 0.06)
    lines = {"log_every": 1, "log_lines": draw.randint(4000, 9000)}
    return Case(_plain(draw, pace, own, own * draw.uniform(0.2, 0.5), seconds, **lines))


def logging_in_bursts(draw: random.Random, pace: Pace, seconds: float) -> Case:
    own = draw.uniform(0.03, 0.06)
    lines = {"log_every": draw.randint(15, 25), "log_lines": draw.randint(150_000, 300_000)}
    return Case(_plain(draw, pace, own, own * draw.uniform(0.2, 0.5), seconds, **lines))


def saving_each_step(draw: random.Random, pace: Pace, seconds: float) -> Case:
    own = draw.uniform(0.03, 0.06)
    often = {"save_every": draw.randint(1, 3), "save_bytes": draw.randint(8, 20) * MB}
    return Case(_plain(draw, pace, own, own * draw.uniform(0.2, 0.5), seconds, **often))


def slow_single_samples(draw: random.Random, pace: Pace, seconds: float) -> Case:
    """Now and then a sample takes the time of a dozen steps; workers have time to spare to make others ahead."""
    own = draw.uniform(0.03, 0.05)
    slow = {
        "workers": 2,
        "slow_every": draw.randint(40, 60),
        "slow_work": round(own * draw.uniform(10, 16) / pace.batch),
    }
    return Case(_plain(draw, pace, own, own * draw.uniform(0.2, 0.4), seconds, **slow))


def slow_answers(draw: random.Random, pace: Pace, seconds: float) -> Case:
    """The same, blocked as by a store that answers late."""
    own = draw.uniform(0.03, 0.05)
    slow = {"workers": 2, "slow_every": draw.randint(40, 60), "slow_wait": own * draw.uniform(10, 16)}
    return Case(_plain(draw, pace, own, own * draw.uniform(0.2, 0.4), seconds, **slow))


def loading_in_the_driver(draw: random.Random, pace: Pace, seconds: float) -> Case:
    """Sample by sample, without a worker."""
    own = draw.uniform(0.03, 0.06)
    batch = own * draw.uniform(0.5, 0.9)
    return Case(_plain(draw, pace, own, batch, seconds, workers=0, steps=round(seconds / (own + batch))))


def evaluating_too_often(draw: random.Random, pace: Pace, seconds: float) -> Case:
    own = draw.uniform(0.03, 0.06)
    often = {"evaluate_every": draw.randint(20, 40), "evaluate_batches": draw.randint(20, 40)}
    return Case(_plain(draw, pace, own, own * draw.uniform(0.2, 0.5), seconds, **often))


def workers_that_start_again(draw: random.Random, pace: Pace, seconds: float) -> Case:
    own = draw.uniform(0.03, 0.06)
    short = {"workers": 2, "epochs": draw.randint(8, 12), "private": draw.randint(60, 120) * MB}
    return Case(_plain(draw, pace, own, own * draw.uniform(0.2, 0.5), seconds, **short))


def well_set(draw: random.Random, pace: Pace, seconds: float) -> Case:
    own = draw.uniform(0.03, 0.06)
    return Case(_plain(draw, pace, own, own * draw.uniform(0.2, 0.4), seconds, workers=2), well_set=True)


CASES: dict[str, Callable[[random.Random, Pace, float], Case]] = {
    "too-few-workers": too_few_workers,
    "too-few-for-slow-storage": too_few_for_slow_storage,
    "too-many-for-memory": too_many_for_the_memory,
    "checkpoint-too-often": checkpoints_too_often,
    "logging-each-step": logging_each_step,
    "logging-in-bursts": logging_in_bursts,
    "saving-each-step": saving_each_step,
    "slow-single-samples": slow_single_samples,
    "slow-answers": slow_answers,
    "loading-in-the-driver": loading_in_the_driver,
    "evaluating-too-often": evaluating_too_often,
    "workers-that-start-again": workers_that_start_again,
    "well-set": well_set,
}


NAMES = {
    "num_workers": "workers", "checkpoint interval": "save_every", "log interval": "log_every",
    "prefetch_factor": "prefetch", "evaluation interval": "evaluate_every", "persistent_workers": "persistent",
}  # fmt: skip
VALUES = {"num_workers": (1, 2, 3, 4, 8), "prefetch_factor": (4, 8, 16, 32), "persistent_workers": (True,)}
TIMES = (3, 10, 100)  # the interval that it has


def grid(settings: Settings, name: str, proposed: Settings) -> Iterator[tuple[str, Settings]]:
    """Other values of the setting that a proposal calls ``name``, everything else as in ``proposed``."""
    key = NAMES.get(name)
    if key is None:
        return
    for value in VALUES.get(name) or tuple(times * settings[key] for times in TIMES):
        if value not in (settings.get(key), proposed[key]):
            yield f"{key}={value}", proposed | {key: value}


def applied(settings: Settings, proposals: list[dict[str, Any]]) -> Settings:
    """The same training with what was proposed."""
    changed = {NAMES[one["name"]]: json.loads(one["proposed"].lower()) for one in proposals if one["name"] in NAMES}
    return settings | changed
