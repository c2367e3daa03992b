"""What a probe on CUDA costs each call: one that does not wait, bare, beside us, and watched. As root.

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

CALLS, TURNS = 20_000, 7
PROGRAM = """
import ctypes, sys, time
ctypes.CDLL(sys.argv[1] + "/libcudart.so.12", ctypes.RTLD_GLOBAL)
calls = ctypes.CDLL(sys.argv[1] + "/libcaller.so")
print("ready", flush=True)
for line in sys.stdin:
    begun = time.perf_counter_ns()
    calls.many(int(line))
    print(time.perf_counter_ns() - begun, flush=True)
"""


class Caller:
    """A process that calls when it is told to."""

    def __init__(self, folder: Path) -> None:
        command = [sys.executable, "-S", "-c", PROGRAM, str(folder)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.process.stdout.readline()

    def call(self, count: int = CALLS) -> float:
        """Nanoseconds of each call."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{count}\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline()) / count

    def best(self) -> float:
        return min(self.call() for _ in range(TURNS))

    def end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        caller = Caller(built(Path(folder)))
        print(f"bare: {caller.best():.0f} ns")
        probes = Probes.start(auto=False)
        try:
            probes._cuda.look(caller.process.pid)
            time.sleep(2)  # the library is read by another process
            print(f"beside a daemon, not watched: {caller.best():.0f} ns")
            probes.watch(caller.process.pid)
            caller.call(2)
            for _ in range(20):  # the place that it returns to is told, and gets its probe
                probes.drain()
                time.sleep(0.05)
            print(f"watched: {caller.best():.0f} ns")
        finally:
            caller.end()
            probes.close()


if __name__ == "__main__":
    main()
