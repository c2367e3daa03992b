"""The daemon is killed in the middle of a real stall, and another one follows."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.programs import Daemon, environment, trainprobe

SCRIPT = """
import time, torch
torch.set_num_threads(1)
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.Adam(model.parameters())
for _ in range(100_000):
    optimizer.zero_grad()
    model(torch.randn(256, 64)).sum().backward()
    time.sleep(0.02)
    optimizer.step()
"""


def wait_until(holds: Callable[[], Any], seconds: float) -> Any:
    end = time.monotonic() + seconds
    while not (found := holds()):
        assert time.monotonic() < end, "it did not come to be"
        time.sleep(0.02)
    return found


def rank(daemon: Daemon, pid: int) -> dict[str, Any] | None:
    found = daemon.rank_of(pid)
    return found[1] if found else None


def stalls(daemon: Daemon, pid: int, *, is_open: bool) -> list[dict[str, Any]]:
    return [one for one in (rank(daemon, pid) or {"stalls": []})["stalls"] if (one["end"] is None) is is_open]


@pytest.mark.timeout(240)
def test_a_stall_goes_on_through_kill_nine_with_its_id_and_is_counted_once(tmp_path: Path, torch_python: str) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    training = subprocess.Popen([torch_python, str(script)])
    try:
        with Daemon(tmp_path) as first:
            wait_until(lambda: (rank(first, training.pid) or {"steps": {"count": 0}})["steps"]["count"] > 40, 60)
            training.send_signal(signal.SIGSTOP)
            stopped = time.time()
            (opened,) = wait_until(lambda: stalls(first, training.pid, is_open=True), 10)
            time.sleep(2.5)
            before = rank(first, training.pid)
            first.process.kill()
            first.process.wait()
        assert before is not None
        with Daemon(tmp_path) as second:
            wait_until(lambda: second.report()["generated"] > time.time() - 1, 60)
            (going,) = wait_until(lambda: stalls(second, training.pid, is_open=True), 10)
            assert going["id"] == opened["id"]
            assert going["seconds"] == pytest.approx(time.time() - stopped, abs=1.5)
            training.send_signal(signal.SIGCONT)
            lasted = time.time() - stopped
            (ended,) = wait_until(lambda: stalls(second, training.pid, is_open=False), 10)
            assert ended["id"] == opened["id"]
            assert ended["cause"] == opened["cause"] == "suspended"
            assert ended["seconds"] == pytest.approx(lasted, abs=0.3)
            time.sleep(2)
            told = rank(second, training.pid)
            assert told is not None
            run = second.rank_of(training.pid)[0]["run"]  # type: ignore[index]
            assert told["totals"]["stalls"] == told["counters"]["stalls"]["suspended"] == 1
            assert told["steps"]["count"] > before["steps"]["count"] + 40
            assert sum(told["ledger"].values()) == pytest.approx(told["wall_seconds"], rel=0.01)
            assert {span["phase"] for span in told["phases"]} == {span["phase"] for span in before["phases"]}
        said = subprocess.run(
            trainprobe("report", "--since", "1h", "--run", run, "--directory", str(second.directory),
                       "--state", str(second.state)),
            capture_output=True, text=True, env=environment(), check=True,
        )  # fmt: skip
        assert "suspended" in said.stdout
        assert "no daemon runs" in said.stderr
    finally:
        training.kill()
        training.wait()
