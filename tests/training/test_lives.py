"""How trainings begin and end, alone and together, and what an observer's violent end does to them: nothing."""

from __future__ import annotations

import ctypes
import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from benchmarks.programs import Daemon, Exporter, environment, trainprobe
from benchmarks.stalls.run import TRAININGS
from benchmarks.stalls.truth import Truth, read
from tests.builders.waiting import wait_until

UPROBES = Path("/sys/kernel/tracing/uprobe_events")
STEPS = 100
SCRIPT = """
import sys, torch
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(int(sys.argv[1])):
    optimizer.zero_grad()
    model(torch.randn(4, 8)).sum().backward()
    optimizer.step()
"""


def watch(tmp_path: Path, torch_python: str, body: str, *arguments: str) -> tuple[int, dict[str, Any], str]:
    """Exit code, report and stderr of a script under observation."""
    script = tmp_path / "train.py"
    script.write_text(body)
    report = tmp_path / "report.json"
    ended = subprocess.run(
        trainprobe("run", "-o", str(report), "--", torch_python, str(script), *arguments),
        capture_output=True, text=True, timeout=90, env=environment(), check=False,
    )  # fmt: skip
    return ended.returncode, json.loads(report.read_text()), ended.stderr


def only_rank(report: dict[str, Any]) -> dict[str, Any]:
    (run,) = report["runs"]
    (rank,) = run["ranks"]
    found: dict[str, Any] = rank
    return found


def test_a_training_that_exits_at_once(tmp_path: Path, torch_python: str) -> None:
    code, report, said = watch(tmp_path, torch_python, "import torch")
    rank = only_rank(report)
    assert code == 0, said
    assert rank["steps"]["count"] == 0
    assert rank["steps"]["source"] == "none"
    assert rank["steps"]["reason"]
    assert rank["verdict"]["kind"] == "none"
    assert rank["lost"].get("unknown", 0.0) == 0.0


@pytest.mark.parametrize(
    ("last", "code", "told"),
    [
        ("sys.exit(7)", 7, {"code": 7, "signal": None}),
        ("raise ValueError('no more data')", 1, {"code": 1, "signal": None}),
        ("import os; os.kill(os.getpid(), 11)", 139, {"code": None, "signal": 11}),
        ("import os; os._exit(0)", 0, {"code": 0, "signal": None}),
    ],
)
def test_however_it_ends_the_steps_are_there(
    last: str, code: int, told: dict[str, int | None], tmp_path: Path, torch_python: str
) -> None:
    ended, report, said = watch(tmp_path, torch_python, SCRIPT + last, "40")
    rank = only_rank(report)
    assert ended == code, said
    assert rank["steps"]["count"] == 40
    assert {key: rank["exit"][key] for key in told} == told
    assert "Traceback" not in said.replace('Traceback (most recent call last):\n  File "' + str(tmp_path), "")


def test_a_training_that_execs_itself_is_one_run_with_all_its_steps(tmp_path: Path, torch_python: str) -> None:
    """As some launchers do to set an environment, here in mid-training."""
    again = (
        "import os\nif not os.environ.get('AGAIN'):\n"
        "    os.execve(sys.executable, [sys.executable, sys.argv[0], '25'], os.environ | {'AGAIN': '1'})"
    )
    ended, report, said = watch(tmp_path, torch_python, SCRIPT + again, "40")
    rank = only_rank(report)
    assert ended == 0, said
    assert rank["steps"]["count"] == 65
    assert rank["exit"]["code"] == 0


