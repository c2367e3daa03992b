"""A Debian with systemd as its first process, in a container, with this machine's kernel under it.

A bare Debian tree is made once (mmdebstrap, kept in build/), and each ``Booted`` writes to a layer of its own over it.
The container has all capabilities, this machine's tracing and a network of its own, so that its port 19752 is not ours.

eBPF tells processes by the numbers of the machine's first pid namespace, and a container has another one. On a real
host the daemon sees those numbers in /proc; here it gets that /proc from a drop-in (``HOST_PROC``), the one thing that
is not as the package installs it. So what it watches are trainings on this machine, started by the test.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

ROOT = Path(__file__).parents[2]
CACHE = (ROOT / "build" / "systemd").resolve()
SUITE, MIRROR = "bookworm", "http://deb.debian.org/debian"
UBUNTU, UBUNTU_MIRROR = ("jammy", "noble"), "http://archive.ubuntu.com/ubuntu"
TREE_HAS = ("systemd", "systemd-sysv", "dbus", "curl", "ca-certificates")
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
HOST_PROC = "[Service]\nBindPaths=/host/proc:/proc\n"


class BootError(Exception):
    """The container did not come up; the text is what it said."""


def tree(depends: tuple[str, ...], suite: str = SUITE) -> Path:
    """The bare tree of a release of Debian or Ubuntu, with ``depends`` and all that they recommend downloaded but not
    installed."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with open(CACHE / f"{suite}.lock", "w") as lock:  # another test's process may be making it
        fcntl.flock(lock, fcntl.LOCK_EX)
        return _tree(depends, suite)


def _tree(depends: tuple[str, ...], suite: str) -> Path:
    root = CACHE / suite
    stamp = CACHE / f"{suite}.{'+'.join(sorted(depends))}"
    if not stamp.exists():
        if not (made := CACHE / f"{suite}.made").exists():
            shutil.rmtree(root, ignore_errors=True)
            source = f"deb {MIRROR} {suite} main"
            if suite in UBUNTU:  # Debian has no package with its keys: good enough for a tree that is thrown away
                source = f"deb [trusted=yes] {UBUNTU_MIRROR} {suite} main universe"
            include = f"--include={','.join(TREE_HAS)}"
            subprocess.run(["mmdebstrap", "--quiet", "--variant=minbase", include, suite, root, source], check=True)
            made.touch()
        shutil.copy("/etc/resolv.conf", root / "etc/resolv.conf")
        for command in ("apt-get update", f"apt-get install -y --download-only {' '.join(depends)}"):
            environment = {"DEBIAN_FRONTEND": "noninteractive", "PATH": PATH}
            subprocess.run(["chroot", root, *command.split()], check=True, stdout=subprocess.DEVNULL, env=environment)
        stamp.touch()
    return root


