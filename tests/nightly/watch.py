"""Watches a real training and prints one line of JSON with what trainprobe and the training say of it.

``watch.py TORCH_PYTHON STEPS HOGS``; hogs are processes that are busy from the
training's first step on, so that the scheduler preempts it often. Run
inside a guest or on the host; it needs root, and the Python that has trainprobe.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HOG = """
import os, sys, time
while not os.path.exists(sys.argv[1]):
    time.sleep(0.2)
while True:
    pass
"""
TRAINING = Path(__file__).parent / "plain_training.py"
SAID = "watched="


def main() -> int:
    torch_python, steps, hogs = sys.argv[1], sys.argv[2], int(sys.argv[3])
    with tempfile.TemporaryDirectory() as folder:
        report, truth, stepping = (Path(folder, name) for name in ("report.json", "truth.json", "stepping"))
        command = [sys.executable, "-m", "trainprobe.cli", "run", "-o", str(report), "--"]
        busy = [subprocess.Popen([sys.executable, "-c", HOG, str(stepping)]) for _ in range(hogs)]
        try:
            done = subprocess.run([*command, torch_python, str(TRAINING), steps, str(truth), str(stepping)])
        finally:
            for process in busy:
                process.kill()
                process.wait()
        values = {"exit": done.returncode, "truth": json.loads(truth.read_text())}
        values["report"] = json.loads(report.read_text())
    print(SAID + json.dumps(values), flush=True)
    return 0


def said(output: str) -> dict[str, Any]:
    """What ``watch.py`` printed, out of everything that a machine printed."""
    line = re.search(rf"^{SAID}(.*)$", output, re.MULTILINE)
    assert line, f"nothing was said:\n{output[-20_000:]}"
    values: dict[str, Any] = json.loads(line[1])
    return values


def assert_accounted(values: dict[str, Any], *, unexplained: float = 0.02) -> None:
    """Every step counted, every second in a state, next to nothing unexplained, nothing lost on the way.

    ``unexplained``: the share of wall time that may be in the state `other` and the cause `unknown` together.
    """
    assert values["exit"] == 0
    (run,) = values["report"]["runs"]
    (rank,) = run["ranks"]
    wall = rank["wall_seconds"]
    assert rank["steps"]["count"] == values["truth"]["steps"]
    assert abs(sum(rank["ledger"].values()) - wall) <= 0.01 * wall
    assert rank["ledger"].get("other", 0.0) + rank["lost"].get("unknown", 0.0) <= unexplained * wall
    assert values["report"]["events_lost"] == 0


if __name__ == "__main__":
    sys.exit(main())
