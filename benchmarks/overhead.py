"""What watching adds to those who are watched and to those who are not, beside strace and bpftrace on the same host.

``python -m benchmarks.overhead [--output FILE]``: a process writes, calls and changes places, bare, beside a daemon
that does not watch it, watched, and under the other tools, in turns; then uprobes are timed at their real places, and
a real training is watched and not watched in turns. Medians, with the quartiles as the spread. Exit code 0: within the
limits.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from benchmarks import bpf_programs, footprint, programs
from benchmarks.programs import Daemon, ProgramError
from benchmarks.stalls import torch_python
from benchmarks.stalls.run import TRAININGS

WATCH = "targets: {auto: false, include: {commands: ['* watched']}}\n"
BARE, BESIDE, WATCHED = "bare", "beside", "watched"
STRACE = ("strace", "-f", "-e", "trace=write", "-o", "/dev/null")
SECCOMP = ("strace", "-f", "--seccomp-bpf", "-e", "trace=write", "-o", "/dev/null")
PRINTING = (
    "tracepoint:syscalls:sys_enter_write /pid == {pid}/ "
    "{{ printf(\"%d write(%d, %d)\\n\", tid, args->fd, args->count); }} "
    "tracepoint:syscalls:sys_exit_write /pid == {pid}/ {{ printf(\"= %d\\n\", args->ret); }}"
)  # fmt: skip
CALLS = {"write": 20_000, "unrelated call": 40_000, "switch": 20_000}
FEW_CALLS = 3_000  # where each takes tens of microseconds
ROUNDS = 5
LIMITS_NS = {("write", WATCHED): 400, ("write", BESIDE): 100, ("unrelated call", BESIDE): 20}
CHEAPER = {"strace -f": 55, "bpftrace": 25}
MARK_ROUNDS = 12


@dataclass
class Spread:
    """Of two measurements and more."""

    median: float
    low: float  # quartiles
    high: float
    count: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        low, median, high = statistics.quantiles(values, n=4)
        return cls(median, low, high, len(values))

    def __str__(self) -> str:
        return f"{self.median:10.0f}   ({self.low:.0f} to {self.high:.0f})"


@dataclass
class Overhead:
    """Nanoseconds by kind of call and way of watching; shares of a training's wall time."""

    nanoseconds: dict[str, dict[str, Spread]] = field(default_factory=dict)
    step_ms: dict[str, Spread] = field(default_factory=dict)
    training: footprint.Footprint | None = None

    def added(self, kind: str, way: str) -> float | None:
        """Nanoseconds more than bare; None: not measured."""
        found = self.nanoseconds.get(kind, {})
        return found[way].median - found[BARE].median if way in found else None


def main(arguments: Sequence[str] | None = None) -> int:
    options = _arguments(arguments)
    try:
        found = measure(torch_python.find(options.python), options.cycles, options.seconds)
    except (ProgramError, torch_python.NoTorch) as error:
        print(f"overhead: {error}", file=sys.stderr)
        return 2
    if options.output:
        options.output.write_text(json.dumps(asdict(found), indent=1) + "\n")
    return 0 if show(found) else 1


def measure(python: str, cycles: int, seconds: float) -> Overhead:
    """Everything. Raises ProgramError."""
    found = Overhead()
    values: dict[str, dict[str, list[float]]] = {}
    for _ in range(cycles):
        _calls(values)
        _marks(python, values)
    found.nanoseconds = {kind: {way: Spread.of(took) for way, took in ways.items()} for kind, ways in values.items()}
    found.step_ms = _trainings(python, cycles)
    if seconds:
        found.training = footprint.measure(python, seconds)
    return found


def show(found: Overhead) -> bool:
    """Prints a table; whether all is within the limits."""
    for kind, ways in found.nanoseconds.items():
        print(f"{kind}, ns: median (quartiles), and more than bare")
        for way, spread in ways.items():
            more = "" if way == BARE else f"{found.added(kind, way) or 0.0:+10.0f}"
            print(f"  {way:<22}{spread}".ljust(60) + more)
    if found.step_ms:
        print("a step of a training, ms, in turns")
        for way, spread in found.step_ms.items():
            print(f"  {way:<22}{spread.median:8.2f}   ({spread.low:.2f} to {spread.high:.2f})")
    held = [_within(*check) for check in _checks(found)]
    if found.training is not None:
        held.append(footprint.show(found.training))
    return all(held)


def _checks(found: Overhead) -> Iterator[tuple[str, float, float, bool]]:
    """(what, value, limit, whether less is better)."""
    for (kind, way), limit in LIMITS_NS.items():
        if (added := found.added(kind, way)) is not None:
            yield f"a {kind} more, {way}, ns", added, limit, True
    ours = found.added("write", WATCHED)
    for tool, times in CHEAPER.items():
        if ours is not None and (theirs := found.added("write", tool)) is not None:
            yield f"times cheaper than {tool}", theirs / max(ours, 1.0), times, False


def _within(what: str, value: float, limit: float, less: bool) -> bool:
    well = value <= limit if less else value >= limit
    print(f"  {what:<44}{value:9.0f}   limit {limit:6.0f}   {'ok' if well else 'OVER' if less else 'UNDER'}")
    return well


# ---- calls ----


def _calls(values: dict[str, dict[str, list[float]]]) -> None:
    """One cycle of all ways."""
    with _caller(BARE) as caller:
        _ask(caller, BARE, values)
    with _daemon() as daemon, _caller(BESIDE) as beside, _caller(WATCHED) as watched:
        _wait_until_watched(daemon, watched.pid)
        _ask(beside, BESIDE, values)
        _ask(watched, WATCHED, values)
    for name, tool in (("strace -f", STRACE), ("strace --seccomp-bpf", SECCOMP)):
        if shutil.which(tool[0]):
            with _caller(name, *tool) as caller:
                _ask(caller, name, values, kinds=("write",), calls=FEW_CALLS)
    if shutil.which("bpftrace"):
        with bpf_programs.gone_afterwards(), _caller("bpftrace") as caller, _printing(caller.pid):
            _ask(caller, "bpftrace", values, kinds=("write",), calls=FEW_CALLS)