class Booted:
    """A container over ``base``, running until the ``with`` block ends; nothing of it is left then."""

    def __init__(self, base: Path) -> None:
        self._base = base
        self._layers = Path(tempfile.mkdtemp(prefix="booted-", dir=CACHE))
        self.root = self._layers / "root"
        self._cgroups = _own_cgroups(self._layers.name)
        self._nspawn: subprocess.Popen[bytes] | None = None
        self._leader = 0

    def __enter__(self) -> Booted:
        try:
            self._mount()
            self._boot()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._nspawn is not None:
            self._nspawn.kill()
            self._nspawn.wait()
        if self._leader:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._leader, signal.SIGKILL)  # the first of a pid namespace: all others end with it
        _until(
            lambda: not self._is_mounted() or subprocess.run(["umount", self.root], capture_output=True).returncode == 0
        )
        for cgroup in self._cgroups:
            _until(lambda cgroup=cgroup: _removed(cgroup))  # type: ignore[misc]
        shutil.rmtree(self._layers)

    def run(self, command: str, *, timeout: float = 60, user: str = "") -> subprocess.CompletedProcess[str]:
        """A shell command inside; ``user`` runs it without root's rights."""
        entered = ["nsenter", f"--target={self._leader}", "-m", "-u", "-i", "-n", "-p", "-C"]
        clean = ["env", "-i", f"PATH={PATH}", "HOME=/root", "LANG=C.UTF-8", "DEBIAN_FRONTEND=noninteractive"]
        as_user = ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups"] if user else []
        shell = [*entered, *clean, *as_user, "bash", "-c", f"cd / && {command}"]
        return subprocess.run(shell, capture_output=True, text=True, timeout=timeout, stdin=subprocess.DEVNULL)

    def told(self, command: str, *, timeout: float = 60, user: str = "") -> str:
        """The output of a command that must succeed."""
        done = self.run(command, timeout=timeout, user=user)
        assert done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout}{done.stderr}\n{self.journal()}"
        return done.stdout.strip()

    def wait_for(self, command: str, seconds: float, *, user: str = "") -> str:
        """The output of a command, as soon as it succeeds."""
        until = time.monotonic() + seconds
        while (done := self.run(command, user=user)).returncode != 0:
            assert time.monotonic() < until, f"{command}\n{done.stdout}{done.stderr}\n{self.journal()}"
            time.sleep(0.2)
        return done.stdout.strip()

    def write(self, path: str, text: str) -> None:
        target = self.root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)

    def shown(self, unit: str, name: str) -> str:
        """A property of a unit."""
        return self.told(f"systemctl show --property={name} --value {shlex.quote(unit)}")

    @property
    def network(self) -> str:
        """Its network namespace, for nsenter(1) and setns(2)."""
        return f"/proc/{self._leader}/ns/net"

    def file(self, path: str) -> Path:
        """A file inside, on whatever it has mounted there."""
        return Path(f"/proc/{self._leader}/root{path}")

    def pid_here(self, unit: str) -> int:
        """The main process of a unit, by its number on this machine."""
        inside, namespace = self.shown(unit, "MainPID"), os.readlink(f"/proc/{self._leader}/ns/pid")
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError, StopIteration):
                lines = (process / "status").read_text(errors="replace").splitlines()
                numbers = next(line.split()[1:] for line in lines if line.startswith("NSpid:"))
                if numbers[-1] == inside and os.readlink(process / "ns/pid") == namespace:
                    return int(process.name)
        raise AssertionError(f"{unit} does not run\n{self.journal()}")

    def journal(self) -> str:
        return self.run("journalctl --no-pager --lines=60 -u 'trainprobe*'").stdout

    def _mount(self) -> None:
        parts = {name: self._layers / name for name in ("upper", "work", "root")}
        for part in parts.values():
            part.mkdir()
        options = f"lowerdir={self._base},upperdir={parts['upper']},workdir={parts['work']}"
        subprocess.run(["mount", "-t", "overlay", "overlay", "-o", options, str(self.root)], check=True)
        (self.root / "host/proc").mkdir(parents=True)

    def _is_mounted(self) -> bool:
        return any(line.split()[1] == str(self.root) for line in Path("/proc/mounts").read_text().splitlines())

    def _boot(self) -> None:
        _have_tracefs()
        binds = [f"--bind={path}" for path in ("/sys/kernel/tracing", "/proc:/host/proc")]
        container = [
            "systemd-nspawn", "--quiet", "--register=no", "--keep-unit", f"--directory={self.root}",
            "--capability=all", "--system-call-filter=bpf perf_event_open", *binds, "--console=pipe", "--boot",
        ]  # fmt: skip
        log = self._layers / "console"
        # --private-network would mount another /sys over the tracing.
        with log.open("wb") as output:
            self._nspawn = subprocess.Popen(
                ["unshare", "--net", *container],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=self._enter_cgroups,
            )
        until = time.monotonic() + 90
        while True:
            if self._nspawn.poll() is not None or time.monotonic() > until:
                raise BootError(log.read_text(errors="replace"))
            self._leader = self._leader or _child_of(self._nspawn.pid)
            if self._leader and self.run("systemctl is-system-running").stdout.strip() in ("running", "degraded"):
                break
            time.sleep(0.2)

    def _enter_cgroups(self) -> None:
        for cgroup in self._cgroups:
            (cgroup / "cgroup.procs").write_text(str(os.getpid()))


def _own_cgroups(name: str) -> list[Path]:
    """Two containers in one cgroup would take each other's services for their own."""
    found = [Path("/sys/fs/cgroup") / place for place in ("systemd", "unified", "")]
    cgroups = [place / name for place in found if (place / "cgroup.procs").exists()]
    for cgroup in cgroups:
        cgroup.mkdir()
    return cgroups


def _removed(cgroup: Path) -> bool:
    try:
        for below in sorted(cgroup.rglob("*"), reverse=True):
            if below.is_dir():
                below.rmdir()
        cgroup.rmdir()
    except OSError:
        return False
    return True


def _until(done: Callable[[], bool], seconds: float = 15) -> None:
    """What ends by itself a moment later."""
    end = time.monotonic() + seconds
    while not done() and time.monotonic() < end:
        time.sleep(0.1)


def _child_of(pid: int) -> int:
    with contextlib.suppress(OSError):
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        for child in map(int, children):
            if os.readlink(f"/proc/{child}/ns/pid") != os.readlink("/proc/self/ns/pid"):
                return child
    return 0


def _have_tracefs() -> None:
    if not Path("/sys/kernel/tracing/events").is_dir():
        subprocess.run(["mount", "-t", "tracefs", "none", "/sys/kernel/tracing"], check=True)
