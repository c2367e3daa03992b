"""The same package on the next Debian and on Ubuntu: another systemd, another BCC, another Python."""

from __future__ import annotations

import re
import secrets
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from deb import build
from tests.systemd.booted import HOST_PROC, Booted, tree
from tests.systemd.test_installed import DEPENDS, DROP_IN, TRAINING, UNITS


@pytest.mark.nightly
@pytest.mark.training
@pytest.mark.timeout(900)
@pytest.mark.parametrize("release", ["trixie", "jammy", "noble"])
def test_it_installs_starts_and_finds_a_training(release: str, torch_python: str) -> None:
    with Booted(tree(DEPENDS, release)) as host, tempfile.TemporaryDirectory() as place:
        build.build(host.root / "root", "1.0", build.source_date())
        host.told("apt-get install -y ./root/trainprobe_1.0_all.deb", timeout=300)
        verified = host.run(f"systemd-analyze verify --man=no {' '.join(UNITS)}")
        ours = [line for line in verified.stderr.splitlines() if "trainprobe" in line]  # of Ubuntu's own it says things
        assert (verified.returncode, ours) == (0, [])
        host.write(f"{DROP_IN}/host-proc.conf", HOST_PROC)
        host.told("systemctl daemon-reload && systemctl start trainprobe")
        waits = [host.shown(unit, "RestartUSec") + " " + host.shown(unit, "RestartMaxDelayUSec") for unit in UNITS]
        assert waits == (["10s "] * 2 if release == "jammy" else ["5s 1min"] * 2)
        host.wait_for("curl --silent --fail http://127.0.0.1:19752/-/ready", 30)
        training = shutil.copy(TRAINING, Path(place) / f"stalling_{secrets.token_hex(4)}.py")
        subprocess.run([torch_python, str(training), place, "8", "checkpoint=1.0"], check=True, capture_output=True)
        stalls = f"^trainprobe_stalls_total.*{re.escape(Path(training).name)}"
        counted = "grep 'cause=\"checkpoint\".* 1.0$'"
        host.wait_for(f"curl --silent http://127.0.0.1:19752/metrics | grep {shlex.quote(stalls)} | {counted}", 20)
        host.told("systemctl stop trainprobe && apt-get purge -y trainprobe", timeout=120)
