"""A user who trains tries to fill the file system of all reports through the one file that is his to read."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from benchmarks import pace
from benchmarks.programs import Daemon
from tests.builders.users import OWNER, STRANGER, mounted, reachable, started
from tests.builders.waiting import wait_until

TRAINING = Path(__file__).parents[1] / "observability" / "stalling_training.py"
FILL = """
import os, sys, time
path, filled = sys.argv[1], 0
print("ready", flush=True)
while os.getppid() != 1:
    try:
        os.chmod(path, 0o600)
        with open(path, "ab") as file:
            while True:
                filled += file.write(bytes(1 << 16))
                file.flush()
    except OSError as error:
        print(filled, error.strerror, flush=True)
        time.sleep(0.02)
"""


def begun(python: str, user: int, directory: Path, seconds: int, *plan: str) -> subprocess.Popen[str]:
    place = directory / f"of-{user}"
    place.mkdir()
    shutil.chown(place, user, user)
    script = Path(shutil.copy(TRAINING, directory / f"train_{user}.py"))
    command = [python, str(script), str(place), str(seconds), *plan]
    return subprocess.Popen(command, user=user, group=user, extra_groups=[], stdout=subprocess.PIPE, text=True)


@pytest.mark.timeout(300)
def test_the_stall_of_another_is_published_within_a_second(torch_python: str) -> None:
    with (
        reachable() as directory,
        mounted("tmpfs", directory / "published", "size=4m,mode=755"),
        Daemon(directory) as daemon,
    ):
        own = daemon.directory / "users" / f"{STRANGER}.json"
        attacker = begun(torch_python, STRANGER, directory, 60)
        try:
            wait_until(own.exists, 60)
            with started(STRANGER, FILL, own) as filling:
                try:
                    assert filling.stdout is not None
                    assert filling.stdout.readline() == "ready\n"
                    assert filling.stdout.readline() == "0 Operation not permitted\n"
                    victim = begun(torch_python, OWNER, directory, 8, "cpu_bound=1.5")
                    ranks = wait_until(lambda: daemon.rank_of(victim.pid), 60)
                    assert ranks[0]["user"] == str(OWNER)
                    seen = wait_until(lambda: opened(daemon, victim.pid), 60)
                finally:
                    filling.kill()
            told, _ = victim.communicate(timeout=60)
        finally:
            attacker.kill()
            attacker.communicate()
        truth = json.loads(told.splitlines()[0])
        assert pace.within(seen - truth["start"], 1.0)
        assert daemon.said() == ""


def opened(daemon: Daemon, pid: int) -> float | None:
    """When a stall of the process that lasts was seen in the report (UNIX seconds)."""
    found = daemon.rank_of(pid)
    if found is None or not any(stall["end"] is None for stall in found[1]["stalls"]):
        return None
    return time.time()
