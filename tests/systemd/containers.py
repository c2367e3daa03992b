"""Containers of the image that `make image` builds, with a store of their own: the host's podman is left alone."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from functools import partial
from pathlib import Path
from types import TracebackType

from tests.systemd.booted import _removed, _until

ROOT = Path(__file__).parents[2]
# A plain user's limits cannot be raised on every host, and no systemd is needed.
CONFIGURATION = """[containers]
default_ulimits = ["nofile=20000:20000", "nproc=32768:32768"]
[engine]
cgroup_manager = "cgroupfs"
events_logger = "none"
"""
DROPPED = ("--read-only", "--security-opt=no-new-privileges", "--cap-drop=all")
LEAST = ("SYS_ADMIN", "SYS_PTRACE", "DAC_READ_SEARCH", "SYSLOG")
"""The capabilities that the daemon has in a container: docs/clusters.md says what fails without each."""


def cgroups() -> set[Path]:
    """Those of podman's containers, in each hierarchy."""
    root = Path("/sys/fs/cgroup")
    return {found for place in ("libpod_parent", "*/libpod_parent") for found in root.glob(f"{place}/libpod-*")}


class Containers:
    """Podman's containers until the ``with`` block ends."""

    def __init__(self) -> None:
        self._others = cgroups()
        self.place = Path(tempfile.mkdtemp(prefix="trainprobe-", dir="/var/tmp"))
        self.place.chmod(0o711)
        (self.place / "containers.conf").write_text(CONFIGURATION)
        self._podman = ["podman", f"--root={self.place / 'store'}", f"--runroot={self.place / 'run'}"]
        self._podman += [f"--runtime={runc}"] if (runc := shutil.which("runc")) else []  # crun refuses mixed cgroups

    def __enter__(self) -> Containers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.podman("rm", "--all", "--force", "--time=3", check=False)
        self.podman("rmi", "--all", "--force", check=False)
        subprocess.run(["umount", "--quiet", self.place / "store/overlay"], check=False)
        shutil.rmtree(self.place)
        for cgroup in cgroups() - self._others:  # podman leaves some of the hierarchies' behind
            _until(partial(_removed, cgroup), 3)

    def podman(self, *arguments: str, check: bool = True) -> str:
        """What it printed."""
        done = self._ran(*arguments)
        assert done.returncode == 0 or not check, f"{arguments}\n{done.stdout}{done.stderr}"
        return done.stdout.strip()

    def logs(self, name: str) -> str:
        done = self._ran("logs", name)
        return (done.stdout + done.stderr).strip()

    def _ran(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        environment = os.environ | {"CONTAINERS_CONF": str(self.place / "containers.conf")}
        command = [*self._podman, *arguments]
        return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120, check=False)

    def load(self, archive: Path) -> str:
        """The image's name."""
        return self.podman("load", "--quiet", f"--input={archive}").rpartition(" ")[2]

    def directory(self, name: str, uid: int, gid: int, mode: int = 0o755) -> Path:
        made = self.place / name
        made.mkdir()
        made.chmod(mode)
        os.chown(made, uid, gid)
        return made

    def daemon(self, image: str, published: Path, state: Path) -> str:
        """Started in the background, with the least capabilities; its name."""
        self.podman(
            "run", "--detach", "--name=daemon", "--pid=host", "--network=none", "--user=0:990", *DROPPED,
            *(f"--cap-add={capability}" for capability in LEAST), "--device=/dev/kmsg:/dev/kmsg:r",
            "--volume=/sys/kernel/tracing:/sys/kernel/tracing", "--volume=/sys/fs/cgroup:/sys/fs/cgroup:ro",
            f"--volume={published}:/run/trainprobe", f"--volume={state}:/var/lib/trainprobe",
            "--tmpfs=/var/cache/trainprobe:mode=0700", "--memory=1g", image,
        )  # fmt: skip
        return "daemon"

    def exporter(self, image: str, published: Path, state: Path) -> str:
        """Started in the background as an ordinary user; it listens on the host's loopback."""
        own = (f"--tmpfs=/{place}/trainprobe-exporter:mode=1777" for place in ("run", "var/lib"))
        self.podman(
            "run", "--detach", "--name=exporter", "--network=host", "--user=10990:990", *DROPPED, *own,
            f"--volume={published}:/run/trainprobe:ro", f"--volume={state}:/var/lib/trainprobe:ro", "--memory=256m",
            image, "trainprobe-exporter",
        )  # fmt: skip
        return "exporter"
