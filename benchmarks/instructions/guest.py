"""Runs inside a guest whose clock counts instructions: the daemon as it is, and a program that times its own calls.

``guest.py PROBE LIBRARY EXECUTED TREE``: EXECUTED is a small static program, which needs no other file; TREE the
checkout whose daemon it is. Prints ``figure|WAY|KIND|INSTRUCTIONS``.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

FOLDER = Path("/tmp/instructions")
HOME = Path("/run/instructions")
"""The daemon's. It hears when its reports are opened, which makes every write to that file system dearer."""
WATCH = "targets: {include: {commands: ['* watched']}}\n"
STEPS = 400
"""Of 50 ms: by then they are even, and told together."""
DETACHED = 16
"""Perf events of a daemon that has let go of the programs for watched processes."""
IDLE_S = 240.0


class Probe:
    """The measuring program; ``steps``: as a training, which calls itself watched."""

    def __init__(self, way: str, *, steps: bool) -> None:
        self._way = way
        command = [
            str(FOLDER / "probe"),
            str(FOLDER / "libtorch_cpu.so"),
            *(("steps", "watched") if steps else ("still",)),
        ]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def measure(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("measure\n")
        self.process.stdin.flush()
        while (line := self.process.stdout.readline().strip()) != "done":
            if not line:
                raise SystemExit(f"the probe ended with {self.process.wait()}")
            print(f"figure|{self._way}|{line}", flush=True)

    def __enter__(self) -> Probe:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()


@contextmanager
def daemon(tree: str) -> Iterator[subprocess.Popen[bytes]]:
    configuration, log = HOME / "trainprobe.yaml", HOME / "log"
    configuration.write_text(WATCH)
    command = [sys.executable, "-m", "trainprobe.cli", "daemon", "--config", str(configuration)]
    command += ["--directory", str(HOME / "published"), "--state", str(HOME / "state")]
    environment = os.environ | {"PYTHONPATH": f"{tree}/daemon:{tree}/exporters"}
    with log.open("wb") as file:
        child = subprocess.Popen(command, cwd=tree, stdout=file, stderr=file, env=environment)
    try:
        if not await_true((HOME / "published" / "report.json").exists, 3000, "the daemon"):
            raise SystemExit(1)
        yield child
    finally:
        child.terminate()
        child.wait()
        print(log.read_text(errors="replace")[-4000:], flush=True)


def await_true(holds: Callable[[], bool], seconds: float, what: str) -> bool:
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            print(f"waited for {what} for {seconds} s", flush=True)
            return False
        time.sleep(0.5)
    return True


def steps_of(pid: int) -> int:
    """How many the report tells of a process."""
    report = json.loads((HOME / "published" / "report.json").read_bytes())
    return sum(rank["steps"]["count"] for run in report["runs"] for rank in run["ranks"] if rank["pid"] == pid)


def tracepoints(pid: int) -> int:
    """Perf events that a process holds."""
    names = []
    for link in Path(f"/proc/{pid}/fd").iterdir():
        try:
            names.append(os.readlink(link))
        except OSError:
            continue
    return names.count("anon_inode:[perf_event]")


def main(probe: str, library: str, executed: str, tree: str) -> None:
    FOLDER.mkdir()
    HOME.mkdir()
    shutil.copy(probe, FOLDER / "probe")
    shutil.copy(library, FOLDER / "libtorch_cpu.so")
    shutil.copy(executed, FOLDER / "true")
    with Probe("bare", steps=False) as bare:
        bare.measure()
    with daemon(tree) as watching:
        if await_true(lambda: tracepoints(watching.pid) <= DETACHED, IDLE_S, "an idle daemon to detach"):
            time.sleep(5)
        with Probe("idle", steps=False) as bystander:
            bystander.measure()
        with Probe("watched", steps=True) as training:
            await_true(lambda: steps_of(training.process.pid) >= STEPS, 600, "steps in the report")
            with Probe("beside", steps=False) as bystander:
                bystander.measure()
            training.measure()
            print(f"figure|watched|steps seen|{steps_of(training.process.pid)}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
