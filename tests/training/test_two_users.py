"""A user's training beside another, unprivileged user who would like to disturb it or to read of it."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from benchmarks import pace
from benchmarks.limits import fake_torch
from benchmarks.programs import Daemon
from benchmarks.stalls.host import CannotHere
from tests.builders.waiting import wait_until

OTHER = 54321
STALL_SECONDS = 4.0
SYSTEM_PYTHON = "/usr/bin/python3"
"""One that every user may run, wherever the checkout is."""
VICTIM = """
import os, sys, time, torch
torch.set_num_threads(1)
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

def wait_for_nobodys_business(begun):
    with open(begun + ".new", "w") as file:
        file.write(repr(time.time()))
    os.rename(begun + ".new", begun)
    time.sleep(%r)

while True:
    optimizer.zero_grad()
    model(torch.randn(64, 64)).square().mean().backward()
    optimizer.step()
    time.sleep(0.02)
    try:
        os.remove("stall")
    except FileNotFoundError:
        continue
    wait_for_nobodys_business("begun")
"""
ATTACKER = """
import ctypes, sys, time
library = ctypes.CDLL(sys.argv[1])
print(library.start(int(sys.argv[2]), int(sys.argv[3])), flush=True)

def planted_by_the_other_user():
    while True:
        library.usleep(10_000)

planted_by_the_other_user()
"""
Json = dict[str, Any]


@pytest.fixture
def folders() -> Iterator[tuple[Path, Path]]:
    """(the victim's, the other user's): each his own, outside of pytest's, which only its user may enter."""
    with (
        tempfile.TemporaryDirectory(prefix="victims-") as ours,
        tempfile.TemporaryDirectory(prefix="others-") as theirs,
    ):
        os.chown(theirs, OTHER, OTHER)
        yield Path(ours), Path(theirs)


@contextmanager
def victim(folder: Path, torch_python: str, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    (folder / "train.py").write_text(VICTIM % STALL_SECONDS)
    training = subprocess.Popen([torch_python, "train.py"], cwd=folder, env=os.environ | environment)
    try:
        yield training
    finally:
        training.kill()
        training.wait()


@contextmanager
def attacker(folder: Path, threads: int, milliseconds: int, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """Another user's program of the same name, which makes such steps in so many threads."""
    try:
        library = fake_torch.built(folder)
    except CannotHere as reason:
        pytest.skip(str(reason))
    (folder / "train.py").write_text(ATTACKER)
    command = [SYSTEM_PYTHON, "train.py", str(library), str(threads), str(milliseconds)]
    program = subprocess.Popen(
        command, cwd=folder, env={"PATH": "/usr/bin:/bin"} | environment, stdout=subprocess.PIPE,
        user=OTHER, group=OTHER, extra_groups=[],
    )  # fmt: skip
    try:
        assert program.stdout is not None
        assert int(program.stdout.readline()) == threads
        yield program
    finally:
        program.kill()
        program.communicate()


def steps(daemon: Daemon, pid: int) -> int:
    found = daemon.rank_of(pid)
    return found[1]["steps"]["count"] if found else 0


def published_after(daemon: Daemon, folder: Path, pids: Sequence[int]) -> float:
    """Seconds from the beginning of a stall that is planted in one of these until it is in the report of all."""
    (folder / "stall").touch()
    begun = float(wait_until(lambda: (folder / "begun").exists() and (folder / "begun").read_text(), 10))

    def told() -> bool:
        found = [rank for run in daemon.report()["runs"] for rank in run["ranks"] if rank["pid"] in pids]
        stalls = [stall for rank in found for stall in rank["stalls"]]
        return any(stall["end"] is None and stall["start"] >= begun - 0.5 for stall in stalls)

    wait_until(told, STALL_SECONDS)
    return time.time() - begun


def own(daemon: Daemon, uid: int) -> tuple[str, list[Json]]:
    """What a user may read of his runs: the text, and the runs in it."""
    text = (daemon.directory / "users" / f"{uid}.json").read_text()
    runs: list[Json] = json.loads(text)["runs"]
    return json.dumps(runs), runs


def ranks(runs: list[Json]) -> set[tuple[int, ...]]:
    """The processes of each run's ranks."""
    return {tuple(rank["pid"] for rank in run["ranks"]) for run in runs}


@pytest.mark.timeout(150)
def test_another_users_scheduler_id_joins_no_run(torch_python: str, tmp_path: Path, folders: tuple[Path, Path]) -> None:
    """He runs programs of the same name under the ids of the victim's jobs, each as the second rank."""
    soon = pace.slowness()  # seconds
    ours, theirs = folders
    ids = {"SLURM_JOB_ID": "4711", "SLURM_STEP_ID": "0"}, {"TORCHELASTIC_RUN_ID": "exp1"}
    with Daemon(tmp_path) as daemon, ExitStack() as programs:
        trainings, others = [], []
        for scheduler in ids:
            mine, his = ({"RANK": rank, "WORLD_SIZE": "2"} | scheduler for rank in "01")
            trainings.append(programs.enter_context(victim(ours, torch_python, **mine)))
            others.append(programs.enter_context(attacker(theirs, 1, 20, **his)))
        everybody = [program.pid for program in trainings + others]
        wait_until(lambda: min(steps(daemon, pid) for pid in everybody) > 30, 60)
        assert published_after(daemon, ours, everybody[:2]) < soon
        wait_until(lambda: "wait_for_nobodys_business" in own(daemon, os.getuid())[0], STALL_SECONDS)
        read, runs = own(daemon, os.getuid())
        read_by_other, runs_of_other = own(daemon, OTHER)
    assert len({run["run"] for run in runs + runs_of_other}) == 4
    assert ranks(runs) == {(program.pid,) for program in trainings}
    assert ranks(runs_of_other) == {(program.pid,) for program in others}
    for word in (str(theirs), "planted_by_the_other_user", fake_torch.NAME):
        assert word not in read
    for word in (str(ours), "wait_for_nobodys_business", torch_python):
        assert word not in read_by_other


@pytest.mark.timeout(150)
def test_fifteen_hundred_drivers_of_another_user_hide_nobodys_stall(
    torch_python: str, tmp_path: Path, folders: tuple[Path, Path]
) -> None:
    soon = pace.slowness()  # seconds
    ours, theirs = folders
    with Daemon(tmp_path) as daemon, attacker(theirs, 1500, 500) as other:
        wait_until(lambda: daemon.rank_of(other.pid), 30)
        with victim(ours, torch_python) as training:
            wait_until(lambda: steps(daemon, training.pid) > 30, 60)
            assert published_after(daemon, ours, [training.pid]) < soon
            found = daemon.rank_of(other.pid)
            assert found is not None
            assert 0 < len(found[0]["ranks"]) <= 32 < found[0]["totals"]["ranks"]
