"""The labelled runs of limits: what counts as right, and whom a person's kill hits."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.limits.cases import CASES, Case, wrong
from benchmarks.limits.places import MARK, TRAININGS, kill_marked
from benchmarks.limits.run import training_below


def rank(kind: str, cause: str | None, *warned: str, scope: str = "cgroup", by: int | None = None) -> dict[str, Any]:
    sender = None if by is None else {"id": "verdict.by_sender", "params": {"pid": by}}
    return {
        "verdict": {"kind": kind, "cause": cause, "summary": "", "message": {"id": "", "params": {"by": sender}}},
        "warnings": [{"cause": one} for one in warned],
        "memory": {"limit_scope": scope},
    }


@pytest.mark.parametrize("kind", CASES)
def test_a_seed_draws_the_same_run_again(kind: str) -> None:
    one, same = (CASES[kind](random.Random(5)) for _ in range(2))
    assert (one.arguments, one.kill_after) == (same.arguments, same.kill_after)
    assert (TRAININGS / f"{one.program}.py").exists()


@pytest.mark.parametrize(
    ("case", "told", "problems"),
    [
        (Case("exhaust", [], "oom_kill", "oom_kill"), rank("end", "oom_kill", "oom_kill"), 0),
        (Case("exhaust", [], "oom_kill", "oom_kill"), rank("end", "oom_kill", "oom_kill", scope="host"), 1),
        (Case("exhaust", [], "oom_kill", "oom_kill"), rank("end", "oom_kill"), 1),
        (Case("exhaust", [], "disk_full"), rank("stall", "suspended", "disk_full"), 1),
        (Case("exhaust", [], "disk_full"), rank("end", "disk_full", "disk_full", "oom_kill"), 1),
        (Case("exhaust", [], None, stalls_by="swap"), rank("bottleneck", "swap"), 0),
        (Case("exhaust", [], None, stalls_by="swap"), rank("stall", "memory_pressure"), 1),
        (Case("exhaust", [], ""), rank("end", None, by=os.getpid()), 0),
        (Case("exhaust", [], ""), rank("end", None), 1),
    ],
)
def test_what_is_right(case: Case, told: dict[str, Any], problems: int) -> None:
    assert len(wrong(case, told)) == problems


def test_the_training_below_a_shell_is_killed_and_no_worker(tmp_path: Path) -> None:
    program = tmp_path / "exhaust.py"
    program.write_text(
        "import os, sys, time\n"
        "if len(sys.argv) == 1:\n"
        "    os.fork() and time.sleep(60)\n"
        "    print(os.getpid(), flush=True)\n"
        "time.sleep(60)\n"
    )
    mark = f"{MARK}={tmp_path}"
    shell = subprocess.Popen(
        ["env", mark, "sh", "-c", '"$@"; true', "sh", sys.executable, str(program)], stdout=subprocess.PIPE, text=True
    )
    assert shell.stdout is not None
    worker = int(shell.stdout.readline())
    try:
        found = training_below(shell.pid)
        assert found is not None
        assert found not in (worker, shell.pid)
        assert Path(f"/proc/{worker}/stat").read_text().split()[3] == str(found)
    finally:
        kill_marked(str(tmp_path))
        shell.wait()
        shell.stdout.read()  # ends when the last of them has
        shell.stdout.close()
    assert not Path(f"/proc/{worker}/exe").exists()
