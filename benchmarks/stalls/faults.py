"""Plans per cause: times, sizes, forms and training styles drawn from a seed, so that a run can be repeated exactly."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from benchmarks.stalls.plan import SCRATCH, SLOW, Device, Plan

MB = 1_000_000
SIZES: dict[str, tuple[int, int]] = {  # style -> width, batch: 40 to 65 ms a step on one core of 2024
    "plain": (1024, 320),
    "trainer": (1024, 256),
    "lightning_fit": (1024, 288),
    "handmade": (1024, 320),
    "gan": (640, 224),
    "lbfgs": (384, 224),
    "accumulate": (1024, 64),
    "activation": (768, 288),
    "amp": (1024, 288),
    "ddp_launch": (768, 128),
}
STEP_SECONDS = 0.036
"""A step is not shorter, on any host and with whatever style."""
ALL = tuple(SIZES)
LOOPS = ("plain", "trainer", "lightning_fit", "handmade", "gan", "accumulate", "activation", "amp")
LOADERS = ("plain", "trainer", "lightning_fit", "gan", "amp")  # those with a DataLoader whose batches are steps
FAST = (64, 16)
LOOKALIKES = (
    ("gan", ""),
    ("lbfgs", ""),
    ("accumulate", ""),
    ("activation", "reentrant"),
    ("activation", "saved"),
    ("amp", ""),
    ("plain", ""),
    ("trainer", ""),
    ("lightning_fit", ""),
    ("handmade", ""),
    ("ddp_launch", ""),
)


def make(cause: str, number: int, seed: int, styles: Sequence[str] = ALL, scale: float = 1.0) -> Plan:
    """The ``number``-th run of a cause. ``scale`` shortens or stretches the training, not the faults.

    Forms rotate with the number, so that a handful of runs covers them; everything else is drawn.
    """
    rng = random.Random(f"{seed}/{cause}/{number}")
    return GENERATORS[cause](Draw(cause, number, rng, tuple(styles), scale))


class Draw:
    """The random choices of one plan."""

    def __init__(self, cause: str, number: int, rng: random.Random, styles: tuple[str, ...], scale: float) -> None:
        self.cause, self.number, self.rng, self._styles, self.scale = cause, number, rng, styles, scale

    def turn(self, choices: Sequence[Any]) -> Any:
        return choices[self.number % len(choices)]

    def style(self, fitting: Sequence[str]) -> str:
        able = [style for style in fitting if style in self._styles] or list(fitting)
        return able[(self.number + self.number // len(able)) % len(able)]

    def times(
        self, steps: int, size: Callable[[], float], low: int = 45, high: int = 80, first: int = 40
    ) -> dict[str, float]:
        """step -> size, every ``low`` to ``high`` steps (one draw), each shifted a little."""
        period = max(int(self.rng.randint(low, high) * self.scale), 12)
        start = self.rng.randint(first, first + 15)
        return {str(step + self.rng.randint(-4, 4)): round(size(), 3) for step in range(start, steps - 8, period)}

    def plan(
        self, style: str, how: str, kind: str = "stall", *, steps: int | None = None, workers: int = 2,
        driver: list[dict[str, Any]] | None = None, data: list[dict[str, Any]] | None = None,
        device: Device | None = None, kill_after: float | None = None, stdout_rate: int | None = None, **training: Any,
    ) -> Plan:  # fmt: skip
        width, batch = SIZES[style]
        reads: dict[str, Any] = {
            "seed": self.rng.randrange(1 << 30), "width": width, "batch": batch, "workers": workers,
            "steps": steps or self.steps(), "scratch": SCRATCH, "driver": driver or [], "data": data or [],
        } | training  # fmt: skip
        faults: list[dict[str, Any]] = reads["driver"] + reads["data"]
        for identity, fault in enumerate(faults):
            fault.update(id=identity, cause=self.cause)
        return Plan(
            f"{self.cause}/{self.number}",
            self.cause,
            kind,
            style,
            how,
            reads["seed"],
            reads,
            device,
            kill_after,
            stdout_rate=stdout_rate,
        )

    def outside(self, act: str, style: str, seconds: Callable[[], float]) -> Plan:
        """Something done to the training from outside, every four to seven seconds, and steps enough to feel it."""
        at, acts = self.rng.uniform(8, 9), []
        while at < max(20 * self.scale, 10):
            acts.append((act, round(at, 2), round(seconds(), 2)))
            at += self.rng.uniform(4, 7)
        _, last, lasts = acts[-1]
        return replace(self.plan(style, act, steps=int((last + lasts) / STEP_SECONDS)), outside=tuple(acts))

    def steps(self) -> int:
        """At about 20 steps/s with the faults beside them: 20 to 30 seconds."""
        return max(int(self.rng.randint(270, 350) * self.scale), 60)


def checkpoint(draw: Draw) -> Plan:
    how = draw.turn(
        (
            "save_path_fsync",
            "save_path",
            "mkstemp_rename",
            "copy_across",
            "safetensors_like",
            "save_file",
            "positioned",
            "save_file_fsync",
        )
    )
    style = draw.style((*LOOPS, "ddp_launch", "lbfgs"))
    steps = draw.steps()
    synced = how not in ("save_path", "save_file", "copy_across")
    if synced:
        rate = draw.rng.randrange(60, 200) * MB
        size = lambda: rate * draw.rng.uniform(0.45, 1.8)  # noqa: E731
        device, where = Device(write_rate=rate), SLOW
    else:
        size = lambda: draw.rng.uniform(200, 400) * MB  # noqa: E731
        device, where = None, SCRATCH
    return draw.plan(
        style, how, steps=steps, device=device,
        driver=[{"how": how, "directory": where, "at": draw.times(steps, size)}],
    )  # fmt: skip


def logging(draw: Draw) -> Plan:
    how, kind = draw.turn(
        (("fsync_lines", "stall"), ("print_blob", "stall"), ("fsync_lines", "bottleneck"),
         ("event_file", "stall"), ("open_append_close", "stall"), ("open_append_close", "bottleneck"))
    )  # fmt: skip
    style, steps = draw.style((*LOOPS, "lbfgs")), draw.steps()
    if kind == "bottleneck":
        fault = {"how": how, "directory": SCRATCH, "every": 1, "size": round(draw.rng.uniform(0.012, 0.03), 4)}
        return draw.plan(style, how + ", each step", kind, driver=[fault])
    rate = None
    if how == "print_blob":
        rate = draw.rng.randrange(150, 400) * 1000
        seconds = lambda: 65_536 + rate * draw.rng.uniform(0.5, 1.4)  # noqa: E731
    else:
        seconds = lambda: draw.rng.uniform(0.4, 1.5)  # noqa: E731
    fault = {"how": how, "directory": SCRATCH, "at": draw.times(steps, seconds)}
    return draw.plan(style, how, steps=steps, driver=[fault], stdout_rate=rate)


def data_cpu(draw: Draw) -> Plan:
    how, kind = draw.turn((("busy", "stall"), ("numeric", "bottleneck"), ("numeric", "stall"), ("busy", "bottleneck")))
    style = draw.style((*LOADERS, "handmade"))
    if kind == "bottleneck":
        fault: dict[str, Any] = {"how": how, "every_batch": round(draw.rng.uniform(0.075, 0.11), 4)}
        return draw.plan(style, how + ", each batch", kind, workers=1, steps=int(draw.steps() * 0.65), data=[fault])
    steps = draw.steps()
    fault = {"how": how, "at": draw.times(steps, lambda: draw.rng.uniform(0.7, 2.0))}
    return draw.plan(style, how, steps=steps, data=[fault])


def data_storage(draw: Draw) -> Plan:
    how, kind, workers = draw.turn(
        (
            ("read", "stall", 2),
            ("read", "bottleneck", 2),
            ("read", "stall", 0),
            ("read", "bottleneck", 1),
            ("map", "stall", 2),
        )
    )
    style, rate = draw.style((*LOADERS, "handmade")), draw.rng.randrange(20, 50) * MB
    if kind == "bottleneck":
        size = int(rate * draw.rng.uniform(0.08, 0.11))
        fault: dict[str, Any] = {"how": how, "every_batch": 1, "files": _files(24)}
        return draw.plan(
            style, how + ", each batch", kind, workers=workers, steps=int(draw.steps() * 0.65), data=[fault],
            device=Device(read_rate=rate, files=24, file_bytes=size),
        )  # fmt: skip
    steps = draw.steps()
    fault = {"how": how, "at": draw.times(steps, lambda: 1.0), "files": _files(8)}
    size = int(rate * draw.rng.uniform(0.6, 1.5))
    return draw.plan(
        style, how, workers=workers, steps=steps, data=[fault], device=Device(read_rate=rate, files=8, file_bytes=size)
    )


def data_inline(draw: Draw) -> Plan:
    how, kind = draw.turn((("busy", "bottleneck"), ("busy", "stall"), ("numeric", "bottleneck"), ("numeric", "stall")))
    style = draw.style(LOADERS)
    if kind == "bottleneck":
        fault: dict[str, Any] = {"how": how, "every_batch": round(draw.rng.uniform(0.02, 0.05), 4)}
        return draw.plan(style, how + ", each batch", kind, workers=0, data=[fault])
    steps = draw.steps()
    fault = {"how": how, "at": draw.times(steps, lambda: draw.rng.uniform(0.4, 1.5))}
    return draw.plan(style, how, workers=0, steps=steps, data=[fault])


def worker_startup(draw: Draw) -> Plan:
    how = draw.turn(("spawn", "forkserver"))
    style = draw.style(("plain", "trainer", "lightning_fit"))
    epoch, epochs = draw.rng.randint(48, 70), draw.rng.randint(4, 5)
    return draw.plan(style, how, steps=epoch * max(round(epochs * draw.scale), 3), epoch_steps=epoch, context=how)


def worker_death(draw: Draw) -> Plan:
    how = draw.turn(("sigkill", "exit", "segfault"))
    # Not the hand-made loader: a worker that dies in the middle of a message leaves it waiting for ever (tests/replay
    # has that), and its clock untold.
    style = draw.style(("plain", "trainer", "lightning_fit", "amp"))
    if how == "sigkill":
        return draw.plan(
            style, how, "end", steps=600, kill_after=round(max(draw.rng.uniform(7, 15) * draw.scale, 5), 2)
        )
    fault = {"how": how, "at": {str(int(draw.rng.randint(120, 320) * draw.scale)): 3}}
    return draw.plan(style, how, "end", steps=600, data=[fault])


def cpu_bound(draw: Draw) -> Plan:
    style, steps = draw.style((*LOOPS, "lbfgs", "ddp_launch")), draw.steps()
    hook = draw.turn(("after", "before")) if style in ("plain", "trainer", "lightning_fit", "handmade") else "after"
    fault = {"how": "python", "hook": hook, "at": draw.times(steps, lambda: draw.rng.uniform(0.35, 1.5))}
    return draw.plan(style, hook, steps=steps, driver=[fault])


def gc_pause(draw: Draw) -> Plan:
    """Full collections of a large heap; where the interpreter has no probes of its own they cannot be told."""
    how, style, steps = draw.turn(("lists", "cycles", "dictionaries")), draw.style((*LOOPS, "lbfgs")), draw.steps()
    fault = {"how": how, "at": draw.times(steps, lambda: draw.rng.uniform(0.35, 1.2))}
    return draw.plan(style, how, steps=steps, driver=[fault])


def storage_hang(draw: Draw) -> Plan:
    how, style, steps = draw.turn(("write", "create", "rename")), draw.style((*LOOPS, "lbfgs")), draw.steps()
    fault = {"how": how, "directory": SLOW, "at": draw.times(steps, lambda: draw.rng.uniform(1.5, 3.5), 80, 120)}
    return draw.plan(style, how, steps=steps, driver=[fault], device=Device())


def network(draw: Draw) -> Plan:
    style, steps = draw.style((*LOOPS, "lbfgs")), draw.steps()
    fault = {"how": "slow_peer", "directory": "", "at": draw.times(steps, lambda: draw.rng.uniform(0.4, 2.0))}
    return draw.plan(style, "slow_peer", steps=steps, driver=[fault])


def worker_hang(draw: Draw) -> Plan:
    how, style, steps = draw.turn(("sleep", "socket")), draw.style((*LOADERS, "handmade")), draw.steps()
    fault = {"how": how, "at": draw.times(steps, lambda: draw.rng.uniform(1.5, 4.0), 80, 120)}
    return draw.plan(style, how, steps=steps, data=[fault])


def deadlock(draw: Draw) -> Plan:
    style, steps = draw.style((*LOADERS, "handmade")), int(draw.steps() * 0.7)
    at = draw.rng.randint(60, 100)
    fault = {"how": "lock", "at": {str(at): round(draw.rng.uniform(7, 10), 2)}}
    return draw.plan(style, "lock", steps=max(steps, at + 20), data=[fault])


def suspended(draw: Draw) -> Plan:
    return draw.outside("stop", draw.style((*LOOPS, "lbfgs")), lambda: draw.rng.uniform(0.4, 2.0))


def cpu_throttled(draw: Draw) -> Plan:
    return draw.outside("quota", draw.style(LOOPS), lambda: draw.rng.uniform(1.0, 2.0))


def cpu_contention(draw: Draw) -> Plan:
    return draw.outside("hogs", draw.style(LOOPS), lambda: draw.rng.uniform(1.0, 2.0))


def collective_wait(draw: Draw) -> Plan:
    """Rank 1 is slow in what it does itself; rank 0, whose clock is read, waits for it."""
    steps = draw.steps()
    fault = {"how": "python", "at": draw.times(steps, lambda: draw.rng.uniform(0.5, 1.5))}
    plan = draw.plan("ddp_launch", "python in rank 1", steps=steps, driver=[fault], faulty_rank=1)
    fault["cause"] = "cpu_bound"
    return plan


def fake_batching(draw: Draw) -> Plan:
    pieces = draw.turn((16, 8, 32))
    fault: dict[str, Any] = {"how": "busy", "every_batch": round(draw.rng.uniform(0.03, 0.05), 4)}
    return draw.plan(
        "plain", f"{pieces} fetches a step", "bottleneck", workers=0, data=[fault], pieces=pieces,
        epoch_steps=1 << 20,
    )  # fmt: skip


def drift(draw: Draw) -> Plan:
    """Python work that grows with the steps, to half of an ordinary step at the end."""
    style, steps = draw.style(("plain", "trainer", "handmade")), draw.steps() * 2
    grow = round(draw.rng.uniform(0.018, 0.03) / steps, 8)
    return draw.plan(style, "grows", "bottleneck", steps=steps, driver=[{"how": "python", "every": 1, "size": grow}])


def checkpoint_unsafe(draw: Draw) -> Plan:
    """The only checkpoint there is, written over in place: a stall by its time, and a warning."""
    style, steps = draw.style(LOOPS), draw.steps()
    size = lambda: draw.rng.uniform(200, 400) * MB  # noqa: E731
    fault = {"how": "in_place", "directory": SCRATCH, "at": draw.times(steps, size)}
    plan = draw.plan(style, "in_place", steps=steps, driver=[fault])
    fault["cause"] = "checkpoint"
    return replace(plan, cause="checkpoint", tags=("unsafe",))


def evaluation(draw: Draw) -> Plan:
    how = draw.turn(("with_loader", "by_hand"))
    style, steps = draw.style(("plain", "trainer", "handmade", "amp", "lightning_fit", "accumulate")), draw.steps()
    fault = {"how": how, "at": draw.times(steps, lambda: draw.rng.uniform(1.0, 3.0), 80, 130, 50)}
    return draw.plan(style, how, "none", steps=steps, driver=[fault])


def startup(draw: Draw) -> Plan:
    how = draw.turn(("python", "wait", "numeric"))
    slow = {"how": how, "seconds": round(draw.rng.uniform(4, 8), 2)}
    return draw.plan(draw.style(("plain", "trainer", "handmade", "gan")), how, "none", startup=slow)


def none(draw: Draw) -> Plan:
    how = draw.turn(("events", "jitter", "async_save", "omp", "stores", "wandb", "cache", "pth", "neighbour"))
    style, steps = draw.style(ALL), draw.steps()
    if how == "jitter":
        return draw.plan("plain", how, "none", steps=steps, jitter=0.35, background=["events"])
    if how in ("stores", "cache"):
        at = {str(batch): float(4 * MB) for batch in range(30, steps, 25)}
        data = [{"how": how.removesuffix("s"), "directory": SCRATCH, "at": at}]
        style = draw.style((*LOADERS, "handmade"))
        return draw.plan(style, how, "none", steps=steps, data=data, background=["events", "wandb"])
    if how in BESIDE:  # one core each, so that they do not take this one's
        plan = draw.plan(draw.style(LOOPS), how, "none", steps=steps, workers=1, background=["events"])
        return replace(plan, outside=((how, round(draw.rng.uniform(6, 8), 2), round(draw.rng.uniform(8, 14), 2)),))
    return draw.plan(style, how, "none", steps=steps, background=[how])


BESIDE = ("pth", "neighbour")
"""Programs beside a clean training: one that is none and writes large .pth files, a training that stalls."""
PAIRS = (
    ("checkpoint", "data_cpu"), ("cpu_bound", "data_storage"), ("logging", "worker_hang"), ("network", "data_cpu"),
    ("storage_hang", "cpu_bound"), ("gc_pause", "checkpoint"), ("logging", "data_storage"), ("network", "cpu_bound"),
    ("checkpoint", "worker_hang"), ("gc_pause", "data_cpu"),
)  # fmt: skip


def two(draw: Draw) -> Plan:
    """Two causes in one run, each with times of its own; now and then they meet in one step."""
    causes, style = draw.turn(PAIRS), draw.style(LOADERS)
    one = _stalling(draw, causes[0], style, device=True)
    other = _stalling(draw, causes[1], style, device=one.device is None)
    kinds = ("driver", "data")
    planted = {kind: [*one.training[kind], *other.training[kind]] for kind in kinds}
    for identity, fault in enumerate([*planted["driver"], *planted["data"]]):
        fault["id"] = identity
    steps = max(plan.training["steps"] for plan in (one, other))
    return replace(
        one, key=f"two/{draw.number}", cause="two", how=" + ".join(causes), both=causes,
        training=one.training | planted | {"steps": steps}, device=one.device or other.device,
        stdout_rate=one.stdout_rate or other.stdout_rate,
    )  # fmt: skip


def _stalling(draw: Draw, cause: str, style: str, *, device: bool) -> Plan:
    """A plan of a cause with stalls and two workers, which may or may not need a device of its own."""
    while True:
        part = Draw(cause, draw.rng.randrange(1000), draw.rng, (style,), draw.scale)
        plan = GENERATORS[cause](part)
        fits = plan.kind == "stall" and plan.style == style and plan.training["workers"] == 2
        if fits and (device or plan.device is None):
            return plan


def lookalike(draw: Draw, steps: int = 600) -> Plan:
    """Many fast steps, to count them: each style in turn, both kinds of activation checkpointing, skips by AMP."""
    style, variant = draw.turn(LOOKALIKES)
    skipped = sorted(draw.rng.sample(range(20, steps), steps // 20)) if style == "amp" else []
    width, batch = FAST
    return draw.plan(
        style,
        variant or style,
        "none",
        steps=steps,
        workers=1,
        width=width,
        batch=batch,
        variant=variant,
        overflow=skipped,
    )


def _files(count: int) -> list[str]:
    return [f"{SLOW}/shard-{number}.bin" for number in range(count)]


GENERATORS: dict[str, Callable[[Draw], Plan]] = {
    maker.__name__: maker
    for maker in (
        checkpoint, logging, data_cpu, data_storage, data_inline, worker_startup, worker_death, cpu_bound,
        storage_hang, network, worker_hang, deadlock, suspended, cpu_throttled, cpu_contention, collective_wait,
        fake_batching, drift, checkpoint_unsafe, gc_pause, evaluation, startup, none, two, lookalike,
    )
}  # fmt: skip
CAUSES = tuple(name for name in GENERATORS if name not in ("lookalike", "two"))
