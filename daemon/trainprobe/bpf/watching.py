# SPDX-License-Identifier: Apache-2.0
"""Which threads are watched, and how closely: opens by hand, seeded from /proc, what a fork opens in the kernel."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from ctypes import c_uint8, c_uint32

from trainprobe.bpf import abi, seed
from trainprobe.bpf.ledgers import Ledgers
from trainprobe.bpf.loader import Loaded
from trainprobe.bpf.maps import Levels
from trainprobe.bpf.paths import Paths, read_bounded, shared_memory_devices
from trainprobe.derive.workers import role_of
from trainprobe.model.cells import Level


class Watching:
    """The tables of watched processes and threads, as far as user space writes them."""

    def __init__(self, loaded: Loaded, levels: Levels, ledgers: Ledgers, paths: Paths) -> None:
        self._levels, self._ledgers, self._paths = levels, ledgers, paths
        self._processes = loaded.map("processes", c_uint32, abi.Process)
        self._pool_owner = loaded.map("pool_owner", c_uint32, c_uint32)
        self._pool_target = loaded.map("pool_target", c_uint32, c_uint32)
        self._pools = loaded.map("pools", c_uint32, abi.Pool)
        self._held = loaded.map("held", c_uint32, abi.Held)
        self._skipped = loaded.map("skipped_devices", c_uint32, c_uint8)
        self._next_pool = 0
        self.refused = 0
        """Processes and threads for which there was no room."""
        self._skip_shared_memory()

    def watch(self, pid: int) -> None:
        """The process, its threads and all its descendants."""
        self._skip_devices(read_bounded(f"/proc/{pid}/mountinfo"))
        self._open_process(pid, parent=0)
        self._open_thread(pid, pid, Level.FULL, pool=0)
        for parent, child in seed.descendants(pid):
            self._open_process(child, parent)
            self._open_thread(child, child, Level.COARSE, self._pool(parent))

    def unwatch(self, pid: int) -> None:
        """That process only."""
        for tid in [*seed.threads(pid), pid]:
            self._levels[tid] = 0
            self._ledgers.delete(tid)
            self._held.delete(c_uint32(tid))
        process = self._processes.get(c_uint32(pid))
        if process and process.pool:
            self._pool_owner.delete(c_uint32(process.pool))
        self._processes.delete(c_uint32(pid))
        self._paths.forget(pid)

    def driver_found(self, pid: int) -> None:
        """A process made its first step: what its children's children do, as under a forkserver, is done for it.

        By now it has its /dev/shm, too: what was watched first may have made a container for it.
        """
        self._skip_devices(read_bounded(f"/proc/{pid}/mountinfo"))
        own = 0
        for parent, child in seed.descendants(pid):
            if parent == pid and not seed.only_forked(child):
                self._set_aside(child, seed.comm(child), seed.command(child))
            process = self._processes.get(c_uint32(child))
            aside = self._ledgers.get(child) is None
            if process and process.pool and not process.driver and not aside:
                own = own or self._pool(pid)
                self._pool_target.put(c_uint32(process.pool), c_uint32(own))

    def executed(self, pid: int, comm: str, command: Sequence[str]) -> None:
        """A watched process runs another program."""
        process = self._processes.get(c_uint32(pid))
        parent = self._processes.get(c_uint32(process.parent)) if process and process.parent else None
        if parent and parent.driver:
            self._set_aside(pid, comm, command)

    def _set_aside(self, pid: int, comm: str, command: Sequence[str]) -> None:
        """A driver's child that makes no batches, as a monitor: what it does or waits for is not its workers' time. The
        files that it writes are followed."""
        if role_of(comm, command) == "helper":
            self._levels[pid] = Level.WRITER
            self._ledgers.delete(pid)
            process = self._processes.get(c_uint32(pid))
            if process and process.pool:  # what it has forked already
                self._pool_target.put(c_uint32(process.pool), c_uint32(0))

    def make_room(self) -> None:
        """Forget the Pythons that are kept in case they train: anybody can start thousands. Found, they are watched."""
        for key, process in self._processes.entries():
            if process.tentative:
                self._levels[key.value] = 0
                self._ledgers.delete(key.value)
                self._processes.delete(key)

    def stop(self) -> None:
        """Nobody any longer: what is still attached for a moment finds nothing to do."""
        for key, _ in self._processes.entries():
            self._processes.delete(key)
        self._levels.clear()

    def _open_process(self, pid: int, parent: int) -> None:
        key = c_uint32(pid)
        if not self._processes.insert(key, abi.Process(parent=parent)):
            known = self._processes.get(key)
            self.refused += known is None
            if known and known.tentative:
                known.tentative = 0
                self._processes.put(key, known)
        self._paths.met(pid)
        for tid in seed.threads(pid):
            if not self._levels[tid]:
                self._levels[tid] = Level.WRITER

    def _open_thread(self, pid: int, tid: int, level: Level, pool: int) -> None:
        now_doing = seed.doing(pid, tid)
        if now_doing is None:
            return
        now = time.monotonic_ns()
        ledger = abi.Ledger(
            at=now, opened=now, since=now, tid=tid, tgid=pid, pool=pool, run=now_doing.run, leaf=now_doing.leaf,
            why=now_doing.leaf, wait_leaf=now_doing.leaf, call=-1, blocked_call=now_doing.call, blocked_fd=now_doing.fd,
        )  # fmt: skip
        if not self._ledgers.insert(tid, ledger) and self._ledgers.get(tid) is None:  # one that is there is kept
            self.refused += 1
            return
        self._levels[tid] = max(level, self._levels[tid] & ~abi.QUIET)

    def _pool(self, pid: int) -> int:
        """The pool that a process's children add their time up in."""
        process = self._processes.get(c_uint32(pid))
        if process is None or process.pool:
            return int(process.pool) if process else 0
        for _ in range(16):
            self._next_pool = (self._next_pool - 1) % (abi.POOLS - 1)  # downwards: the kernel counts upwards
            slot = c_uint32(self._next_pool + 1)
            if self._pool_owner.insert(slot, c_uint32(pid)):
                self._pools.put(slot, abi.Pool())
                self._pool_target.put(slot, c_uint32(0))
                process.pool = slot.value
                self._processes.put(c_uint32(pid), process)
                return slot.value
        return 0

    def _skip_shared_memory(self) -> None:
        self._skip_devices(read_bounded("/proc/self/mountinfo"))
        descriptor = os.memfd_create("trainprobe")
        device = os.fstat(descriptor).st_dev
        os.close(descriptor)
        self._skipped.put(c_uint32(os.major(device) << 20 | os.minor(device)), c_uint8(2))

    def _skip_devices(self, mountinfo: bytes) -> None:
        for device in shared_memory_devices(mountinfo):
            self._skipped.put(c_uint32(device), c_uint8(1))