@contextmanager
def _daemon() -> Iterator[Daemon]:
    """One that watches only what has WATCHED as its last argument."""
    with ExitStack() as stack:
        stack.enter_context(bpf_programs.gone_afterwards())
        directory = tempfile.TemporaryDirectory(prefix="trainprobe-overhead-", dir=footprint.SHARED_MEMORY)
        yield stack.enter_context(Daemon(Path(stack.enter_context(directory)), WATCH))


@contextmanager
def _caller(name: str, *tool: str) -> Iterator[subprocess.Popen[str]]:
    """The program that makes the calls; its last argument is what it is to be found by."""
    program = str(Path(__file__).with_name("calls.py"))
    process = subprocess.Popen(
        [*tool, sys.executable, program, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        process.stdout.close()
        process.wait(30)


def _ask(
    caller: subprocess.Popen[str],
    way: str,
    values: dict[str, dict[str, list[float]]],
    kinds: Sequence[str] = tuple(CALLS),
    calls: int | None = None,
) -> None:
    assert caller.stdin is not None
    assert caller.stdout is not None
    for kind in kinds:
        for _ in range(ROUNDS):
            caller.stdin.write(f"{kind} {calls or CALLS[kind]}\n")
            caller.stdin.flush()
            answer = caller.stdout.readline()
            if not answer:
                raise ProgramError(f"the program that calls ended: {way}")
            values.setdefault(kind, {}).setdefault(way, []).append(float(answer))


def _wait_until_watched(daemon: Daemon, pid: int) -> None:
    deadline = time.monotonic() + 20
    while daemon.rank_of(pid) is None:
        if time.monotonic() > deadline:
            raise ProgramError(f"the daemon does not watch process {pid}: {daemon.said()}")
        time.sleep(0.05)


@contextmanager
def _printing(pid: int) -> Iterator[None]:
    """bpftrace, printing a line for the beginning and the end of each write."""
    with (
        subprocess.Popen(
            ["bpftrace", "-e", PRINTING.format(pid=pid)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        ) as tracer,
        ExitStack() as stack,
    ):
        stack.callback(programs.end, tracer)
        assert tracer.stdout is not None
        if not tracer.stdout.readline():
            raise ProgramError("bpftrace did not start")
        sink = stack.enter_context(open("/dev/null", "wb"))
        drain = subprocess.Popen(["cat"], stdin=tracer.stdout, stdout=sink)
        stack.callback(drain.wait)
        stack.callback(programs.end, tracer)
        time.sleep(1.0)  # it says "Attaching" before it does
        yield


# ---- marks ----


def _marks(python: str, values: dict[str, dict[str, list[float]]]) -> None:
    """A pair of marks of libtorch, one uprobe each, in nanoseconds for each hit."""
    ways = values.setdefault("uprobe hit", {})
    ways.setdefault(BARE, []).append(_mark_ns(python, BARE))
    with _daemon():
        ways.setdefault(WATCHED, []).append(_mark_ns(python, WATCHED))
        ways.setdefault(BESIDE, []).append(_mark_ns(python, BESIDE))


def _mark_ns(python: str, name: str) -> float:
    command = [python, str(TRAININGS / "marks.py"), str(MARK_ROUNDS), name]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout) / 2


# ---- a training ----


def _trainings(python: str, cycles: int) -> dict[str, Spread]:
    """Milliseconds a step of one training with and without a daemon, in turns, by its own clock: a bound, for the
    host's noise is larger."""
    windows: list[tuple[str, int, int]] = []
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it, as its children do
    with tempfile.TemporaryDirectory(prefix="trainprobe-overhead-", dir=footprint.SHARED_MEMORY) as directory:
        training = footprint.start(python, Path(directory))
        try:
            time.sleep(8.0)
            for _ in range(2 * cycles):
                windows.append(_window(BARE))
                with (
                    bpf_programs.gone_afterwards(),
                    tempfile.TemporaryDirectory(dir=directory) as own,
                    Daemon(Path(own)) as daemon,
                ):
                    _wait_until_watched(daemon, training.pid)
                    windows.append(_window(WATCHED))
        finally:
            training.send_signal(signal.SIGINT)  # it writes its clock down as it ends
            with suppress(subprocess.TimeoutExpired):
                training.wait(60)
            programs.end(training)
        rows = [json.loads(line) for line in (Path(directory) / "truth.jsonl").read_text().splitlines()]
    steps = [(row["begin"], row["end"]) for row in rows if row["row"] == "iteration"]
    took: dict[str, list[float]] = {}
    for way, begin, end in windows:
        took.setdefault(way, []).extend((b - a) / 1e6 for a, b in steps if begin <= a and b <= end)
    return {way: Spread.of(lengths) for way, lengths in took.items()}


def _window(way: str, seconds: float = 5.0) -> tuple[str, int, int]:
    begin = time.monotonic_ns()
    time.sleep(seconds)
    return way, begin, time.monotonic_ns()


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.overhead", description=__doc__)
    parser.add_argument("--cycles", type=int, default=3, help="how often each way has its turn (3)")
    parser.add_argument("--seconds", type=float, default=30.0, help="how long the training's footprint is taken (30)")
    parser.add_argument("--output", type=Path, metavar="FILE", help="all figures as JSON")
    parser.add_argument("--python", help="an interpreter with PyTorch")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
