"""What may run out, drawn at random: how to bring it about, and what the report must say of it."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from benchmarks.limits import places
from benchmarks.limits.places import Place

MB = 1 << 20
TORCH = 160 * MB
"""What a training with one worker takes before it does anything."""
BEGUN = 260 * MB
"""What it takes after its first steps."""
Rank: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """One run. ``around`` makes the place for it and wraps its command; ``ends``: the verdict's cause, "" where a
    person ended it, None where it goes on to its end; ``warned``: so it is told before, or without an end."""

    program: str
    arguments: list[object]
    ends: str | None
    warned: str | None = None
    around: Place = places.anywhere
    stalls_by: str | None = None  # the verdict's cause where the run goes on
    kill_after: float | None = None


def fd_exhaustion(rng: random.Random) -> Case:
    limit, pause = rng.randrange(250, 400), round(rng.uniform(0.08, 0.15), 3)
    arguments = ["--keep", "--descriptors", limit, "--steps", 5000, "--pause", pause]
    return Case("exhaust", arguments, "fd_exhaustion", "fd_exhaustion")


def shm_exhaustion(rng: random.Random) -> Case:
    mount = f'mount -t tmpfs -o size={rng.randrange(24, 48)}m none /dev/shm && exec "$@"'
    arguments = ["--width", rng.randrange(50_000, 80_000), "--batch", 32, "--prefetch", 8, "--pause", 0.3]
    return Case(
        "exhaust", arguments, "shm_exhaustion", None, places.wrapped("unshare", "--mount", "sh", "-c", mount, "sh")
    )


def oom_kill(rng: random.Random) -> Case:
    leak, limit = rng.randrange(800_000, 2_500_000), rng.randrange(700, 1000) * MB
    around = places.grouped("memory", "memory.limit_in_bytes", limit)
    return Case("exhaust", ["--leak-bytes", leak, "--steps", 5000], "oom_kill", "oom_kill", around)


def oom_kill_at_once(rng: random.Random) -> Case:
    """Too fast to be seen coming: the report still knows whose limit it was."""
    around = places.grouped("memory", "memory.limit_in_bytes", rng.randrange(700, 1000) * MB)
    return Case("exhaust", ["--leak-bytes", 60 * MB, "--steps", 5000], "oom_kill", None, around)


def fits(rng: random.Random) -> Case:
    """A cache that is filled in the first seconds, and rests near the limit: nothing is to be warned of."""
    filled, steps = rng.randrange(100, 400) * MB, rng.randrange(15, 90)
    limit = int((BEGUN + filled) * rng.uniform(1.1, 1.5))
    arguments = ["--leak-bytes", filled // steps, "--leak-steps", steps, "--steps", 600]
    return Case("exhaust", arguments, None, None, places.grouped("memory", "memory.limit_in_bytes", limit))


def killed(rng: random.Random) -> Case:
    return Case("exhaust", ["--steps", 3000], "", kill_after=rng.uniform(6, 12))


def disk_full(rng: random.Random) -> Case:
    size = rng.randrange(26, 36) * MB
    arguments = ["--save", "{disk}", "--save-bytes", size, "--every", 120, "--workers", 0, "--steps", 1200]
    return Case("exhaust", arguments, "disk_full", "disk_full", places.small_disk(rng.randrange(85, 130) * MB))


def pid_exhaustion(rng: random.Random) -> Case:
    around = places.grouped("pids", "pids.max", rng.randrange(120, 260))
    return Case("exhaust", ["--threads", "--steps", 3000, "--pause", 0.08], "pid_exhaustion", None, around)


def swap(rng: random.Random) -> Case:
    """Memory that a step needs has gone to swap."""
    held, every = rng.randrange(250, 400) * MB, rng.choice([1, 4, 12])
    use = ["--hold-bytes", held, "--touch-bytes", rng.randrange(10, 15) * MB * min(every, 8)]
    arguments = [*use, "--first", rng.randrange(100, 140), "--every", every, "--steps", 260]
    around = places.swapping(held - rng.randrange(20, 80) * MB)
    return Case("exhaust", arguments, None, None, around, stalls_by="swap")


def memory_pressure(rng: random.Random) -> Case:
    """Steps that take new memory must first free some that nobody needs."""
    fresh = rng.randrange(60, 110) * MB
    arguments = ["--fresh-bytes", fresh, "--first", rng.randrange(100, 140), "--every", rng.randrange(8, 20)]
    around = places.swapping(TORCH + fresh + rng.randrange(60, 120) * MB)
    return Case("exhaust", [*arguments, "--steps", 260], None, None, around, stalls_by="memory_pressure")


def shm_leak(rng: random.Random) -> Case:
    sizes = [rng.randrange(1, 9) * MB for _ in range(rng.randrange(1, 5))]
    return Case("exhaust", ["--steps", 1100], None, "shm_leak", places.littered(sizes))


def orphan_workers(rng: random.Random) -> Case:
    """The trainer is killed while its workers are busy with something long, and do not see it. Where it has waited for
    them for long by then, that is its verdict, and not who killed it."""
    late = ["--late-item", 16 * rng.randrange(20, 40), "--late-seconds", 45, "--workers", rng.randrange(1, 4)]
    return Case(
        "exhaust", ["--steps", 3000, *late], None, "orphan_workers", places.outlived, kill_after=rng.uniform(11, 14)
    )


def gpu_throttle(rng: random.Random) -> Case:
    throttle = ["--throttle", 120, rng.randrange(30, 60), rng.randrange(400, 800)]
    reason = rng.choice([0x8, 0x20, 0x40, 0x80])
    arguments = ["--steps", 200, *throttle, "--reason", reason]
    return Case("on_a_gpu", arguments, None, None, places.gpu_on_paper, stalls_by="gpu_throttle")


def gpu_error(rng: random.Random) -> Case:
    arguments = ["--steps", rng.randrange(120, 240), "--breaks", rng.choice(["ecc", "lost"])]
    return Case("on_a_gpu", arguments, "gpu_error", None, places.gpu_on_paper)


def gpu_memory(rng: random.Random) -> Case:
    leak = rng.randrange(70, 95) * MB
    return Case(
        "on_a_gpu", ["--steps", 200, "--work", 0.1, "--leak-bytes", leak], None, "gpu_memory", places.gpu_on_paper
    )


def gpu_memory_refused(rng: random.Random) -> Case:
    """CUDA has no memory left, and the training ends."""
    keep, first = rng.randrange(8, 64) * MB, rng.randrange(60, 140)
    arguments = ["--keep-bytes", keep, "--first", first, "--room", keep * rng.randrange(20, 80) + MB]
    return Case("on_a_gpu", ["--cuda", "{cuda}", "--steps", 300, *arguments], "gpu_memory", None, places.cuda_on_paper)


def gpu_memory_retried(rng: random.Random) -> Case:
    """CUDA has no memory left, some is given back, and the training goes on."""
    keep, first = rng.randrange(8, 64) * MB, rng.randrange(60, 100)
    arguments = ["--keep-bytes", keep, "--first", first, "--room", keep * rng.randrange(30, 60) + MB, "--retries"]
    return Case("on_a_gpu", ["--cuda", "{cuda}", "--steps", 220, *arguments], None, "gpu_memory", places.cuda_on_paper)


def gpu_memory_churn(rng: random.Random) -> Case:
    """Memory is asked for and given back all the time, in some of the steps."""
    churn = ["--churn", rng.randrange(30, 90), "--memory-seconds", round(rng.uniform(0.002, 0.004), 4)]
    arguments = [*churn, "--every", rng.randrange(8, 20), "--first", rng.randrange(80, 120), "--room", 1 << 34]
    return Case(
        "on_a_gpu", ["--cuda", "{cuda}", "--steps", 240, *arguments], None, None, places.cuda_on_paper,
        stalls_by="gpu_memory",
    )  # fmt: skip


CASES: dict[str, Callable[[random.Random], Case]] = {
    made.__name__: made
    for made in (
        fd_exhaustion, shm_exhaustion, oom_kill, oom_kill_at_once, killed, disk_full, pid_exhaustion, gpu_throttle,
        gpu_error, gpu_memory, gpu_memory_refused, gpu_memory_retried, gpu_memory_churn, swap, memory_pressure,
        shm_leak, orphan_workers, fits,
    )
}  # fmt: skip


def wrong(case: Case, rank: Rank) -> list[str]:
    """What the report should have said and did not; empty: it is right."""
    verdict, found = rank["verdict"], []
    causes = [warning["cause"] for warning in rank["warnings"]]
    if case.ends is not None and (verdict["kind"], verdict["cause"] or "") != ("end", case.ends):
        found.append(f"verdict: {verdict['kind']} {verdict['cause']}, planted the end by {case.ends or 'a person'}")
    sender = verdict["message"]["params"].get("by") if verdict["message"] is not None else None
    if case.ends == "" and (sender is None or sender["params"]["pid"] != os.getpid()):
        found.append(f"the sender is not named: {verdict['summary']}")
    if case.ends == "oom_kill" and rank["memory"]["limit_scope"] != "cgroup":
        found.append(f"limit scope {rank['memory']['limit_scope']}, planted cgroup")
    if case.stalls_by and verdict["cause"] != case.stalls_by:
        found.append(f"verdict: {verdict['kind']} {verdict['cause']}, planted {case.stalls_by}")
    if case.warned and case.warned not in causes:
        found.append(f"not warned of {case.warned}, only of {causes}")
    if others := sorted(set(causes) - {case.ends, case.warned}):
        found.append(f"warned of {', '.join(others)} too")
    return found


def kill_later(pid: Callable[[], int | None], seconds: float) -> threading.Thread:
    """Somebody kills the training, after so long, with signal 9."""

    def wait_and_kill() -> None:
        time.sleep(seconds)
        if (victim := pid()) is not None:
            os.kill(victim, signal.SIGKILL)

    thread = threading.Thread(target=wait_and_kill, daemon=True)
    thread.start()
    return thread
