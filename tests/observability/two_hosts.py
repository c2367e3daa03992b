"""Two hosts on one machine: network, UTS and mount namespaces, joined by a bridge; each in a cgroup of its own.

The kernel is one, and so are pids: a daemon of one host would see the other's trainings, so it excludes their cgroup.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.limits.groups import remove
from benchmarks.programs import end, environment, trainprobe
from benchmarks.stalls.host import CannotHere

CGROUPS = Path("/sys/fs/cgroup")
PORT = 19752
NAME = "tptwo"  # of bridges, links and cgroups, before our pid
READY_SECONDS = 60.0


@dataclass(frozen=True)
class Host:
    """One of two. ``holder``: a process that keeps its namespaces."""

    number: int
    holder: int
    group: Path
    address: str
    directory: Path

    def command(self, *words: str) -> list[str]:
        """A command as one that runs on this host."""
        joining = ["sh", "-c", f'echo $$ > {self.group}/cgroup.procs && exec "$@"', "sh"]
        return [*joining, "nsenter", f"--target={self.holder}", "--net", "--uts", "--mount", "--", *words]

    def start(self, *words: str, log: str, **environ: str) -> subprocess.Popen[bytes]:
        with (self.directory / log).open("wb") as output:
            return subprocess.Popen(
                self.command(*words), stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                env=environment(**environ), start_new_session=True,
            )  # fmt: skip

    def log_ends(self) -> str:
        """The ends of all logs."""
        return "\n".join(f"{log}: {log.read_text(errors='replace')[-2000:]}" for log in self.directory.glob("*.log"))


@contextmanager
def two_hosts(directory: Path) -> Iterator[tuple[Host, Host]]:
    """Both, and nothing of them afterwards. Raises CannotHere."""
    sweep()
    net = f"198.18.{os.getpid() % 250}"
    names = directory / "hosts"
    names.write_text(f"127.0.0.1 localhost\n{net}.1 {NAME}-1\n{net}.2 {NAME}-2\n")
    with ExitStack() as stack:
        bridge = stack.enter_context(_bridge(f"{NAME}{os.getpid()}", f"{net}.254/24"))
        hosts = [stack.enter_context(_host(number, bridge, net, names, directory)) for number in (1, 2)]
        yield hosts[0], hosts[1]


@contextmanager
def watched(host: Host, other: Host) -> Iterator[str]:
    """A daemon and an exporter on the host; the exporter's address."""
    config, web = host.directory / "trainprobe.yaml", host.directory / "exporter.yaml"
    config.write_text(f'targets: {{exclude: {{cgroups: ["/{other.group.name}", "/{other.group.name}/*"]}}}}\n')
    web.write_text(f"listen: {host.address}:{PORT}\n")
    published, state = host.directory / "published", host.directory / "state"
    (runtime := host.directory / "runtime").mkdir()
    daemon = trainprobe("daemon", "--config", str(config), "--directory", str(published), "--state", str(state))
    program = [daemon[0], "-m", "trainprobe_exporters.cli", "--config", str(web)]
    files = ["--snapshot", str(published / "report.json"), "--history", str(state / "published")]
    with ExitStack() as stack:
        started = host.start(*daemon, log="daemon.log")
        stack.callback(end, started)
        _until(lambda: (published / "report.json").exists(), started, host)
        exporter = host.start(*program, *files, log="exporter.log", RUNTIME_DIRECTORY=str(runtime))
        stack.callback(end, exporter)
        _until(lambda: "listening on" in (host.directory / "exporter.log").read_text(), exporter, host)
        yield f"{host.address}:{PORT}"


def sweep() -> None:
    """Remove what a killed test left."""
    for link in Path("/sys/class/net").glob(f"{NAME}*"):
        if _is_left(link.name):
            _ip("link", "delete", link.name)
    for group in _root_group().glob(f"{NAME}*"):
        if _is_left(group.name):
            with contextlib.suppress(OSError):
                group.rmdir()


def _is_left(name: str) -> bool:
    found = re.match(rf"{NAME}(\d+)", name)
    return found is not None and not Path(f"/proc/{found[1]}").exists()


@contextmanager
def _bridge(name: str, address: str) -> Iterator[str]:
    _ip("link", "add", name, "type", "bridge")
    try:
        _ip("address", "add", address, "dev", name)
        _ip("link", "set", name, "up")
        yield name
    finally:
        _ip("link", "delete", name)


@contextmanager
def _host(number: int, bridge: str, net: str, names: Path, directory: Path) -> Iterator[Host]:
    own = directory / f"host{number}"
    own.mkdir()
    inside = f"hostname {NAME}-{number} && mount --bind {names} /etc/hosts && echo ready && exec sleep infinity"
    with ExitStack() as stack:
        command = ["unshare", "--net", "--uts", "--mount", "sh", "-c", inside]
        holder = subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
        stack.callback(end, holder)
        assert holder.stdout is not None
        stack.callback(holder.stdout.close)
        if holder.stdout.readline() != b"ready\n":
            raise CannotHere("no namespaces can be made here")
        link, enter = f"{bridge}v{number}", ["nsenter", f"--target={holder.pid}", "--net", "ip"]
        _ip("link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", str(holder.pid))
        # By name: the kernel takes it away with the namespace too, but some time after the holder's end.
        stack.callback(_ip, "link", "delete", link)
        _ip("link", "set", link, "master", bridge, "up")
        for words in (f"address add {net}.{number}/24 dev eth0", "link set eth0 up", "link set lo up"):
            _run([*enter, *words.split()])
        group = _root_group() / f"{NAME}{os.getpid()}-{number}"
        group.mkdir()
        stack.callback(remove, group)
        stack.callback(_end_all, group)
        yield Host(number, holder.pid, group, f"{net}.{number}", own)


def _end_all(group: Path) -> None:
    """What is left of a host that is taken away."""
    for pid in (group / "cgroup.procs").read_text().split():
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(pid), 9)


def _root_group() -> Path:
    return CGROUPS / "unified" if (CGROUPS / "unified").is_dir() else CGROUPS


def _ip(*words: str) -> None:
    _run(["ip", *words])


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CannotHere(f"{' '.join(command)}: {done.stderr.strip()}")


def _until(condition: Callable[[], bool], process: subprocess.Popen[bytes], host: Host) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while not condition():
        assert process.poll() is None, host.log_ends()
        assert time.monotonic() < deadline, host.log_ends()
        time.sleep(0.05)
