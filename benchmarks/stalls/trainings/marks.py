"""Nanoseconds of one pair of torch's profiling marks, by this process's own clock: what a uprobe there adds to it."""

from __future__ import annotations

import statistics
import sys
import time

import torch

PAIRS = 20_000


def main() -> None:
    torch.set_num_threads(1)
    enter, leave = torch.ops.profiler._record_function_enter_new, torch.ops.profiler._record_function_exit
    rounds = []
    for _ in range(int(sys.argv[1])):
        begin = time.perf_counter_ns()
        for _ in range(PAIRS):
            leave._RecordFunction(enter("benchmark", None))
        rounds.append((time.perf_counter_ns() - begin) / PAIRS)
    print(statistics.median(rounds))


if __name__ == "__main__":
    main()
