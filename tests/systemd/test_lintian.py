"""Debian's own judge of packages has nothing to say that the package does not explain."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from deb import build


@pytest.mark.skipif(shutil.which("lintian") is None, reason="no lintian here")
def test_lintian_is_silent(tmp_path: Path) -> None:
    package = build.build(tmp_path, "1.0", build.source_date())
    command = ["lintian", "--allow-root", "--tag-display-limit=0", str(package)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")
