# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainprobe.bpf.probes import Probes
from trainprobe.collect.procfs import Proc


@pytest.fixture(scope="module")
def probes() -> Iterator[Probes]:
    """One set of probes for the tests of a file: starting them costs a second."""
    probes = Probes.start(Proc(), auto=False)
    yield probes
    lost = {name: count for name, count in probes.lost().items() if count}
    probes.close()
    assert not lost


@pytest.fixture(scope="session")
def torch_python() -> str:
    """A Python that has torch: the one named by the environment, the checkout's own, or the one on PATH."""
    checkout = Path(__file__).parents[2]
    named = os.environ.get("TRAINPROBE_TORCH_PYTHON")
    for python in (named, str(checkout / ".venv-torch/bin/python"), shutil.which("python3")):
        if python and os.path.exists(python):
            found = subprocess.run([python, "-c", "import torch"], capture_output=True, check=False)
            if found.returncode == 0:
                return python
    reason = "no Python with torch (set TRAINPROBE_TORCH_PYTHON)"
    if os.environ.get("TRAINPROBE_REQUIRE_KERNEL") == "1":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)
