"""The daemon is killed in the middle of a real stall, and another one follows."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.programs import Daemon, Exporter, environment, trainprobe

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


@pytest.mark.nightly
@pytest.mark.timeout(240)
def test_a_stall_goes_on_through_kill_nine_with_its_id_and_is_counted_once(tmp_path: Path, torch_python: str) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    training = subprocess.Popen([torch_python, str(script)])
    try:
        with Daemon(tmp_path) as first, Exporter(tmp_path, first.directory / "report.json") as exporter:
            wait_until(lambda: (rank(first, training.pid) or {"steps": {"count": 0}})["steps"]["count"] > 40, 60)
            training.send_signal(signal.SIGSTOP)
            stopped = time.time()
            (opened,) = wait_until(lambda: stalls(first, training.pid, is_open=True), 10)
            time.sleep(2.5)
            before = rank(first, training.pid)
            assert before is not None
            assert counted(exporter, "stalls_total") == 1
            lost = counted(exporter, "stall_seconds_total")
            first.process.kill()
            first.process.wait()
            run = after_the_kill(tmp_path, training, exporter, stopped, opened, before, lost)
        said = subprocess.run(
            trainprobe("report", "--since", "1h", "--run", run, "--directory", str(first.directory),
                       "--state", str(first.state)),
            capture_output=True, text=True, env=environment(), check=True,
        )  # fmt: skip
        assert "suspended" in said.stdout
        assert "no daemon runs" in said.stderr
    finally:
        training.kill()
        training.wait()


def after_the_kill(
    tmp_path: Path,
    training: subprocess.Popen[bytes],
    exporter: Exporter,
    stopped: float,
    opened: dict[str, Any],
    before: dict[str, Any],
    lost: float,
) -> str:
    """Another daemon, the stall's end, and a while of ordinary steps; the run's name."""
    with Daemon(tmp_path) as second:
        wait_until(lambda: second.report()["generated"] > time.time() - 1, 60)
        (going,) = wait_until(lambda: stalls(second, training.pid, is_open=True), 10)
        assert going["id"] == opened["id"]
        assert going["seconds"] == pytest.approx(time.time() - stopped, abs=1.5)
        assert counted(exporter, "stalls_total") == 1
        assert counted(exporter, "stall_seconds_total") >= lost
        training.send_signal(signal.SIGCONT)
        lasted = time.time() - stopped
        (ended,) = wait_until(lambda: stalls(second, training.pid, is_open=False), 10)
        assert ended["id"] == opened["id"]
        assert ended["cause"] == opened["cause"] == "suspended"
        assert ended["seconds"] == pytest.approx(lasted, abs=0.3)
        time.sleep(4)
        found = second.rank_of(training.pid)
        assert found is not None
        run, told = found[0]["run"], found[1]
        assert told["totals"]["stalls"] == told["counters"]["stalls"]["suspended"] == 1
        assert told["steps"]["count"] > before["steps"]["count"] + 40
        assert sum(told["ledger"].values()) == pytest.approx(told["wall_seconds"], rel=0.01)
        assert {span["phase"] for span in told["phases"]} == {span["phase"] for span in before["phases"]}
        assert counted(exporter, "stalls_total") == 1
        assert counted(exporter, "stall_seconds_total") == pytest.approx(lasted, abs=0.3)
        api = f"?token={exporter.token()}&run={run}&rank=0"
        told_stalls = json.loads(exporter.get(f"/api/v1/stalls{api}"))["stalls"]
        assert [one["id"] for one in told_stalls if one["run"] == run] == [opened["id"]]
        rows = json.loads(exporter.get(f"/api/v1/steps{api}"))["rows"]
        assert sum(row["count"] for row in rows) > before["steps"]["count"] + 30
        assert max(row["seconds"] for row in rows) == pytest.approx(lasted, abs=0.5)
    return str(run)


def counted(exporter: Exporter, name: str) -> float:
    """The sum over all series of a counter of this training (there is no other in the test's report)."""
    lines = exporter.get("/metrics").splitlines()
    mine = [line for line in lines if line.startswith(f"trainprobe_{name}{{") and 'run="train.py-' in line]
    return sum(float(line.rpartition(" ")[2]) for line in mine)
