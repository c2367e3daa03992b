# SPDX-License-Identifier: Apache-2.0
"""What a forked child makes reaches us whole; one that fails makes nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from trainprobe.bpf.compile.forked_task import ForkedTask


def test_what_it_made_comes_whole() -> None:
    data = os.urandom(3 << 20)  # more than a pipe holds
    children = [ForkedTask(lambda: data + str(os.getpid()).encode()) for _ in range(2)]
    made = [child.result() for child in children]
    assert all(one.startswith(data) for one in made)
    assert len({int(one[len(data) :]) for one in made} | {os.getpid()}) == 3, "each in a process of its own"


def test_what_failed_made_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    def children() -> list[str]:
        return [path.read_text() for path in Path("/proc/self/task").glob("*/children")]

    def work() -> bytes:
        raise ValueError("no such thing")

    before = children()

    assert ForkedTask(work).result() == b""
    assert "ValueError: no such thing" in capfd.readouterr().out
    assert children() == before
