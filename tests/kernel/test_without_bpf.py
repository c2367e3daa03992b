# SPDX-License-Identifier: Apache-2.0
"""Where bpf() is refused nothing is guessed: each program says that it cannot tell, why, and what mends it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.programs import environment, trainprobe

REFUSE = (sys.executable, str(Path(__file__).with_name("without_bpf.py")))


def refused(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [*REFUSE, *trainprobe(*arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=90, check=False)


def says_why(text: str) -> bool:
    words = " ".join(text.split())
    return all(
        part in words
        for part in (
            "cannot tell where time goes because bpf() is refused here: Operation not permitted, by a seccomp filter",
            "to mend it: run trainprobe on the host",
            "SystemCallFilter=bpf perf_event_open",
        )
    )


def test_run_does_not_start_the_command(tmp_path: Path) -> None:
    """An own failure before the command starts: 125."""
    ended = refused("run", "-o", str(tmp_path / "report.json"), "--", "touch", str(tmp_path / "started"))
    assert ended.returncode == 125
    assert says_why(ended.stderr), ended.stderr
    assert list(tmp_path.iterdir()) == []


def test_attach_and_the_daemon_end_with_one_and_publish_nothing(tmp_path: Path) -> None:
    published = tmp_path / "published"
    for arguments in (
        ("attach", str(os.getpid())),
        ("daemon", "--directory", str(published), "--state", str(tmp_path / "state")),
    ):
        ended = refused(*arguments)
        assert ended.returncode == 1, arguments
        assert says_why(ended.stderr), ended.stderr
    assert not (published / "report.json").exists()


@pytest.mark.parametrize("strictly", [(), ("--strict",)])
def test_check_names_what_cannot_be_told(strictly: tuple[str, ...]) -> None:
    """Nothing can be watched, so it fails either way."""
    ended = refused("check", *strictly)
    assert ended.returncode == 1
    assert says_why(ended.stdout), ended.stdout
    assert "Nothing can be watched before this is mended: eBPF programs." in ended.stdout
