"""What a probe on CUDA costs each call: one that does not wait, bare, beside us, and watched; then a launch, bare
and where launches are the clock. As root.

``python -m benchmarks.cuda_calls`` prints nanoseconds for each call, the best of a few turns.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.limits.fake_cuda import built
from trainprobe.bpf.probes import Probes
from trainprobe.collect.procfs import Proc

CALLS, TURNS = 20_000, 7
PROGRAM = """
import ctypes, sys, time
ctypes.CDLL(sys.argv[1] + "/libcudart.so.12", ctypes.RTLD_GLOBAL)
calls = ctypes.CDLL(sys.argv[1] + "/libcaller.so")
print("ready", flush=True)
for line in sys.stdin:
    begun = time.perf_counter_ns()
    getattr(calls, line.split()[0])(int(line.split()[1]), 1)
    print(time.perf_counter_ns() - begun, flush=True)
"""


class Caller:
    """A process that calls when it is told to."""

    def __init__(self, folder: Path) -> None:
        command = [sys.executable, "-S", "-c", PROGRAM, str(folder)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.process.stdout.readline()

    def call(self, count: int = CALLS, name: str = "many") -> float:
        """Nanoseconds of each call."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{name} {count}\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline()) / count

    def best(self, name: str = "many") -> float:
        return min(self.call(name=name) for _ in range(TURNS))

    def end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def launches(probes: Probes, caller: Caller) -> None:
    """As for a training without PyTorch in which nothing else recurs: a probe on each."""
    pid, clocks = caller.process.pid, probes._cuda._clocks
    print(f"a launch, bare: {caller.best('launch_kernels'):.0f} ns")
    clocks.begin(pid)
    clocks._known[pid].launches = True
    probes._cuda.attach_marks(pid)
    time.sleep(3)
    counted = caller.best("launch_kernels")
    seen = sum(beat.count for key, beat in clocks._beats.entries() if beat.launch and key.tgid == pid)
    assert seen == TURNS * CALLS, "each of them"
    print(f"counted: {counted:.0f} ns")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        caller = Caller(built(Path(folder)))
        print(f"bare: {caller.best():.0f} ns")
        probes = Probes.start(Proc(), auto=False)
        try:
            probes._cuda.attach_marks(caller.process.pid)
            time.sleep(2)  # the library is read by another process
            print(f"beside a daemon, not watched: {caller.best():.0f} ns")
            probes.watch(caller.process.pid)
            caller.call(2)
            for _ in range(20):  # the place that it returns to is told, and gets its probe
                probes.drain()
                time.sleep(0.05)
            print(f"watched: {caller.best():.0f} ns")
            launches(probes, caller)
        finally:
            caller.end()
            probes.close()


if __name__ == "__main__":
    main()
