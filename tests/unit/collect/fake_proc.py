"""A procfs made of files: what Proc reads, written down by a test."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from trainprobe.collect.procfs import TICK_NS, Proc

LIBTORCH = "/opt/venv/lib/python3/site-packages/torch/lib/libtorch_cpu.so"


def maps_line(path: str = LIBTORCH, perms: str = "r-xp", dev: str = "fd:01", ino: int = 4711) -> str:
    return f"7f0000001000-7f0000400000 {perms} 00001000 {dev} {ino}                 {path}\n"


class FakeProc:
    """Processes by pid. Their boot time is CLOCK_MONOTONIC, so a start in ticks is ``ticks * TICK_NS``."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.proc = Proc(str(root), boot_offset_ns=0)
        (root / "sys/kernel/random").mkdir(parents=True)
        (root / "sys/kernel/random/boot_id").write_text("11111111-2222-3333-4444-555555555555\n")

    def add(
        self,
        pid: int,
        command: Sequence[str] = ("python", "train.py"),
        *,
        ppid: int = 1,
        comm: str = "python",
        state: str = "S",
        ticks: int | None = None,
        environ: Mapping[str, str] | None = None,
        cgroup: str = "0::/user.slice/user-1000.slice/session-2.scope\n",
        uid: int = 0,
        ns_pids: str = "",
        libtorch: bool = False,
        flags: int = 0x400000,
        rss_pages: int = 2560,
    ) -> None:
        """A process; one with this pid is replaced."""
        path = self.root / str(pid)
        if path.exists():
            shutil.rmtree(path)
        for directory in ("fd", f"task/{pid}"):
            (path / directory).mkdir(parents=True)
        ticks = pid * 10 if ticks is None else ticks
        middle = f"{pid} {pid} 0 -1 {flags} 0 0 0 0 120 30 0 0 20 0 3 0 {ticks} 1000000 {rss_pages}"
        (path / "stat").write_text(f"{pid} ({comm}) {state} {ppid} {middle} 18446744073709551615 0\n")
        (path / "status").write_text(
            f"Name:\t{comm}\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\nGid:\t{uid}\t{uid}\t{uid}\t{uid}\n"
            f"NSpid:\t{pid}{ns_pids}\nVmSwap:\t      12 kB\n"
        )
        (path / "cmdline").write_bytes(b"".join(argument.encode() + b"\0" for argument in command))
        (path / "environ").write_bytes(b"".join(f"{k}={v}\0".encode() for k, v in (environ or {}).items()))
        (path / "cgroup").write_text(cgroup)
        (path / "limits").write_text("Limit  Soft  Hard  Units\nMax open files            1024   4096   files\n")
        (path / "smaps_rollup").write_text(
            "00400000-7fff ---p 00000000 00:00 0 [rollup]\nPss:  2048 kB\nPss_Shmem:  512 kB\nSwapPss:  4 kB\n"
        )
        (path / "cwd").symlink_to("/home/someone/project")
        (path / f"task/{pid}/children").write_text("")
        self.map(pid, libtorch)
        self.link(pid, ppid)

    def grow(self, pid: int, rss_pages: int) -> None:
        """It has so much memory now."""
        stat = self.root / str(pid) / "stat"
        fields = stat.read_text().split()
        stat.write_text(" ".join([*fields[:-3], str(rss_pages), *fields[-2:]]) + "\n")

    def map(self, pid: int, libtorch: bool = True, line: str = "") -> None:
        text = "55d0-55e0 r-xp 00000000 fd:01 12 /usr/bin/python3.11\n"
        (self.root / str(pid) / "maps").write_text(text + (line or (maps_line() if libtorch else "")))

    def link(self, pid: int, ppid: int) -> None:
        children = self.root / str(ppid) / f"task/{ppid}/children"
        if children.exists():
            children.write_text(f"{children.read_text()}{pid} ")

    def fork(self, pid: int, ppid: int, comm: str = "python") -> None:
        """A child that is a copy of its parent."""
        parent = self.root / str(ppid)
        command = [a.decode() for a in (parent / "cmdline").read_bytes().rstrip(b"\0").split(b"\0")]
        self.add(pid, command, ppid=ppid, comm=comm)
        shutil.copy(parent / "maps", self.root / str(pid) / "maps")
        shutil.copy(parent / "environ", self.root / str(pid) / "environ")

    def remove(self, pid: int) -> None:
        shutil.rmtree(self.root / str(pid))

    @staticmethod
    def started_ns(pid: int) -> int:
        return pid * 10 * TICK_NS
