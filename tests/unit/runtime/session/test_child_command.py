from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import ctypes, os
from trainprobe.runtime.session.child_command import original_environment
os.setuid(65534)
ctypes.CDLL(None).prctl(4, 0)
assert not os.access("/proc/self/environ", os.R_OK)
assert original_environment()[b"WHAT"] == b"ever"
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")
def test_the_environment_is_known_where_the_process_may_not_be_looked_into() -> None:
    """PR_SET_DUMPABLE 0, as of an interpreter with capabilities of its own (setcap)."""
    environment = {"WHAT": "ever", "PYTHONPATH": str(Path(__file__).parents[4] / "daemon")}
    ended = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, timeout=30, check=False)
    assert ended.returncode == 0