@pytest.mark.timeout(240)
def test_ten_trainings_at_once(tmp_path: Path, torch_python: str) -> None:
    """Ten runs in one report, each with its own steps and with its own end."""
    script = tmp_path / "train.py"
    script.write_text(SCRIPT.replace("optimizer.step()", "optimizer.step(); import time; time.sleep(0.05)"))
    steps = [100 + 7 * number for number in range(10)]
    with Daemon(tmp_path) as daemon:
        jobs = [subprocess.Popen([torch_python, str(script), str(count)], env=threadless()) for count in steps]
        try:
            assert [job.wait(150) for job in jobs] == [0] * 10
        finally:
            for job in jobs:
                job.kill()
        ours = {job.pid for job in jobs}  # it watches all of the host, and we may not be alone

        def ended_runs() -> list[bool]:
            of_ours = (run for run in daemon.report()["runs"] if ours & {rank["pid"] for rank in run["ranks"]})
            return [run["ended"] for run in of_ours]

        wait_until(lambda: all(ended_runs()) and len(ended_runs()) == 10, 10)
        runs = {rank["pid"]: (run["run"], rank) for run in daemon.report()["runs"] for rank in run["ranks"]}
        ended = daemon.report()
    assert {job.pid: count for job, count in zip(jobs, steps)} == {
        pid: rank["steps"]["count"] for pid, (_, rank) in runs.items() if pid in ours
    }
    assert len({name for name, _ in runs.values()}) == len(runs)
    assert ended["events_lost"] == 0


@pytest.mark.timeout(240)
def test_trainings_that_end_together_export_no_stall_of_their_end(tmp_path: Path, torch_python: str) -> None:
    """Their teardowns take 0.8 s of CPU each and queue for the processors."""
    script, left = tmp_path / "train.py", tmp_path / "left"
    script.write_text(
        SCRIPT.replace("range(int(sys.argv[1]))", "iter(lambda: os.path.exists(sys.argv[1]), True)")
        .replace("import sys, torch", "import os, sys, time, torch")
        .replace("optimizer.step()", "optimizer.step(); time.sleep(0.05)")
    )
    with Daemon(tmp_path) as daemon, Exporter(tmp_path, daemon.directory / "report.json") as exporter:
        jobs = [subprocess.Popen([torch_python, str(script), str(left)], env=threadless()) for _ in range(6)]
        try:
            wait_until(lambda: all(steps_of(daemon, job.pid) > 60 for job in jobs), 120)
            left.touch()
            at_the_end = time.time()
            while any(job.poll() is None for job in jobs):
                exporter.get("/metrics")
                time.sleep(0.2)
        finally:
            for job in jobs:
                job.kill()
                job.wait()
        wait_until(lambda: all(daemon.rank_of(job.pid)[0]["ended"] for job in jobs), 10)  # type: ignore[index]
        time.sleep(2)
        lines = exporter.get("/metrics").splitlines()
        found = [daemon.rank_of(job.pid) for job in jobs]
    for run, rank in filter(None, found):
        assert [stall for stall in rank["stalls"] if stall["start"] > at_the_end + 0.2] == []
        of_run = f'run="{run["run"]}"'
        mine = [line for line in lines if line.startswith("trainprobe_stall_seconds_total{") and of_run in line]
        exported = sum(float(line.rpartition(" ")[2]) for line in mine)
        assert exported == pytest.approx(sum(rank["counters"]["stall_seconds"].values()), abs=1e-3)
        assert rank["counters"]["phase_seconds"]["shutdown"] > 0.3


def steps_of(daemon: Daemon, pid: int) -> int:
    found = daemon.rank_of(pid)
    return found[1]["steps"]["count"] if found else 0


def threadless() -> dict[str, str]:
    return os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


@contextmanager
def stalling(tmp_path: Path, torch_python: str, prefix: tuple[str, ...] = ()) -> Iterator[subprocess.Popen[bytes]]:
    """A training of STEPS steps that hogs its core for four seconds at step 60."""
    plan = {
        "seed": 1, "steps": STEPS, "width": 256, "batch": 64, "workers": 1, "scratch": str(tmp_path),
        "driver": [{"id": 0, "cause": "cpu_bound", "how": "python", "at": {"60": 4.0}}],
    }  # fmt: skip
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    job = subprocess.Popen(
        [*prefix, torch_python, str(TRAININGS / "plain.py"), "--plan", str(tmp_path / "plan.json"),
         "--truth", str(tmp_path / "truth.jsonl")],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment(),
    )  # fmt: skip
    try:
        yield job
    finally:
        if job.poll() is None:
            job.kill()
        job.wait()


