"""Without CAP_SYS_ADMIN the daemon runs and watches what it is told to, and says what it cannot see."""

from __future__ import annotations

import secrets
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

from deb import build
from tests.systemd.booted import HOST_PROC, ROOT, Booted, tree
from tests.systemd.test_installed import DEPENDS, DROP_IN

TRAINING = ROOT / "tests" / "observability" / "stalling_training.py"


@pytest.mark.nightly
@pytest.mark.training
@pytest.mark.timeout(300)
def test_no_steps_but_the_rest_of_a_training_that_is_named(torch_python: str) -> None:
    with Booted(tree(DEPENDS)) as host, tempfile.TemporaryDirectory() as place:
        training = Path(shutil.copy(TRAINING, Path(place) / f"named_{secrets.token_hex(4)}.py"))
        build.build(host.root / "root", "1.0", build.source_date())
        host.told("apt-get install -y ./root/trainprobe_1.0_all.deb", timeout=200)
        host.write(f"{DROP_IN}/host-proc.conf", HOST_PROC)
        host.told(f"cp /usr/share/doc/trainprobe/examples/no-sys-admin.conf {DROP_IN}")
        host.write("/etc/trainprobe/trainprobe.yaml", f"targets: {{include: {{commands: ['*{training.name}*']}}}}\n")
        host.told("systemctl daemon-reload && systemctl start trainprobe")
        subprocess.run([torch_python, str(training), place, "6", "checkpoint=1.0"], check=True, capture_output=True)
        time.sleep(2.5)
        report = host.told("trainprobe report")
        assert "CAP_SYS_ADMIN" in report
        assert training.name in report
        assert "Checkpoints" in report
