"""Run inside a guest: watches a real training and prints one line of JSON with what trainprobe and the training say.

``guest.py TORCH_PYTHON STEPS HOGS``; the hogs are busy processes that make the scheduler preempt the training often.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
WORK = Path("/tmp/guest")


def main() -> int:
    torch_python, steps, hogs = sys.argv[1], sys.argv[2], int(sys.argv[3])
    WORK.mkdir()
    report, truth = WORK / "report.json", WORK / "truth.json"
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(hogs)]
    try:
        done = subprocess.run(
            [
                *(sys.executable, "-m", "trainprobe.cli", "run", "-o", str(report), "--"),
                *(torch_python, str(HERE / "plain_training.py"), steps, str(truth)),
            ]
        )
    finally:
        for process in busy:
            process.kill()
            process.wait()
    said = {"exit": done.returncode, "truth": json.loads(truth.read_text()), "report": json.loads(report.read_text())}
    print("guest-said=" + json.dumps(said), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
