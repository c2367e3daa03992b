"""What a run borrows from the host: a throttled block device. Everything is given back, also after a kill."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType

from benchmarks.stalls.plan import Device

PREFIX = "trainprobe-stalls-"
BLKIO = Path("/sys/fs/cgroup/blkio")
IMAGE_BYTES = 3 << 30  # sparse


class CannotHere(Exception):
    """This host cannot carry the fault out; the text says why."""


class Place:
    """A temporary directory of one run, and the slow device where the plan wants one."""

    def __init__(self, device: Device | None) -> None:
        self._device = device
        self.root = Path()
        self.scratch = Path()
        self.slow = Path()
        self._loop: str | None = None
        self._mounted = False
        self._limits: list[tuple[Path, str]] = []

    def __enter__(self) -> Place:
        self.root = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-"))
        self.scratch = self.root / "scratch"
        self.slow = self.root / "slow"
        self.scratch.mkdir()
        try:
            if self._device is not None:
                self._make(self._device)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for file, number in self._limits:
            _try_write(file, f"{number} 0")
        self._limits.clear()
        if self._mounted:
            _thaw(self.slow)
            subprocess.run(["umount", "--lazy", str(self.slow)], check=False, capture_output=True)
            self._mounted = False
        if self._loop is not None:
            subprocess.run(["losetup", "--detach", self._loop], check=False, capture_output=True)
            self._loop = None
        shutil.rmtree(self.root, ignore_errors=True)

    def _make(self, device: Device) -> None:
        if os.geteuid() != 0:
            raise CannotHere("a slow device needs root")
        groups = blkio_groups()
        if not groups and (device.read_rate or device.write_rate):
            raise CannotHere("no blkio throttle of cgroup v1 on this host")
        image = self.root / "image"
        with open(image, "wb") as file:
            file.truncate(IMAGE_BYTES)
        self._loop = _run("losetup", "--find", "--show", str(image)).strip()
        _run("mkfs.ext4", "-q", "-E", "lazy_itable_init=0,lazy_journal_init=0,nodiscard", self._loop)
        self.slow.mkdir()
        self._mount()
        if device.files:
            block = os.urandom(1 << 16)
            for number in range(device.files):
                with open(self.slow / f"shard-{number}.bin", "wb") as file:
                    file.write((block * (device.file_bytes // len(block) + 1))[: device.file_bytes])
            _run("umount", str(self.slow))  # mounted anew, nothing of them is in the page cache
            self._mounted = False
            self._mount()
        self._throttle(device, groups)

    def _mount(self) -> None:
        assert self._loop is not None
        _run("mount", self._loop, str(self.slow))
        self._mounted = True

    def _throttle(self, device: Device, groups: list[Path]) -> None:
        assert self._loop is not None
        status = os.stat(self._loop)
        number = f"{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}"
        for rate, name in ((device.read_rate, "read_bps_device"), (device.write_rate, "write_bps_device")):
            for group in groups if rate else []:
                file = group / f"blkio.throttle.{name}"
                file.write_text(f"{number} {rate}")
                self._limits.append((file, number))


def blkio_groups() -> list[Path]:
    """Where a limit takes effect: our own group, and the root, in whose name dirty pages are written back."""
    own = "/"
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if "blkio" in controllers.split(","):
            own = path
    groups = {BLKIO, BLKIO / own.lstrip("/")}
    return [group for group in groups if (group / "blkio.throttle.read_bps_device").exists()]


def sweep() -> None:
    """Gives back what runs of processes that are gone left behind."""
    base = Path(tempfile.gettempdir())
    for root in base.glob(PREFIX + "*"):
        owner = root.name.removeprefix(PREFIX).partition("-")[0]
        if owner.isdigit() and Path(f"/proc/{owner}").exists():
            continue
        _thaw(root / "slow")
        subprocess.run(["umount", "--lazy", str(root / "slow")], check=False, capture_output=True)
        loops = subprocess.run(
            ["losetup", "--associated", str(root / "image")], check=False, capture_output=True, text=True
        )
        for line in loops.stdout.splitlines():
            device = line.partition(":")[0]
            status = os.stat(device)
            for group in blkio_groups():
                for name in ("read_bps_device", "write_bps_device"):
                    number = f"{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}"
                    _try_write(group / f"blkio.throttle.{name}", f"{number} 0")
            subprocess.run(["losetup", "--detach", device], check=False, capture_output=True)
        shutil.rmtree(root, ignore_errors=True)


def _thaw(mount: Path) -> None:
    """A training that was killed while it had frozen it leaves it frozen; else this does nothing."""
    if mount.is_mount():
        subprocess.run(["fsfreeze", "--unfreeze", str(mount)], check=False, capture_output=True)


def _run(*command: str) -> str:
    try:
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout
    except FileNotFoundError as error:
        raise CannotHere(f"{command[0]} is not installed") from error
    except subprocess.CalledProcessError as error:
        raise CannotHere(f"{' '.join(command)}: {error.stderr.strip()}") from error


def _try_write(file: Path, text: str) -> None:
    try:
        file.write_text(text)
    except OSError:
        pass  # the group is gone, and its limits with it
