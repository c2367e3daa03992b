"""What keeps the daemon from starting, said before anything is loaded into the kernel."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from trainprobe.cli import main
from trainprobe.cli.daemon import hears_of_others
from trainprobe.cli.host_watch import HostWatch, reloaded
from trainprobe.config.schema import BudgetConfig, DaemonConfig, Matches, Privacy, PythonStack, TargetsConfig
from trainprobe.runtime.loop.event_loop import Loop
from trainprobe.runtime.session import privileges
from trainprobe.store.database import Database
from trainprobe.store.schema import MIGRATIONS

needs_rights = pytest.mark.skipif(bool(privileges.missing()), reason="the daemon asks for its rights first")


@needs_rights
def test_a_state_of_a_later_version_is_refused_and_left_as_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """After a downgrade: both versions are named, and what to do; nothing is published, nothing is left behind."""
    state, directory = tmp_path / "state", tmp_path / "run"
    state.mkdir()
    path = state / "history.sqlite"
    Database(path, (*MIGRATIONS, ("CREATE TABLE later (x)",))).close()
    before = path.read_bytes()
    assert main(["daemon", "--directory", str(directory), "--state", str(state)]) == 1
    said = capsys.readouterr().err
    assert f"{path} has schema {len(MIGRATIONS) + 1}, this version knows up to {len(MIGRATIONS)}" in said
    assert "to mend it: install the version that wrote it" in said
    assert path.read_bytes() == before
    assert not directory.exists()


def test_where_something_is_named_by_pattern_the_kernel_tells_of_new_processes() -> None:
    """Else one that begins behind the daemon would be found by the next look at all processes only, a minute later."""
    assert hears_of_others(TargetsConfig())
    assert hears_of_others(TargetsConfig(auto=False, include=Matches(commands=("*train*",))))
    assert not hears_of_others(TargetsConfig(auto=False))


@needs_rights
def test_a_daemon_among_a_containers_pids_says_that_it_would_see_nothing(tmp_path: Path) -> None:
    places = ["--directory", str(tmp_path / "run"), "--state", str(tmp_path / "state")]
    command = ["unshare", "--pid", "--fork", "--mount-proc", sys.executable, "-m", "trainprobe.cli", "daemon", *places]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "the pids of a container" in done.stderr
    assert "--pid=host" in done.stderr


def test_modules_that_it_seldom_needs_take_no_memory_of_it() -> None:
    """Each of these is some hundred kilobytes, with all that it imports."""
    imports = (
        "import sys\nfrom trainprobe.cli import parser\nparser(['daemon'])\nimport trainprobe.cli.host_watch\n"
        "print(*sorted({'asyncio', 'decimal', 'difflib', 'hashlib', 'logging', 'lzma', 'shutil',"
        " 'statistics', 'tempfile'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", imports], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == ""


def test_what_a_reload_takes_over_and_what_waits_for_a_restart() -> None:
    old = DaemonConfig(privacy=Privacy(stacks=False))
    new = DaemonConfig(python_stack=PythonStack(enabled=False), budget=BudgetConfig(cpu=0.01))
    holds, waiting = reloaded(old, new)
    assert waiting == ["python_stack", "privacy.stacks"]
    assert (holds.python_stack, holds.privacy.stacks, holds.budget.cpu) == (old.python_stack, False, 0.01)
    holds, waiting = reloaded(new, old)
    assert waiting == ["python_stack"]
    assert not holds.privacy.stacks


def test_who_opens_his_report_without_end_is_heard_once_a_turn() -> None:
    reading, writing = os.pipe()
    os.write(writing, b"x")  # which nobody takes out: it stays readable
    heard: list[int] = []
    watch: Any = object.__new__(HostWatch)
    watch._loop, watch._listens, watch._watchdog_ns, watch._give_back_ns = Loop(), False, 0, 1 << 62
    watch._notifier = SimpleNamespace(watchdog_ns=0)
    watch._readers = SimpleNamespace(fileno=lambda: reading, read=lambda now_ns: heard.append(now_ns) or True)
    turns: list[int] = []

    def turn(*, woken: bool) -> None:
        turns.append(time.monotonic_ns())
        if len(turns) == 3:
            watch._loop.stop()

    due = time.monotonic_ns() + 30_000_000
    watch._observer = SimpleNamespace(turn=turn, look_sooner=lambda: None, due_ns=lambda: due + 30_000_000 * len(turns))
    watch._listen()
    watch._loop.run(watch)
    assert len(turns) == 3
    assert len(heard) == 3
    watch._loop.close()
    os.close(reading)
    os.close(writing)
