"""The caller's handle of the half that needs rights, where that half does not do as it should."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import NoReturn

import pytest

from trainprobe.runtime.session import probe_part
from trainprobe.runtime.session.probe_part import ProbePart
from trainprobe.runtime.session.probe_protocol import Order

DEAF = [sys.executable, "-c", "import time; time.sleep(5)"]


def test_one_that_does_not_end_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe_part, "PATIENCE_SECONDS", 0.1)
    part = ProbePart(DEAF, Order(0, ["true"]), own_session=True)
    part.close()
    assert part._child.wait(2) == -9


def test_one_that_may_not_be_killed_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Below sudo it is root's, and its caller is not."""

    def forbidden(_: object) -> NoReturn:
        raise PermissionError(1, "Operation not permitted")

    part = ProbePart(DEAF, Order(0, ["true"]), own_session=True)
    child = part._child
    with monkeypatch.context() as patched:
        patched.setattr(probe_part, "PATIENCE_SECONDS", 0.1)
        patched.setattr(subprocess.Popen, "kill", forbidden)
        began = time.monotonic()
        part.close()
        assert time.monotonic() - began < 3
    child.kill()
    child.wait()
