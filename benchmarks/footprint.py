"""What watching costs: the daemon's memory and CPU, time in BPF, and what a probe costs who is not watched.

``python -m benchmarks.footprint [--calls N] [--gpus N] [--settle SECONDS]``: one training of about 20 steps/s with four
loader workers, which makes so many small writes a second beside and holds memory of so many GPUs on paper (2: no
collector is idle), watched by the daemon for a minute after its beginning, in which it is looked at more often (in its
first two minutes somewhat: ``--settle 140`` shows what lasts); then marks are timed in a process that maps the same
libtorch and is not watched. All of it together, as a part of the training's time, is said in one line with its parts.
Exit code 0: within the limits, and no event was lost.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from benchmarks import bpf_floor, pace, programs
from benchmarks.limits import fake_nvml
from benchmarks.limits.places import gpu_on_paper
from benchmarks.programs import Daemon, ProgramError, cpu_seconds, resident
from benchmarks.stalls import torch_python
from benchmarks.stalls.run import TRAININGS

STATISTICS = Path("/proc/sys/kernel/bpf_stats_enabled")
WIDTH, STEP_SECONDS = 1024, 0.054
READY_LIMIT, AGAIN_LIMIT = 1.0, 0.6
READY_SHARED = 1.5
"""Where others use the processors, too: a first start compiles for as long as one of them takes to; ``ready_limit``."""
RSS_LIMIT, CPU_LIMIT, WATCHED_LIMIT, UNWATCHED_LIMIT = 45e6, 0.005, 0.002, 0.01
CALL_LIMIT = 380e-9  # of the run's time for each traced call: 4 % at 100 000 a second
GPUS_CPU_LIMIT = 0.007
UPROBES = ("record", "backward", "graph_task", "set_grad", "collector")
"""Programs on uprobes have these words in their names."""
ROUNDS = 40
SETTLE_SECONDS = 45.0
STARTS = 3
SHARED_MEMORY = "/dev/shm"  # a tmpfs, as /run is where the daemon publishes


@dataclass
class Footprint:
    """Seconds and bytes; shares are of the training's wall time or of one core."""

    ready_seconds: float  # at a first start, when it compiles: the median of STARTS
    ready_again_seconds: float
    rss_bytes: int
    first_cpu_share: float  # while it settled
    cpu_share: float
    cpu_limit: float
    bpf_share: float
    hits_per_step: float
    steps_per_second: float
    bare_ns: float  # a pair of marks with no probe there
    probed_ns: float  # the same in a process that is not watched
    calls_per_second: float
    lost: int  # events
    settled_seconds: float
    runs_per_second: float  # of BPF programs, those that find nothing to do included
    counted_ns: float  # of each run by the kernel for its own reading of the clock
    training_cpus: float  # that the training's processes used
    ready_range: tuple[float, float] = (0.0, 0.0)  # of the first starts
    slowness: float = 1.0  # of the host in compiling, beside the first starts
    kernel_slowness: float = 1.0  # of its kernel in loading programs

    @property
    def ready_limit(self) -> float:
        """Seconds for a first start on this host: what a later one takes is mostly the kernel's, the rest compiles."""
        return (READY_SHARED - AGAIN_LIMIT) * self.slowness + AGAIN_LIMIT * self.kernel_slowness

    @property
    def traps_share(self) -> float:
        return self.hits_per_step * self.steps_per_second * self.trap_ns / 1e9

    @property
    def counting_share(self) -> float:
        """A part of ``bpf_share`` that is there only while the kernel counts."""
        return min(self.runs_per_second * self.counted_ns / 1e9, self.bpf_share)

    @property
    def all_in_share(self) -> float:
        """Everything, as counted, of the training's time."""
        return self.bpf_share + self.traps_share + self.cpu_share

    @property
    def trap_ns(self) -> float:
        """One hit, half a pair."""
        return max(self.probed_ns - self.bare_ns, 0.0) / 2

    @property
    def watched_share(self) -> float:
        return self.bpf_share + self.traps_share

    @property
    def watched_limit(self) -> float:
        return WATCHED_LIMIT + self.calls_per_second * CALL_LIMIT

    @property
    def unwatched_share(self) -> float:
        """What the same training would lose unwatched, beside one that is watched."""
        return self.traps_share


def main(arguments: Sequence[str] | None = None) -> int:
    options = _arguments(arguments)
    try:
        found = measure(torch_python.find(options.python), options.seconds, options.calls, options.gpus, options.settle)
    except (ProgramError, torch_python.NoTorch) as error:
        print(f"footprint: {error}", file=sys.stderr)
        return 2
    return 0 if show(found) else 1


