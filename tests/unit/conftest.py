from __future__ import annotations

import psutil


def pytest_runtest_teardown() -> None:
    """A ``HostReader`` moves it for the whole process, and so for the tests that follow."""
    psutil.PROCFS_PATH = "/proc"
