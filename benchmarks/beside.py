"""What a scrape of our exporter costs beside node_exporter and process-exporter, as far as they are installed.

``python -m benchmarks.beside``: a training is watched; each exporter is asked for its metrics every half second in
turns, and its memory and processor time are read. Compares only: there are no limits.
"""

from __future__ import annotations

import argparse
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks import footprint, programs
from benchmarks.programs import Daemon, Exporter, ProgramError, resident
from benchmarks.stalls import torch_python

OTHERS = {
    "node_exporter": ("prometheus-node-exporter", "node_exporter"),
    "process-exporter": ("prometheus-process-exporter", "process-exporter"),
}
"""Names that their programs have."""
ARGUMENTS = {"process-exporter": ("--procnames=python,python3,pt_data_worker",)}
SCRAPES = 40
PAUSE_SECONDS = 0.5


@dataclass
class Asked:
    """One exporter."""

    name: str
    pid: int
    url: str
    bytes: int = 0
    seconds: float = 0.0  # of processor time in all scrapes and between them


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.beside", description=__doc__)
    parser.add_argument("--python", help="an interpreter with PyTorch")
    options = parser.parse_args(arguments)
    try:
        measure(torch_python.find(options.python))
    except (ProgramError, torch_python.NoTorch) as error:
        print(f"beside: {error}", file=sys.stderr)
        return 2
    return 0


def measure(python: str) -> None:
    """Prints a line for each. Raises ProgramError."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=footprint.SHARED_MEMORY)))
        daemon = stack.enter_context(Daemon(directory))
        training = footprint.start(python, directory)
        stack.callback(programs.end, training)
        ours = stack.enter_context(Exporter(directory, daemon.directory / "report.json"))
        asked = [Asked("trainprobe-exporter", ours.process.pid, f"{ours.url}/metrics")]
        for name, names in OTHERS.items():
            if program := next(filter(None, map(shutil.which, names)), None):
                asked.append(stack.enter_context(_other(name, program)))
        time.sleep(20)
        before = {one.pid: _seconds(one.pid) for one in asked}
        for _ in range(SCRAPES):
            for one in asked:
                with urllib.request.urlopen(one.url, timeout=10) as answer:
                    one.bytes = len(answer.read())
            time.sleep(PAUSE_SECONDS)
        for one in asked:
            one.seconds = _seconds(one.pid) - before[one.pid]
            told = f"{1000 * one.seconds / SCRAPES:6.2f} ms of a processor a scrape, {one.bytes:7} bytes"
            print(f"{one.name:<20} {resident(one.pid) / 1e6:6.1f} MB, {told}")
        print(f"{'trainprobe daemon':<20} {resident(daemon.process.pid) / 1e6:6.1f} MB")


@contextmanager
def _other(name: str, program: str) -> Iterator[Asked]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    process = subprocess.Popen(
        [program, f"--web.listen-address={address}", *ARGUMENTS.get(name, ())],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield Asked(name, process.pid, f"http://{address}/metrics")
    finally:
        programs.end(process)


def _seconds(pid: int) -> float:
    """Processor time of all its threads that live, by the scheduler's own clock."""
    tasks = Path(f"/proc/{pid}/task")
    return sum(int((tasks / task / "schedstat").read_text().split()[0]) for task in os.listdir(tasks)) / 1e9


if __name__ == "__main__":
    sys.exit(main())
