"""How real trainings end: what the report says of the end, and what it still says of the time before."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import socket
import subprocess
import termios
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from benchmarks.programs import Daemon, end, environment
from tests.training.test_lives import only_rank, watch

TRAINING = Path(__file__).with_name("ending_training.py")
STEPS, HANG, LATE = 60, 6.0, 3.0
PATIENCE = 60.0
UPLOADS = {
    "uploads": "waiting for thread {who}, which sends to {peer}:",
    "uploads now": "waiting on a socket to {peer} for",
    "uploads at exit": "waiting on a socket to {peer} for",
    "uploads by a process": "waiting for process {who}, which sends to {peer}:",
}
HOWS = ("raises", "kills itself", "hang", "plots", *UPLOADS)
UPLOAD_SECONDS, UPLOAD_BYTES = 5.0, 8 << 20
SIGNALLED = ("Ctrl-C", "timeout")


@dataclass
class Job:
    """A training at a terminal of its own."""

    process: subprocess.Popen[bytes]
    terminal: int
    output: bytes = b""

    def steps(self) -> int:
        """Steps that it has printed."""
        while True:
            try:
                data = os.read(self.terminal, 65536)
            except (BlockingIOError, OSError):  # EIO: it has ended
                return self.output.count(b"\n")
            if not data:
                return self.output.count(b"\n")
            self.output += data


class Slow:
    """A server that takes UPLOAD_BYTES in UPLOAD_SECONDS, and answers."""

    def __init__(self, undo: ExitStack) -> None:
        self.server = undo.enter_context(socket.create_server(("127.0.0.1", 0)))
        self.port = self.server.getsockname()[1]
        self.seconds = 0.0
        threading.Thread(target=self._take_upload, daemon=True).start()

    def _take_upload(self) -> None:
        connection, _ = self.server.accept()
        with connection:
            begun, taken = time.monotonic(), 0
            while data := connection.recv(1 << 16):
                taken += len(data)
                time.sleep(max(0.0, begun + taken / UPLOAD_BYTES * UPLOAD_SECONDS - time.monotonic()))
            connection.send(b"k")
            self.seconds = time.monotonic() - begun


def started(command: list[str], undo: ExitStack, **environ: str) -> Job:
    terminal, end_of_it = pty.openpty()
    os.set_blocking(terminal, False)
    process = subprocess.Popen(
        command, stdin=end_of_it, stdout=end_of_it, stderr=end_of_it, env=environment(**environ),
        start_new_session=True, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )  # fmt: skip
    os.close(end_of_it)
    undo.callback(os.close, terminal)
    undo.callback(end, process)
    return Job(process, terminal)


def until(missing: Callable[[], list[str]], jobs: dict[str, Job]) -> None:
    """Until no training is missing."""
    limit = time.monotonic() + PATIENCE
    while names := missing():
        for job in jobs.values():
            job.steps()
        assert time.monotonic() < limit, "\n".join(f"{name}: {jobs[name].output[-300:]!r}" for name in names)
        time.sleep(0.05)


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory, torch_python: str) -> dict[str, dict[str, Any]]:
    """The reports of trainings that have ended, by how they did."""
    limits = (str(STEPS), str(HANG), str(LATE))
    commands = {how: [torch_python, str(TRAINING), how, *limits] for how in HOWS}
    goes_on = [torch_python, str(TRAINING), "goes on", *limits]
    commands |= {"Ctrl-C": goes_on, "timeout": ["timeout", "600", *goes_on]}
    with ExitStack() as undo:
        daemon = undo.enter_context(Daemon(tmp_path_factory.mktemp("endings")))
        slow = {name: Slow(undo) for name in UPLOADS}
        to = {name: {"UPLOAD_TO": str(one.port), "UPLOAD_BYTES": str(UPLOAD_BYTES)} for name, one in slow.items()}
        jobs = {name: started(command, undo, **to.get(name, {})) for name, command in commands.items()}
        until(lambda: [name for name in SIGNALLED if jobs[name].steps() < STEPS], jobs)
        time.sleep(0.3)
        own = {name: job.process.pid for name, job in jobs.items()}
        timer = own["timeout"]
        own["timeout"] = int(Path(f"/proc/{timer}/task/{timer}/children").read_text())
        os.write(jobs["Ctrl-C"].terminal, b"\x03")
        os.kill(timer, signal.SIGALRM)  # its time is over
        until(lambda: [name for name, job in jobs.items() if job.process.poll() is None], jobs)
        ranks: dict[str, dict[str, Any]] = {}

        def untold() -> list[str]:
            for name, pid in own.items():
                found = daemon.rank_of(pid)
                if found is not None and found[0]["ended"]:
                    ranks[name] = found[1]
            return [name for name in jobs if name not in ranks]

        until(untold, jobs)
        for name, one in slow.items():
            ranks[name]["truth"] = {"peer": f"127.0.0.1:{one.port}", "seconds": one.seconds}
    return ranks


BOTTLENECK = ("bottleneck", "data_inline")


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("how", "ending", "reason", "verdict"),
    [
        ("raises", "exception", "exit code 1", ("end", None)),
        ("kills itself", "own_kill", "ended by a signal of its own, 15", BOTTLENECK),
        ("hang", "exception", "exit code 1 after worker_hang", ("stall", "worker_hang")),
        ("plots", "finished", "finished", None),
        *((how, "finished", "finished", ("stall", "network")) for how in UPLOADS),
        ("Ctrl-C", "interrupted", "interrupted (Ctrl-C)", BOTTLENECK),
        ("timeout", "timeout", "timed out: signal 15 by timeout (", BOTTLENECK),
    ],
)
def test_how_it_ended_and_what_mattered(
    how: str, ending: str, reason: str, verdict: tuple[str, str | None] | None, ended: dict[str, dict[str, Any]]
) -> None:
    rank = ended[how]
    assert rank["exit"]["ending"] == ending
    assert rank["exit"]["reason"].startswith(reason)
    if verdict is not None:
        assert (rank["verdict"]["kind"], rank["verdict"]["cause"]) == verdict, rank["verdict"]["summary"]
    assert not rank["warnings"]
    assert f"after {STEPS} steps" in rank["verdict"]["summary"] or how != "raises"
    assert "gc_pause" not in rank["lost"]


def test_a_crash_before_the_first_step_begins_with_its_exit_code(tmp_path: Path, torch_python: str) -> None:
    code, report, _ = watch(tmp_path, torch_python, "import torch\nraise ValueError")
    rank = only_rank(report)
    assert (code, rank["exit"]["ending"]) == (1, "exception")
    assert rank["verdict"]["summary"] == "exit code 1 before the first training step"


def test_what_comes_after_the_last_step_is_lost_until_the_training_leaves_its_code(
    ended: dict[str, dict[str, Any]],
) -> None:
    """A loader that times out, and a last computation; the end of the interpreter is shutdown."""
    hang, plot = ended["hang"]["stalls"][-1], ended["plots"]["stalls"][-1]
    assert (hang["cause"], hang["seconds"]) == ("worker_hang", pytest.approx(HANG, abs=0.3))
    assert plot["cause"] in ("cpu_bound", "cpu_contention")
    assert plot["seconds"] == pytest.approx(LATE, abs=0.3)
    assert "busy" in plot["summary"] or plot["cause"] == "cpu_contention"


@pytest.mark.parametrize("how", UPLOADS)
def test_an_upload_that_the_end_waits_for_is_told_with_its_numbers(how: str, ended: dict[str, dict[str, Any]]) -> None:
    """Sent by the main thread, by a thread or by a process: at once, or when the interpreter has begun to finalize."""
    truth, stall = ended[how]["truth"], ended[how]["stalls"][-1]
    assert stall["cause"] == "network"
    values = {one["key"]: one["value"] for one in stall["evidence"]}
    assert values["network.peer"] == truth["peer"]
    assert values["network.taken"] == pytest.approx(UPLOAD_BYTES, rel=0.15)  # looked at each half second
    assert stall["seconds"] == pytest.approx(truth["seconds"], abs=0.3)
    who = next((one["pid"] for one in stall["evidence"] if one["key"] == "network.taken"), None)
    number = (
        re.escape(UPLOADS[how].format(who=who, peer=truth["peer"])) + r" [45]\.\d\d s, at least [78](\.\d+)? MB sent"
    )
    assert re.fullmatch(number, stall["summary"])
