"""A training that is killed twice and goes on from its checkpoints, under a daemon that is restarted too, beside its
own clock."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.programs import Daemon, Json
from tests.builders.waiting import wait_until

SCRIPT = Path(__file__).with_name("killed_training.py")
JOB = "471100"
STEPS, KILLS = 300, (230, 80)
PAUSE = 1.5


def attempt(torch_python: str, state: Path, kill_at: int) -> int:
    """Start it as a scheduler does that requeues; its exit code."""
    more = {"STARTED": str(time.time()), "SLURM_JOB_ID": JOB}
    command = [torch_python, str(SCRIPT), str(state), str(STEPS), str(kill_at)]
    return subprocess.run(command, env=os.environ | more, timeout=60).returncode


def ended(daemon: Daemon, number: int) -> Callable[[], Json | None]:
    def latest_run() -> Json | None:
        runs = [run for run in daemon.report()["runs"] if run["labels"].get("slurm_job") == JOB]
        return next((one for one in runs if one["ended"] is not None and one["goodput"]["attempt"] == number), None)

    return latest_run


def truth(state: Path) -> tuple[dict[str, float], float]:
    """Seconds by source and productive ones, of all attempts, from the lines of the training's clock."""
    lines = [json.loads(line) for line in (state / "clock").read_text().splitlines()]
    attempts = [line for line in lines if "killed" in line or "finished" in line]
    saves = [line for line in lines if "saved" in line]
    names = ("useful", "imports", "restore", "save", "data", "evaluation", "first_step")
    total: dict[str, float] = dict.fromkeys(names, 0.0)
    for line in attempts:
        total = {name: seconds + line[name] for name, seconds in total.items()}
    first, second, _ = attempts
    held = max(save["saved"] for save in saves if save["started"] == first["started"])
    wasted = first["useful"] - held + second["useful"]
    gaps = sum(later["started"] - before["at"] for before, later in itertools.pairwise(attempts))
    return {
        "startup": total["imports"],
        "training_prep": total["first_step"] - total["imports"] - total["restore"],
        "data_loading": total["data"],
        "checkpoint_save": total["save"],
        "checkpoint_restore": total["restore"],
        "wasted_progress": wasted,
        "recovery": gaps,
        "evaluation": total["evaluation"],
    }, total["useful"] - wasted


@pytest.mark.timeout(180)
def test_every_bucket_is_that_of_the_trainings_own_clock_and_the_account_closes(
    tmp_path: Path, torch_python: str
) -> None:
    (tmp_path / "images").mkdir()
    for number in range(400):
        (tmp_path / "images" / f"{number}.jpg").write_bytes(bytes(2000))
    with Daemon(tmp_path) as daemon:
        assert attempt(torch_python, tmp_path, KILLS[0]) == -signal.SIGKILL
        first = wait_until(ended(daemon, 1), 15)
        time.sleep(PAUSE)
        assert attempt(torch_python, tmp_path, KILLS[1]) == -signal.SIGKILL
        wait_until(ended(daemon, 2), 15)
    with Daemon(tmp_path) as daemon:
        assert attempt(torch_python, tmp_path, STEPS) == 0
        run = wait_until(ended(daemon, 3), 15)
    told, (badput, productive) = run["goodput"], truth(tmp_path)
    for source, seconds in badput.items():
        found = told["badput"].get(source, 0.0)
        assert found == pytest.approx(seconds, rel=0.05, abs=1.0), (source, told["badput"], badput)
    assert told["productive_seconds"] == pytest.approx(productive, rel=0.05, abs=1.0)
    assert told["badput"].get("other", 0.0) <= 1.0 + 0.05 * productive
    assert told["between_attempts_seconds"] == pytest.approx(badput["recovery"], abs=0.5)
    assert told["productive_seconds"] + sum(told["badput"].values()) == pytest.approx(
        run["ended"] - first["started"], abs=0.02
    )
