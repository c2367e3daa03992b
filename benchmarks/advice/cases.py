"""Trainings with a setting that is wrong, drawn anew each time: how wrong, and what the training is like otherwise."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
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


ON_CPU, DECODED = 0.1, 0.1
"""Of a step, and of a batch, the part that computes; the rest waits, as for a GPU and for a store."""


def _plain(draw: random.Random, pace: Pace, own: float, batch: float, seconds: float, **more: Any) -> Settings:
    """``own``: seconds of a step without its data, ``batch``: in which a worker makes one."""
    workers = more.get("workers", 1)
    return {
        "steps": round(seconds / (max(own, batch / workers) if workers else own + batch)),
        "workers": 1,
        "own_work": max(1, round(ON_CPU * own / pace.own)),
        "pause": (1 - ON_CPU) * own,
        "batch_work": max(1, round(DECODED * batch / pace.batch)),
        "batch_wait": (1 - DECODED) * batch,
        "private": draw.randint(5, 40) * MB,
        "batch_bytes": draw.randint(1, 6) * MB,
    } | more


def _easy(draw: random.Random, pace: Pace, seconds: float, **more: Any) -> Case:
    """A training whose workers keep up, but for what ``more`` sets."""
    own = draw.uniform(0.03, 0.06)
    return Case(_plain(draw, pace, own, own * draw.uniform(0.2, 0.4), seconds, **more))


def too_few_workers(draw: random.Random, pace: Pace, seconds: float) -> Case:
    own = draw.uniform(0.03, 0.06)
    return Case(_plain(draw, pace, own, own * draw.uniform(1.5, 2.5), seconds, private=draw.randint(10, 120) * MB))


def too_few_for_slow_storage(draw: random.Random, pace: Pace, seconds: float) -> Case:
    """A batch waits nearly all of its time, as for an answer over the network."""
    own, workers = draw.uniform(0.03, 0.06), 2
    wait, work = own * draw.uniform(1.8, 3.0) * workers, own * 0.1
    steps = round(seconds * workers / wait)
    more = {"workers": workers, "batch_wait": wait, "batch_work": round(work / pace.batch), "steps": steps}
    return Case(_plain(draw, pace, own, work, seconds, **more))


def too_many_for_the_memory(draw: random.Random, pace: Pace, seconds: float) -> Case:
    own, workers, private = draw.uniform(0.03, 0.06), draw.randint(4, 6), draw.randint(60, 110) * MB
    # Steps that swap take several times as long.
    settings = _plain(draw, pace, own, own * draw.uniform(0.5, 0.8), seconds / 3, private=private, workers=workers)
    settings["steps"] = round(seconds / 3 / own)
    return Case(settings, round(HOT_BYTES + (workers - draw.uniform(0.5, 1.2)) * private))


def checkpoints_too_often(draw: random.Random, pace: Pace, seconds: float) -> Case:
    return _easy(draw, pace, seconds, save_every=draw.randint(10, 25), save_bytes=draw.randint(40, 120) * MB)


def saving_each_step(draw: random.Random, pace: Pace, seconds: float) -> Case:
    return _easy(draw, pace, seconds, save_every=draw.randint(1, 3), save_bytes=draw.randint(8, 20) * MB)


def logging_each_step(draw: random.Random, pace: Pace, seconds: float) -> Case:
    return _easy(draw, pace, seconds, log_every=1, log_lines=draw.randint(4000, 9000))


def logging_in_bursts(draw: random.Random, pace: Pace, seconds: float) -> Case:
    return _easy(draw, pace, seconds, log_every=draw.randint(15, 25), log_lines=draw.randint(150_000, 300_000))


def slow_single_samples(draw: random.Random, pace: Pace, seconds: float) -> Case:
    """Now and then a sample takes the time of a dozen steps; workers have time to spare to make others ahead."""
    slow = round(draw.uniform(0.6, 0.8) / pace.batch)
    return _easy(draw, pace, seconds, workers=2, slow_every=draw.randint(25, 35), slow_work=slow)


def slow_answers(draw: random.Random, pace: Pace, seconds: float) -> Case:
    """The same, blocked as by a store that answers late."""
    slow = {"slow_every": draw.randint(25, 35), "slow_wait": draw.uniform(0.8, 1.0)}
    return _easy(draw, pace, seconds, workers=2, **slow)


def too_little_ahead(draw: random.Random, pace: Pace, seconds: float) -> Case:
    """Every few batches one takes the time of four to six steps, and each worker has one batch ahead."""
    slow = {"slow_every": draw.randint(7, 11), "slow_wait": draw.uniform(0.2, 0.25)}
    return _easy(draw, pace, seconds, workers=2, prefetch=1, **slow)


def fake_batching(draw: random.Random, pace: Pace, seconds: float) -> Case:
    """The loop calls next() for each piece of a batch, on a loader of small batches without workers."""
    own = draw.uniform(0.03, 0.06)
    return Case(_plain(draw, pace, own, own * draw.uniform(0.6, 0.9), seconds, workers=0, pieces=draw.choice((16, 32))))


def loading_in_the_driver(draw: random.Random, pace: Pace, seconds: float) -> Case:
    """Sample by sample, without a worker."""
    own = draw.uniform(0.03, 0.06)
    return Case(_plain(draw, pace, own, own * draw.uniform(0.5, 0.9), seconds, workers=0))


def evaluating_too_often(draw: random.Random, pace: Pace, seconds: float) -> Case:
    often = {"evaluate_every": draw.randint(20, 40), "evaluate_batches": draw.randint(20, 40)}
    return _easy(draw, pace, seconds, evaluate_seconds=draw.uniform(0.01, 0.02), **often)


def workers_that_start_again(draw: random.Random, pace: Pace, seconds: float) -> Case:
    """Each opens its part of the data set anew, over the network."""
    short = {"workers": 2, "epochs": draw.randint(8, 12), "open_wait": draw.uniform(0.3, 0.5)}
    return _easy(draw, pace, seconds, **short)


def well_set(draw: random.Random, pace: Pace, seconds: float) -> Case:
    return replace(_easy(draw, pace, seconds, workers=2), well_set=True)


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
    "too-little-ahead": too_little_ahead,
    "fake-batching": fake_batching,
    "loading-in-the-driver": loading_in_the_driver,
    "evaluating-too-often": evaluating_too_often,
    "workers-that-start-again": workers_that_start_again,
    "well-set": well_set,
}


NAMES = {
    "num_workers": "workers", "checkpoint interval": "save_every", "log interval": "log_every",
    "prefetch_factor": "prefetch", "evaluation interval": "evaluate_every", "persistent_workers": "persistent",
}  # fmt: skip
VALUES = {"num_workers": (1, 2, 4, 6), "prefetch_factor": (4, 16), "persistent_workers": (True,)}
TIMES = (2, 4, 10)  # the interval that it has


def grid(case: Case, name: str, proposed: Settings) -> Iterator[tuple[str, Settings]]:
    """Other values of the setting that a proposal calls ``name``, everything else as in ``proposed``. Where memory is
    limited, only smaller ones than it has: with more the kernel kills it. Intervals longer than the run are no setting:
    nothing would be saved, logged or evaluated."""
    key = NAMES.get(name)
    if key is None:
        return
    has = case.settings.get(key)
    for value in VALUES.get(name) or tuple(times * case.settings[key] for times in TIMES):
        longest = case.settings["steps"] if name.endswith("interval") else value
        if value in (has, proposed[key]) or value > longest or (case.limit is not None and value > has):
            continue
        yield f"{key}={value}", proposed | {key: value}


def applied(settings: Settings, proposals: list[dict[str, Any]]) -> Settings:
    """The same training with what was proposed; a batch_size is proposed as a multiple, "x16"."""
    changed = {NAMES[one["name"]]: json.loads(one["proposed"].lower()) for one in proposals if one["name"] in NAMES}
    if any(one["name"] == "batch_size" for one in proposals):
        changed["pieces"] = 1
    return settings | changed
