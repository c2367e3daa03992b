"""The daemon for half an hour beside trainings that come and go: it does not grow, and loses nothing.

``TRAINPROBE_SOAK_SECONDS`` sets another length.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TRAINING = Path(__file__).parent / "plain_training.py"
SECONDS = float(os.environ.get("TRAINPROBE_SOAK_SECONDS", "1800"))
STEPS = 2000
GROWTH_LIMIT = 4 << 20  # bytes; what the history of ended runs may take


def resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def open_files(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


@pytest.mark.timeout(SECONDS + 600)
def test_the_daemon_does_not_grow(torch_python: str, tmp_path: Path) -> None:
    directory = tmp_path / "published"
    state = ["--state", str(tmp_path / "state")]
    daemon = subprocess.Popen(
        [sys.executable, "-m", "trainprobe.cli", "daemon", "--directory", str(directory), *state], cwd=ROOT
    )
    try:
        deadline = time.monotonic() + 60
        while not (directory / "report.json").exists():
            assert daemon.poll() is None
            assert time.monotonic() < deadline, "the daemon published nothing"
            time.sleep(0.1)
        sizes: list[tuple[int, int]] = []
        seen: dict[str, int] = {}
        end = time.monotonic() + SECONDS
        while time.monotonic() < end or len(sizes) < 6:
            files = [str(tmp_path / name) for name in ("truth", "stepping")]
            subprocess.run([torch_python, str(TRAINING), str(STEPS), *files], check=True)
            time.sleep(3)
            report = json.loads((directory / "report.json").read_text())
            assert report["events_lost"] == 0
            ours = [run for run in report["runs"] if str(TRAINING) in run["command"]]
            seen |= {run["run"]: rank["steps"]["count"] for run in ours for rank in run["ranks"]}
            sizes.append((resident(daemon.pid), open_files(daemon.pid)))
        print(f"{len(sizes)} trainings; resident MB: {[round(size / 1e6, 1) for size, _ in sizes]}")
    finally:
        daemon.send_signal(signal.SIGTERM)
        assert daemon.wait(30) == 0
    assert sorted(seen.values()) == [STEPS] * len(sizes)
    third = len(sizes) // 3
    assert max(size for size, _ in sizes[-third:]) <= max(size for size, _ in sizes[:third]) + GROWTH_LIMIT
    assert {files for _, files in sizes[-third:]} == {files for _, files in sizes[:third]}
