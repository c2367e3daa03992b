"""Runs inside a guest whose clock counts instructions: which programs one step of a real training runs, and how long.

``step.py TORCH_PYTHON TREE``. Prints ``program|NAME|RUNS A STEP|INSTRUCTIONS OF A RUN``, the kernel's own counting
left out.
"""

from __future__ import annotations

import ctypes
import json
import os
import struct
import subprocess
import sys
import time
from pathlib import Path

from benchmarks import bpf_programs
from benchmarks.bpf_floor import bpf, nanoseconds_of_nothing
from benchmarks.instructions.guest import FOLDER, HOME, await_true, daemon, steps_of

TRAININGS = Path(__file__).parents[1] / "stalls" / "trainings"
STATISTICS = Path("/proc/sys/kernel/bpf_stats_enabled")
PLAN = {"seed": 1, "steps": 100_000, "width": 128, "workers": 4, "batch": 64, "writes": 0}
SETTLED, COUNTED = 60, 40
DESCRIPTOR_BY_ID, INFO = 13, 15  # of bpf(2)
NAME_AT, TIME_AT = 64, 192  # in struct bpf_prog_info


def counts() -> dict[str, tuple[int, int]]:
    """(ns, runs) of each program by its name."""
    found: dict[str, tuple[int, int]] = {}
    for number in bpf_programs.loaded():
        descriptor, _ = bpf(DESCRIPTOR_BY_ID, struct.pack("=III", number, 0, 0))
        info = ctypes.create_string_buffer(256)
        bpf(INFO, struct.pack("=IIQ", descriptor, len(info), ctypes.addressof(info)))
        os.close(descriptor)
        name = info.raw[NAME_AT : NAME_AT + 16].rstrip(b"\0").decode()
        spent, runs = struct.unpack_from("=QQ", info.raw, TIME_AT)
        before = found.get(name, (0, 0))
        found[name] = before[0] + spent, before[1] + runs
    return found


def main(python: str, tree: str) -> None:
    for folder in (FOLDER, HOME):
        folder.mkdir()
    plan = FOLDER / "plan.json"
    plan.write_text(json.dumps(PLAN | {"scratch": str(FOLDER)}))
    STATISTICS.write_text("1")
    nothing = nanoseconds_of_nothing()
    command = [python, str(TRAININGS / "plain.py"), "--plan", str(plan), "--truth", str(FOLDER / "truth.jsonl")]
    with daemon(tree):
        training = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        try:
            await_true(lambda: steps_of(training.pid) >= SETTLED, 20_000, "even steps")
            before = counts()
            while counts()["on_backward"][1] - before["on_backward"][1] < COUNTED:
                time.sleep(0.2)
            after = counts()
        finally:
            training.kill()
            training.wait()
    steps = after["on_backward"][1] - before["on_backward"][1]
    print(f"nothing|{nothing:.1f}|{steps}", flush=True)
    for name, (spent, runs) in sorted(after.items()):
        more, ran = spent - before.get(name, (0, 0))[0], runs - before.get(name, (0, 0))[1]
        if ran:
            print(f"program|{name}|{ran / steps:.1f}|{more / ran - nothing:.0f}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
