from __future__ import annotations

import psutil
import pytest


@pytest.fixture(autouse=True)
def _proc(monkeypatch: pytest.MonkeyPatch) -> None:
    """A ``HostReader`` moves it for the whole process, and so for the tests that follow."""
    monkeypatch.setattr(psutil, "PROCFS_PATH", "/proc")
