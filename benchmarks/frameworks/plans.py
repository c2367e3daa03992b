"""The plans: for each training of ``trainings`` what is planted in it, with times and sizes drawn from a seed."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from benchmarks.stalls.plan import SCRATCH, Plan

MB = 1_000_000
Json = dict[str, Any]


@dataclass(frozen=True)
class Training:
    """What a framework's training offers. ``settings``: the framework's names of what advice has to name, by fault."""

    modules: tuple[str, ...]  # it needs these
    faults: tuple[str, ...]
    size: Json = field(default_factory=dict)  # what differs from SIZE
    settings: dict[str, str] = field(default_factory=dict)
    ends: tuple[str, ...] = ("finished", "finished", "finished", "exception", "interrupt")
    grid: int = 1  # a callback is asked after so many steps
    saves: tuple[int, int] = (60, 95)  # the framework's unit
    bare: bool = False  # there is no torch in it
    on_gpu: bool = False  # it can be moved to one
    inline: bool = False  # it loads its data in the driver, whatever the plan's `workers`


SIZE: Json = {"steps": 320, "width": 1024, "batch": 256, "workers": 2}
UNMARKED: Json = {"steps": 1100, "workers": 0, "quiet": 600}
"""Where nothing marks steps their rhythm stands after 10 s: until then nothing is planted."""
KILLED = ("finished", "finished", "exception", "interrupt", "kill_worker")
UNMARKED_ON_GPU: Json = {"steps": 3500, "width": 8192, "batch": 1024, "quiet": 2400}
"""Of some 5 ms."""
WORKERS = {"workers": "num_workers"}
TRAININGS = {
    "hf_trainer": Training(
        ("transformers", "accelerate"),
        ("saves", "frequent", "evaluation", "callback", "workers"),
        settings={
            "saves": "save_steps",
            "frequent": "save_steps",
            "evaluation": "eval_steps",
            "workers": "dataloader_num_workers",
        },
        ends=KILLED,
        on_gpu=True,
    ),
    "accelerate_loop": Training(
        ("accelerate",), ("saves", "frequent", "lock", "collections"), ends=KILLED, on_gpu=True
    ),
    "lightning_fit": Training(
        ("lightning",),
        ("saves", "frequent", "evaluation", "callback", "batch"),
        settings={
            "saves": "every_n_train_steps",
            "frequent": "every_n_train_steps",
            "evaluation": "val_check_interval",
        },
        ends=KILLED,
        on_gpu=True,
    ),
    "mmengine_run": Training(
        ("mmengine",),
        ("saves", "frequent", "evaluation", "callback", "log"),
        settings={
            "saves": "default_hooks.checkpoint.interval",
            "frequent": "default_hooks.checkpoint.interval",
            "evaluation": "train_cfg.val_interval",
        },
    ),
    "mmcv_runner": Training(
        ("mmcv.runner",),
        ("saves", "evaluation", "callback", "workers"),
        settings={
            "saves": "checkpoint_config.interval",
            "evaluation": "evaluation.interval",
            "workers": "workers_per_gpu",
        },
    ),
    "timm_train": Training(
        ("timm",), ("saves", "batch", "callback"), {"steps": 150, "batch": 4}, saves=(30, 45), on_gpu=True
    ),
    "webdataset_loop": Training(("webdataset",), ("batch", "workers", "written", "callback"), settings=WORKERS),
    "hf_datasets": Training(("datasets",), ("batch", "workers", "callback", "log"), settings=WORKERS, ends=KILLED),
    "batchgenerators_loop": Training(("batchgenerators",), ("batch", "workers", "callback")),
    "pyg_loop": Training(
        ("torch_geometric",),
        ("batch", "collections", "written"),
        {"steps": 220, "width": 256, "batch": 16},
        on_gpu=True,
    ),
    "sentence_fit": Training(
        ("sentence_transformers",),
        ("saves", "callback", "collections"),
        {"steps": 220, "width": 256, "batch": 16},
        settings={"saves": "save_steps"},
        on_gpu=True,
    ),
    "sb3_learn": Training(
        ("stable_baselines3",),
        ("saves", "callback", "log"),
        {"steps": 768, "width": 512},
        ends=("finished",),
        grid=32,
        saves=(3, 6),
    ),
    "keras_fit": Training(("keras",), ("saves", "callback", "lock")),
    "ultralytics_fit": Training(
        ("ultralytics",),
        ("saves", "callback"),
        {"steps": 120, "batch": 8},
        settings={"saves": "save=False"},
        ends=("finished",),
        saves=(20, 20),
        inline=True,  # on a CPU
    ),
    "torchrun_ddp": Training(
        ("torch",),
        ("saves", "callback", "log"),
        {"steps": 240, "width": 384, "batch": 64},
        ends=("finished",),
        inline=True,
    ),
    "notebook": Training(("nbclient", "ipykernel"), ("saves", "callback", "batch", "collections"), ends=("finished",)),
    "flax_train": Training(
        ("flax", "optax", "orbax.checkpoint"),
        ("saves", "callback"),
        UNMARKED,
        ends=("finished",),
        bare=True,
        on_gpu=True,
    ),
    "keras_tf": Training(("keras", "tensorflow"), ("saves", "callback"), UNMARKED, ends=("finished",), bare=True),
}
CAUSES = {
    "saves": "checkpoint",
    "frequent": "checkpoint",
    "written": "checkpoint",
    "evaluation": "evaluation",
    "callback": "cpu_bound",
    "collections": "gc_pause",
    "batch": "data_cpu",
    "workers": "data_cpu",
    "log": "logging",
    "lock": "unknown",
}
APART = frozenset({"frequent", "workers"})
"""They slow every step: nothing else is planted beside them."""


def make(name: str, seed: int, number: int = 0, device: str = "cpu") -> Plan:
    """The ``number``-th plan of a training. ``how`` names its faults; ``tags`` the settings that advice has to name."""
    training, draw = TRAININGS[name], random.Random(f"{seed}/{name}/{number}")
    faults = [draw.choice(training.faults)]
    others = [one for one in training.faults if CAUSES[one] != CAUSES[faults[0]] and one not in APART]
    if faults[0] not in APART and others and draw.random() < 0.5:
        faults.append(draw.choice(others))
    given: Json = SIZE | training.size | {"seed": draw.randrange(1, 10_000), "scratch": SCRATCH, "device": device}
    if training.bare and device == "cuda":
        given |= UNMARKED_ON_GPU
    if name == "ultralytics_fit":
        given["save_every"] = training.saves[0]
    if name == "torchrun_ddp":
        given["eval_batches"] = 2 * given["steps"]  # of two ranks
    if training.inline:
        given["inline"] = True
    for position, fault in enumerate(faults):
        PLANTERS[fault](given, training, draw, position)
    end = draw.choice(training.ends)
    if end != "finished":
        given["end"] = {"how": end, "step": draw.randint(given["steps"] * 3 // 4, given["steps"] - 12)}
        for slow in given.get("data", []):  # a loader that a failure closes waits for a batch that the clock never sees
            slow["at"] = {batch: size for batch, size in slow["at"].items() if int(batch) < given["end"]["step"]}
    causes = tuple(dict.fromkeys(CAUSES[fault] for fault in faults))
    return Plan(
        key=f"{name}/{number}",
        cause=causes[0],
        kind="bottleneck" if faults[0] in APART else "stall",
        style=name,
        how=", ".join([*faults, *([end] if end != "finished" else [])]),
        seed=seed,
        training=given,
        tags=tuple(dict.fromkeys(training.settings[fault] for fault in faults if fault in training.settings)),
        both=causes,
    )


def _times(
    given: Json, training: Training, draw: random.Random, position: int, size: Callable[[], float]
) -> dict[str, float]:
    """step -> size, three or four times; a second fault comes between those of the first."""
    quiet, grid = given.get("quiet", 0), training.grid
    steps = given["steps"]
    gap = (steps - quiet) // 5
    first = quiet + max((steps - quiet) // 8, 24) + position * gap // 2
    spread = gap // 6
    drawn = (start + draw.randint(-spread, spread) for start in range(first, steps - 10, gap))
    at = (step if grid == 1 else step // grid * grid + grid - 1 for step in drawn)
    return {str(step): round(size(), 3) for step in at if step < steps - 1}


def _saves(given: Json, training: Training, draw: random.Random, _: int) -> None:
    given["save_every"] = draw.randint(*training.saves)
    given["payload"] = draw.randint(150, 350) * MB


def _frequent(given: Json, _: Training, draw: random.Random, __: int) -> None:
    given["save_every"], given["payload"] = draw.randint(1, 3), draw.randint(10, 30) * MB


def _evaluation(given: Json, _: Training, draw: random.Random, __: int) -> None:
    given["eval_every"], given["eval_batches"] = draw.randint(70, 120), draw.randint(25, 50)


def _driver(cause: str, how: tuple[str, ...], low: float, high: float, **more: Any) -> Callable[..., None]:
    def plant(given: Json, training: Training, draw: random.Random, position: int) -> None:
        at = _times(given, training, draw, position, lambda: draw.uniform(low, high))
        fault = {"id": position, "cause": cause, "how": draw.choice(how), "at": at, **more}
        given.setdefault("driver", []).append(fault)

    return plant


def _lock(given: Json, training: Training, draw: random.Random, position: int) -> None:
    at = _times(given, training, draw, position, lambda: draw.uniform(0.4, 1.6))
    given["locks"] = [{"id": position, "cause": "unknown", "at": at}]


def _batch(given: Json, training: Training, draw: random.Random, position: int) -> None:
    at = _times(given, training, draw, position, lambda: draw.uniform(0.9, 2.0))
    given["data"] = [{"id": position, "cause": "data_cpu", "how": draw.choice(("busy", "numeric")), "at": at}]


def _workers(given: Json, _: Training, draw: random.Random, position: int) -> None:
    """Each batch costs the one worker more than a step; two would want the driver's processor on a small host."""
    given["workers"] = 1
    at = {str(batch): round(draw.uniform(0.1, 0.16), 3) for batch in range(given["steps"] + 8)}
    given["data"] = [{"id": position, "cause": "data_cpu", "how": "busy", "at": at}]


PLANTERS: dict[str, Callable[[Json, Training, random.Random, int], None]] = {
    "saves": _saves,
    "frequent": _frequent,
    "evaluation": _evaluation,
    "callback": _driver("cpu_bound", ("busy",), 0.4, 1.8),
    "collections": _driver("gc_pause", ("lists", "dictionaries", "cycles"), 0.4, 1.2),
    "log": _driver("logging", ("fsync_lines", "open_append_close", "event_file"), 0.4, 1.2, directory=SCRATCH),
    "written": _driver("checkpoint", ("mkstemp_rename", "save_file_fsync"), 150 * MB, 350 * MB, directory=SCRATCH),
    "lock": _lock,
    "batch": _batch,
    "workers": _workers,
}
