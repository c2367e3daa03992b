"""How the daemon's cost grows with the host: runs, processes and threads at four sizes, and under storms.

``python -m benchmarks.scale [--sizes 16 64 256 1000] [--threads 10] [--output FILE]``: launches of many small
processes, all watched, ten threads each; then, beside the largest, a process that writes as fast as it can and one that
forks 5 000 times a minute. Exit code 0: within the limits, nothing lost, and growth is linear.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks import footprint
from benchmarks.programs import Daemon, ProgramError, cpu_seconds, resident

CONFIG = "targets: {auto: false, include: {commands: ['* watched']}}\nbudget: {cpu: 0}\n"
SIZES = (16, 64, 256, 1000)
RUNS = 64
THREADS = 10
FORKS_PER_SECOND = 5000 / 60
RSS_LIMIT, CPU_LIMIT, STORM_CPU_LIMIT = 80e6, 0.05, 0.15
LINEAR = 1.3  # times what the smaller sizes would make of the largest
SETTLE_SECONDS, SECONDS = 10.0, 15.0


@dataclass
class Size:
    """Of one size; shares are of one processor."""

    processes: int
    threads: int  # of all of them together
    runs: int
    rss_bytes: int
    cpu_share: float
    lost: int
    calls_per_second: float = 0.0
    forks_per_second: float = 0.0


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES), metavar="PROCESSES")
    parser.add_argument("--threads", type=int, default=THREADS, help="of each process (%(default)s)")
    parser.add_argument("--calm", action="store_true", help="without the storms")
    parser.add_argument("--output", type=Path, metavar="FILE", help="all figures as JSON")
    parser.add_argument("--python", help=argparse.SUPPRESS)  # `make nightly` gives it to every benchmark
    options = parser.parse_args(arguments)
    try:
        found = [measure(size, options.threads) for size in options.sizes]
        storm = None if options.calm else measure(options.sizes[-1], options.threads, storms=True)
    except ProgramError as error:
        print(f"scale: {error}", file=sys.stderr)
        return 2
    every = [*found, storm] if storm else found
    if options.output:
        options.output.write_text(json.dumps([asdict(one) for one in every], indent=1) + "\n")
    for one in every:
        print(_line(one))
    wrong = [*problems(found, storm)]
    for text in wrong:
        print(f"  OVER: {text}")
    return 1 if wrong else 0


def _line(one: Size) -> str:
    storms = f"; {one.calls_per_second:.0f} calls/s, {one.forks_per_second:.0f} forks/s" if one.calls_per_second else ""
    return (
        f"{one.processes:5} processes, {one.threads:6} threads, {one.runs:3} runs: "
        f"{one.rss_bytes / 1e6:6.1f} MB, {one.cpu_share:7.2%} of a core, {one.lost} lost{storms}"
    )


def problems(calm: Sequence[Size], storm: Size | None) -> Iterator[str]:
    """What is over a limit, lost, or grows faster than the host."""
    largest = calm[-1]
    if largest.rss_bytes > RSS_LIMIT:
        yield f"more than {RSS_LIMIT / 1e6:.0f} MB"
    if largest.cpu_share > CPU_LIMIT:
        yield f"more than {CPU_LIMIT:.0%} of a core"
    if storm and storm.cpu_share > STORM_CPU_LIMIT:
        yield f"more than {STORM_CPU_LIMIT:.0%} of a core in the storm"
    if any(one.lost for one in calm) or (storm and storm.lost):
        yield "events were lost"
    for what in ("rss_bytes", "cpu_share"):
        if len(calm) > 2 and getattr(largest, what) > LINEAR * _continued(calm[:-1], what, largest.processes):
            yield f"{what} grows faster than the number of processes"


def _continued(sizes: Sequence[Size], what: str, processes: int) -> float:
    """What the line through the first and the last of these comes to at a number of processes."""
    first, last = sizes[0], sizes[-1]
    slope = (getattr(last, what) - getattr(first, what)) / (last.processes - first.processes)
    return float(getattr(last, what) + max(slope, 0.0) * (processes - last.processes))


def measure(processes: int, threads: int = THREADS, *, storms: bool = False) -> Size:
    """One size, with a daemon of its own. Raises ProgramError."""
    runs = min(RUNS, max(1, processes // 4))
    with ExitStack() as stack:
        directory = tempfile.TemporaryDirectory(prefix="trainprobe-scale-", dir=footprint.SHARED_MEMORY)
        daemon = stack.enter_context(Daemon(Path(stack.enter_context(directory)), CONFIG))
        each = [processes // runs + (number < processes % runs) for number in range(runs)]
        heads = [stack.enter_context(_started("crowd.py", str(count), str(threads))) for count in each]
        if storms:
            heads.append(stack.enter_context(_started("crowd.py", "1", "1", str(FORKS_PER_SECOND))))
        writer = stack.enter_context(_started("calls.py")) if storms else None
        _wait_for_runs(daemon, len(heads) + bool(writer))
        for head in heads:
            _say(head, "")
        for head in heads:
            assert head.stdout is not None
            head.stdout.readline()
        time.sleep(SETTLE_SECONDS)
        return _watch(daemon, processes, processes * threads, runs, writer)


def _watch(daemon: Daemon, processes: int, threads: int, runs: int, writer: subprocess.Popen[str] | None) -> Size:
    pid = daemon.process.pid
    cpu, begin, calls, rss = cpu_seconds(pid, children=True), time.monotonic(), 0.0, 0
    while time.monotonic() - begin < SECONDS:
        if writer is not None:
            assert writer.stdout is not None
            _say(writer, "write 200000")
            calls = 1e9 / float(writer.stdout.readline())
        else:
            time.sleep(0.5)
        rss = max(rss, resident(pid))
    share = (cpu_seconds(pid, children=True) - cpu) / (time.monotonic() - begin)
    lost = int(daemon.report()["events_lost"])
    forks = FORKS_PER_SECOND if writer else 0.0
    return Size(processes, threads, runs, rss, share, lost, calls, forks)


def _wait_for_runs(daemon: Daemon, count: int) -> None:
    deadline = time.monotonic() + 60
    while len(daemon.report()["runs"]) < count:
        if time.monotonic() > deadline:
            raise ProgramError(f"{len(daemon.report()['runs'])} of {count} runs are seen: {daemon.said()}")
        time.sleep(0.2)


@contextmanager
def _started(program: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A program of ours in a process group of its own, that ends with all its children."""
    command = [sys.executable, str(Path(__file__).with_name(program)), *arguments, "watched"]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        yield process
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def _say(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdin is not None
    process.stdin.write(f"{line}\n")
    process.stdin.flush()


if __name__ == "__main__":
    sys.exit(main())
