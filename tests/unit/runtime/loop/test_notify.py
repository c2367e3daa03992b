from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainprobe.runtime.loop.notify import Notifier


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "notify"))
        listening.settimeout(5)
        yield listening


def test_the_manager_hears(manager: socket.socket) -> None:
    Notifier(manager.getsockname()).notify("READY=1", "STATUS=watching")
    assert manager.recv(100) == b"READY=1\nSTATUS=watching"


def test_an_abstract_address_works() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(f"\0trainprobe-test-{os.getpid()}")
        Notifier(f"@trainprobe-test-{os.getpid()}").notify("READY=1")
        assert listening.recv(100) == b"READY=1"


def test_without_a_manager_nothing_happens(tmp_path: Path) -> None:
    Notifier().notify("READY=1")
    Notifier(str(tmp_path / "gone")).notify("READY=1")


def test_the_variables_are_read_and_taken_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", "/x")
    monkeypatch.setenv("WATCHDOG_USEC", "3000000")
    monkeypatch.setenv("WATCHDOG_PID", str(os.getpid()))
    assert Notifier.of_environment().watchdog_ns == 1_000_000_000
    assert "NOTIFY_SOCKET" not in os.environ


def test_a_watchdog_for_another_process_is_not_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", "3000000")
    monkeypatch.setenv("WATCHDOG_PID", "1")
    assert Notifier.of_environment().watchdog_ns == 0
