"""The kit for a machine with a GPU, packed from this checkout, in a bare Debian without network."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.systemd.booted import ROOT, Booted, tree
from tests.systemd.test_installed import DEPENDS

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(900)]
ARCHIVE = ROOT / "build" / "trainprobe-gpu.tar.xz"


@pytest.fixture(scope="module")
def archive() -> Path:
    subprocess.run(["make", "gpukit"], cwd=ROOT, check=True, capture_output=True, timeout=800)
    assert ARCHIVE.stat().st_size <= 60_000_000
    return ARCHIVE


def unpacked(archive: Path, target: Path) -> Path:
    subprocess.run(["tar", "xf", archive, "-C", target], check=True)
    return target / "trainprobe-gpu"


def test_in_a_bare_debian_it_loads_ebpf_and_says_what_is_missing(archive: Path) -> None:
    with Booted(tree(DEPENDS)) as host:
        unpacked(archive, host.root / "opt")
        assert host.run("command -v python3").returncode != 0
        done = host.run("/opt/trainprobe-gpu/tools/gpu", timeout=120)
        missing = [line.split(":")[0].strip() for line in done.stderr.splitlines()[1:]]
        assert (done.returncode, missing) == (3, ["a GPU", "NVML", "a Python with PyTorch"]), done.stderr
        checked = host.told("/opt/trainprobe-gpu/kit/bin/python3 -m trainprobe.cli check --json", timeout=120)
        states = {one["name"]: one["state"] for one in json.loads(checked)}
        assert (states["bcc"], states["py-spy"], states["eBPF programs"]) == ("ok", "ok", "ok"), checked


@pytest.mark.training
def test_it_rehearses_without_network(archive: Path, torch_python: str, tmp_path: Path) -> None:
    kit = unpacked(archive, tmp_path)
    plain = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = ["unshare", "--net", kit / "tools" / "gpu", "--rehearse", "--python", torch_python]
    done = subprocess.run(
        [*command, "--only", "check", "nvml", "marks", "compile"], env=plain, cwd="/", capture_output=True, text=True,
        timeout=300, check=False,
    )  # fmt: skip
    parts = json.loads((kit / "build" / "gpu" / "report.json").read_text())["parts"]
    assert done.returncode == 0, (done.stdout, done.stderr)
    (bcc,) = [one for one in parts["check"]["findings"] if one["name"] == "bcc"]
    assert bcc["what"].startswith(str(kit))
    assert parts["marks"]["hits_per_step"]["on_gpu_wait"] == 1.0