def truth_of(tmp_path: Path) -> Truth:
    return read((tmp_path / "truth.jsonl").read_text().splitlines())


def ours() -> set[int]:
    """Processes of trainprobe's programs."""
    found = set()
    for command in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if re.search(rb"trainprobe(\.cli|-exporter|\.bpf)", command.read_bytes()):
                found.add(int(command.parent.name))
        except OSError:
            continue
    return found


SYSTEM_CALL = {"x86_64": 321, "aarch64": 280}
NEXT_PROGRAM, NEXT_MAP = 11, 12


def in_kernel(command: int) -> set[int]:
    """Ids of all BPF programs (or maps) that the kernel has, held by whomever."""
    call = ctypes.CDLL(None, use_errno=True).syscall
    ids, attributes = set(), (ctypes.c_uint32 * 4)()
    while call(SYSTEM_CALL[os.uname().machine], command, ctypes.byref(attributes), ctypes.sizeof(attributes)) == 0:
        ids.add(attributes[1])
        attributes[0] = attributes[1]
    return ids


def held_by(pid: int) -> dict[int, set[int]]:
    """Ids of the BPF programs and maps that a process holds open."""
    told = ""
    for file in Path(f"/proc/{pid}/fdinfo").iterdir():
        try:
            told += file.read_text()
        except FileNotFoundError:
            pass  # closed since it was listed
    return {
        command: {int(found) for found in re.findall(rf"^{word}_id:\s*(\d+)$", told, re.MULTILINE)}
        for command, word in ((NEXT_PROGRAM, "prog"), (NEXT_MAP, "map"))
    }


def gone(held: dict[int, set[int]]) -> bool:
    return all(not ids & in_kernel(command) for command, ids in held.items())


@pytest.mark.timeout(120)
def test_a_daemon_killed_in_the_middle_of_a_stall(tmp_path: Path, torch_python: str) -> None:
    """The training goes on to its last step, and neither programs, probes nor processes stay."""
    before = ours()
    with Daemon(tmp_path) as daemon, stalling(tmp_path, torch_python) as job:
        wait_until(lambda: _stalled(daemon, job.pid), 60)
        held = held_by(daemon.process.pid)
        assert all(held.values())
        daemon.process.send_signal(signal.SIGKILL)
        daemon.process.wait()
        wait_until(lambda: gone(held), 10)
        assert job.wait(60) == 0
    assert truth_of(tmp_path).steps == STEPS
    wait_until(lambda: ours() <= before, 10)
    assert not UPROBES.exists() or "trainprobe" not in UPROBES.read_text()


def _stalled(daemon: Daemon, pid: int) -> bool:
    found = daemon.rank_of(pid)
    return found is not None and any(
        stall["end"] is None and stall["cause"] == "cpu_bound" for stall in found[1]["stalls"]
    )


@pytest.mark.timeout(120)
def test_an_observer_killed_beside_its_command(tmp_path: Path, torch_python: str) -> None:
    """``trainprobe run`` whose observing half dies: the command does not feel it, and its exit code is passed on."""
    before = ours()
    with stalling(tmp_path, torch_python, tuple(trainprobe("run", "-o", str(tmp_path / "report.json"), "--"))) as job:
        wait_until(lambda: _observers(job.pid), 30)
        (half,) = _observers(job.pid)
        held = held_by(half)
        time.sleep(3)
        os.kill(half, signal.SIGKILL)
        wait_until(lambda: gone(held), 10)
        assert job.wait(60) == 0
    assert truth_of(tmp_path).steps == STEPS
    wait_until(lambda: ours() <= before, 10)


def _observers(front: int) -> list[int]:
    """The children of ``trainprobe run`` that hold BPF programs."""
    children = [int(word) for word in Path(f"/proc/{front}/task/{front}/children").read_text().split()]
    return [child for child in children if held_by(child)[NEXT_PROGRAM]]