def show(found: Footprint) -> bool:
    """Prints every figure with its limit; whether all are within."""
    print(
        f"{found.steps_per_second:.1f} steps/s, {found.hits_per_step:.1f} uprobe hits per step; "
        f"a pair of marks takes {found.bare_ns:.0f} ns, with probes {found.probed_ns:.0f} ns where nobody watches; "
        f"in BPF programs {found.bpf_share:.3%} of the run; "
        f"the daemon took {found.first_cpu_share:.2%} of a core in the first {found.settled_seconds:.0f} s; "
        f"{found.calls_per_second:.0f} small writes a second, {found.lost} events lost"
    )
    print(_all_in(found))
    low, high = found.ready_range
    print(f"compiling takes {found.slowness:.2f} times the usual, loading programs {found.kernel_slowness:.2f} times")
    lines = (
        (f"ready after, s ({low:.2f} to {high:.2f})", found.ready_seconds, READY_LIMIT, "{:.2f}"),
        ("ready after, s, at later starts", found.ready_again_seconds, AGAIN_LIMIT, "{:.2f}"),
        ("resident memory, MB", found.rss_bytes / 1e6, RSS_LIMIT / 1e6, "{:.1f}"),
        ("CPU of the daemon, of a core", found.cpu_share, found.cpu_limit, "{:.2%}"),
        ("BPF and uprobes, of the run", found.watched_share, found.watched_limit, "{:.3%}"),
        ("slowdown of who is not watched", found.unwatched_share, UNWATCHED_LIMIT, "{:.3%}"),
    )
    for name, value, limit, form in lines:
        told = "ok" if value <= limit else "OVER"
        print(f"  {name:<32} {form.format(value):>8}   limit {form.format(limit):>8}   {told}")
    return not found.lost and all(value <= limit for _, value, limit, _ in lines)


def _all_in(found: Footprint) -> str:
    """The sum and its parts, with and without what only the kernel's counting adds."""
    total, counting = found.all_in_share, found.counting_share
    return (
        f"all in {total:.3%} of the training's time: in BPF programs {found.bpf_share:.3%}, "
        f"uprobe traps {found.traps_share:.3%}, the daemon {found.cpu_share:.3%}. "
        f"Without what the kernel counts for its own clock, {found.counted_ns:.0f} ns of each of "
        f"{found.runs_per_second:.0f} runs/s: {total - counting:.3%}. "
        f"Of the processor time of the training ({found.training_cpus:.2f} cores): "
        f"{total / found.training_cpus:.3%} and {(total - counting) / found.training_cpus:.3%}"
    )


def measure(python: str, seconds: float, calls: int = 0, gpus: int = 0, settle: float = SETTLE_SECONDS) -> Footprint:
    """Takes about ``seconds``, ``settle`` and half a minute. Raises ProgramError."""
    with tempfile.TemporaryDirectory(prefix="trainprobe-footprint-", dir=SHARED_MEMORY) as temporary, _statistics():
        directory = Path(temporary)
        marks = [python, str(TRAININGS / "marks.py"), str(ROUNDS)]
        bare = float(subprocess.run(marks, check=True, capture_output=True, text=True).stdout)
        programs.make_bytecode()
        firsts, compiling = [], []
        for n in range(STARTS):
            firsts.append(_first_start(directory / f"first{n}", directory / f"kept{n}"))
            compiling.append(pace.compiling_seconds())
        slowness, kernel_slowness = pace.compiling_slowness(compiling), pace.kernel_slowness()
        kept = directory / "kept0"
        with (
            _driver(directory, gpus) as driver,
            Daemon(
                directory, "targets: {exclude: {commands: ['*/marks.py *']}}\n", TRAINPROBE_CACHE=str(kept)
            ) as daemon,
        ):
            training = start(python, directory, calls)
            if driver is not None:
                driver.held_by(training.pid)
            try:
                found = _watch(daemon, training, marks, bare, seconds, settle, _writes(calls), gpus)
                return replace(
                    found, ready_seconds=median(firsts), ready_range=(min(firsts), max(firsts)),
                    slowness=slowness, kernel_slowness=kernel_slowness,
                )  # fmt: skip
            finally:
                programs.end(training)


def _first_start(directory: Path, cache: Path) -> float:
    """Seconds until a daemon is ready that has to compile; it is ended when all of that is done."""
    directory.mkdir()
    with Daemon(directory, TRAINPROBE_CACHE=str(cache)) as daemon:
        while not (cache / "marks-auto").exists():
            if daemon.process.poll() is not None:
                raise ProgramError(f"the daemon ended: {daemon.said()}")
            time.sleep(0.05)
        return daemon.ready_seconds


def start(python: str, directory: Path, calls: int = 0) -> subprocess.Popen[bytes]:
    """A training of about STEP_SECONDS a step; ``calls``: small writes a second, a part of them in each step."""
    timed = subprocess.run(
        [python, str(TRAININGS / "step_time.py"), str(WIDTH), "128"], check=True, capture_output=True, text=True
    )
    plan = {
        "seed": 1, "steps": 100_000, "width": WIDTH, "workers": 4, "scratch": str(directory),
        "writes": _writes(calls), "batch": max(32, min(int(128 * STEP_SECONDS / float(timed.stdout)), 2048)),
    }  # fmt: skip
    (directory / "plan.json").write_text(json.dumps(plan))
    command = [python, str(TRAININGS / "plain.py"), "--plan", str(directory / "plan.json")]
    return subprocess.Popen(
        [*command, "--truth", str(directory / "truth.jsonl")], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    )


