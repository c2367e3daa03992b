"""The daemon is killed in the middle of a real stall, and another one follows."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from benchmarks.programs import Daemon, Exporter, environment, trainprobe
from tests.builders.waiting import wait_until

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


@pytest.mark.timeout(120)
def test_a_daemon_that_comes_in_mid_stall_says_why_it_cannot_tell(tmp_path: Path, torch_python: str) -> None:
    """It has seen no ordinary step: no stall can be told, what the driver does can; and all is well when it goes on."""
    script = tmp_path / "train.py"
    script.write_text(SCRIPT + "    print(flush=True)\n")
    training = subprocess.Popen([torch_python, str(script)], stdout=subprocess.PIPE)
    assert training.stdout is not None
    try:
        for _ in range(40):
            assert training.stdout.readline()
        training.send_signal(signal.SIGSTOP)
        # Until it steps it is no training, except for who names it.
        included = f"targets: {{include: {{commands: ['*{script}*']}}}}"
        with Daemon(tmp_path, included) as daemon:
            told = wait_until(lambda: cannot_tell(daemon, training.pid), 30)
            assert "a stop (SIGSTOP" in told
            training.send_signal(signal.SIGCONT)
            wait_until(lambda: (rank(daemon, training.pid) or {"steps": {"count": 0}})["steps"]["count"] > 40, 30)
            found = rank(daemon, training.pid)
            assert found is not None
            assert "suspended" not in found["lost"]
            assert not cannot_tell(daemon, training.pid)
    finally:
        training.kill()
        training.communicate()


def cannot_tell(daemon: Daemon, pid: int) -> str:
    found = rank(daemon, pid)
    said = found["verdict"]["summary"] if found is not None else ""
    return said if said.startswith("cannot tell yet") else ""


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
        wait_until(lambda: (rank(second, training.pid) or {})["steps"]["count"] > before["steps"]["count"] + 40, 30)
        found = second.rank_of(training.pid)
        assert found is not None
        run, told = found[0]["run"], found[1]
        assert told["counters"]["stalls"]["suspended"] == 1
        assert sum(told["ledger"].values()) == pytest.approx(told["wall_seconds"], rel=0.01)
        assert {span["phase"] for span in told["phases"]} == {span["phase"] for span in before["phases"]}
        assert counted(exporter, "stalls_total") == 1
        assert counted(exporter, "stall_seconds_total") == pytest.approx(lasted, abs=0.3)
        api = f"?token={exporter.token()}&run={run}&rank=0"
        told_stalls = json.loads(exporter.get(f"/api/v1/stalls{api}"))["stalls"]
        mine = [one["id"] for one in told_stalls if one["run"] == run and one["cause"] == "suspended"]
        assert mine == [opened["id"]]

        def rows() -> list[dict[str, Any]]:
            return list(json.loads(exporter.get(f"/api/v1/steps{api}"))["rows"])

        # Of steps that are not stalled the history is told each five seconds.
        wait_until(lambda: sum(row["count"] for row in rows()) > before["steps"]["count"] + 30, 20)
        assert max(row["seconds"] for row in rows()) == pytest.approx(lasted, abs=0.5)
    return str(run)


def counted(exporter: Exporter, name: str) -> float:
    """A counter of this training's stops (there is no other training in the test's report)."""
    lines = exporter.get("/metrics").splitlines()
    wanted = ('run="train.py-', 'cause="suspended"')  # what a busy host does to it is not asked
    mine = [line for line in lines if line.startswith(f"trainprobe_{name}{{") and all(w in line for w in wanted)]
    return sum(float(line.rpartition(" ")[2]) for line in mine)
