"""What the daemons of two versions cost beside each other, watching the same training at the same time.

``python -m benchmarks.side_by_side TREE [--settle SECONDS] [--window SECONDS] [--windows N]``: TREE is a worktree of
the other version. Prints for each window the processor time of each daemon with its children, as the scheduler counts
it, and its resident memory. Compares only: there are no limits. Each daemon costs somewhat more than alone, both alike.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from benchmarks import footprint, programs
from benchmarks.programs import Daemon, ProgramError, resident
from benchmarks.stalls import torch_python
from trainprobe.model.moment import NS

SETTLE_SECONDS, WINDOW_SECONDS, WINDOWS = 120.0, 60.0, 3
TICK_NS = NS // os.sysconf("SC_CLK_TCK")


class Spent:
    """Nanoseconds on a processor of a process and all its children; of those that have ended as the kernel counted them
    when they were waited for, in ticks."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._threads: dict[Path, int] = {}  # of the process itself, ended ones too

    def read(self) -> int:
        todo, living = [self._pid], 0
        while todo:
            pid = todo.pop()
            try:
                for task in Path(f"/proc/{pid}/task").iterdir():
                    ns = int((task / "schedstat").read_text().split()[0])
                    todo += map(int, (task / "children").read_text().split())
                    if pid == self._pid:
                        self._threads[task] = ns
                    else:
                        living += ns
            except OSError:
                continue  # it has ended meanwhile
        fields = Path(f"/proc/{self._pid}/stat").read_text().rpartition(")")[2].split()
        return sum(self._threads.values()) + living + sum(map(int, fields[13:15])) * TICK_NS


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.side_by_side", description=__doc__)
    parser.add_argument("tree", type=Path, metavar="TREE")
    parser.add_argument("--settle", type=float, default=SETTLE_SECONDS)
    parser.add_argument("--window", type=float, default=WINDOW_SECONDS)
    parser.add_argument("--windows", type=int, default=WINDOWS)
    parser.add_argument("--python", help="an interpreter with PyTorch")
    options = parser.parse_args(arguments)
    if not (options.tree / "daemon" / "trainprobe").is_dir():
        parser.error(f"{options.tree} is no tree of trainprobe: git worktree add {options.tree} COMMIT")
    try:
        measure(torch_python.find(options.python), options.tree, options.settle, options.window, options.windows)
    except (ProgramError, torch_python.NoTorch) as error:
        print(f"side_by_side: {error}", file=sys.stderr)
        return 2
    return 0


def measure(python: str, tree: Path, settle: float, window: float, windows: int) -> None:
    """Takes their sum, and some seconds for the starts."""
    with ExitStack() as undo:
        directory = Path(undo.enter_context(tempfile.TemporaryDirectory(dir=footprint.SHARED_MEMORY)))
        training = footprint.start(python, directory)
        undo.callback(programs.end, training)
        daemons = {
            name: undo.enter_context(_daemon(directory / name, root))
            for name, root in (("this", programs.ROOT), ("other", tree.resolve()))
        }
        spent = {name: Spent(daemon.process.pid) for name, daemon in daemons.items()}
        print(f"both have {settle:.0f} s to settle", flush=True)
        time.sleep(settle)
        for number in range(windows):
            before = {name: (one.read(), time.monotonic()) for name, one in spent.items()}
            time.sleep(window)
            shares = {
                name: (one.read() - before[name][0]) / NS / (time.monotonic() - before[name][1])
                for name, one in spent.items()
            }
            told = (f"{name} {shares[name]:.3%}, {resident(daemons[name].process.pid) / 1e6:.1f} MB" for name in shares)
            print(
                f"window {number + 1}, of a core: {'; '.join(told)}; {shares['this'] / shares['other']:.2f}", flush=True
            )
        for name, daemon in daemons.items():
            if daemon.rank_of(training.pid) is None:
                raise ProgramError(f"{name} did not watch the training: {daemon.said()}")


def _daemon(directory: Path, root: Path) -> Daemon:
    directory.mkdir()
    paths = f"{root / 'daemon'}:{root / 'exporters'}"
    subprocess.run([sys.executable, "-m", "compileall", "-q", *paths.split(":")], check=True, stdout=subprocess.DEVNULL)
    return Daemon(directory, PYTHONPATH=paths, TRAINPROBE_CACHE=str(directory / "cache"))


if __name__ == "__main__":
    sys.exit(main())