def _writes(calls: int) -> int:
    """In each step."""
    return round(calls * STEP_SECONDS)


def _watch(
    daemon: Daemon,
    training: subprocess.Popen[bytes],
    marks: list[str],
    bare: float,
    seconds: float,
    settle: float,
    writes: int,
    gpus: int,
) -> Footprint:
    _wait_for_steps(daemon, training.pid, 100)
    pid = daemon.process.pid
    cpu, begin = cpu_seconds(pid, children=True), time.monotonic()
    time.sleep(settle)
    first = (cpu_seconds(pid, children=True) - cpu) / (time.monotonic() - begin)
    before, cpu, begin = _state(daemon, training.pid), cpu_seconds(pid, children=True), time.monotonic()
    used = _family_seconds(training.pid)
    rss = 0
    while time.monotonic() - begin < seconds:
        time.sleep(0.5)
        rss = max(rss, resident(pid))
    spent, passed = cpu_seconds(pid, children=True) - cpu, time.monotonic() - begin
    used = _family_seconds(training.pid) - used
    after = _state(daemon, training.pid)
    if _gpus_seen(daemon, training.pid) != gpus:
        raise ProgramError("the daemon does not see the training's GPUs")
    probed = float(subprocess.run(marks, check=True, capture_output=True, text=True).stdout)
    steps, between = after.steps - before.steps, after.at - before.at
    return Footprint(
        daemon.ready_seconds, daemon.ready_seconds, rss, first, spent / passed, GPUS_CPU_LIMIT if gpus else CPU_LIMIT,
        (after.bpf - before.bpf) / between, (after.hits - before.hits) / max(steps, 1), steps / between, bare, probed,
        writes * steps / between, after.lost, settle, (after.runs - before.runs) / between,
        bpf_floor.nanoseconds_of_nothing(), used / passed,
    )  # fmt: skip


def _gpus_seen(daemon: Daemon, pid: int) -> int:
    """How many GPUs the report gives to a training."""
    found = daemon.rank_of(pid)
    return len(found[1]["gpus"]) if found else 0


@dataclass
class _State:
    at: float
    steps: int
    bpf: float
    runs: int
    hits: int
    lost: int


def _family_seconds(pid: int) -> float:
    """Processor time of a process and of its children."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return cpu_seconds(pid, children=True) + sum(cpu_seconds(int(child)) for child in children)


def _state(daemon: Daemon, training: int) -> _State:
    """Waits for a report in which the cost was read anew, so that differences are of one moment.

    Each is read once only: for somebody who waits for the next one the daemon looks more often.
    """
    path = daemon.directory / "report.json"
    old, seen = daemon.report()["cost"], path.stat().st_ino
    deadline = time.monotonic() + 30
    report = None
    while report is None or report["cost"] == old:
        if time.monotonic() > deadline:
            raise ProgramError("the daemon does not tell its cost")
        time.sleep(0.02)
        if (now := path.stat().st_ino) != seen:
            report, seen = daemon.report(), now
    cost = report["cost"]
    if cost["bpf_seconds"] is None:
        raise ProgramError("the kernel keeps no BPF statistics")
    hits = sum(runs for name, runs in cost["bpf_runs"].items() if any(word in name for word in UPROBES))
    ranks = [rank for run in report["runs"] for rank in run["ranks"] if rank["pid"] == training]
    runs = sum(cost["bpf_runs"].values())
    return _State(
        report["generated"], ranks[0]["steps"]["count"], cost["bpf_seconds"], runs, hits, report["events_lost"]
    )


def _wait_for_steps(daemon: Daemon, pid: int, steps: int) -> None:
    deadline = time.monotonic() + 90
    while (found := daemon.rank_of(pid)) is None or found[1]["steps"]["count"] < steps:
        if time.monotonic() > deadline:
            raise ProgramError(f"the daemon does not see the training (pid {pid}): {daemon.said()}")
        time.sleep(0.2)


@contextmanager
def _driver(directory: Path, gpus: int) -> Iterator[fake_nvml.Working | None]:
    """NVML for so many GPUs, where our children find it; none for none."""
    if not gpus:
        yield None
        return
    with gpu_on_paper(directory), fake_nvml.Working(directory / "gpus", gpus) as driver:
        yield driver


@contextmanager
def _statistics() -> Iterator[None]:
    """The kernel times its BPF programs meanwhile (which itself costs some 60 ns a run)."""
    before = STATISTICS.read_text()
    STATISTICS.write_text("1")
    try:
        yield
    finally:
        STATISTICS.write_text(before)


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.footprint", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long to watch (60)")
    parser.add_argument("--settle", type=float, default=SETTLE_SECONDS, help="how long to wait before (45)")
    parser.add_argument("--calls", type=int, default=0, help="small writes a second by the driver (0)")
    parser.add_argument("--gpus", type=int, default=0, help="GPUs on paper that the training holds memory of (0)")
    parser.add_argument("--python", help="an interpreter with PyTorch")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
