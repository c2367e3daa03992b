# SPDX-License-Identifier: Apache-2.0
"""Which threads are watched, and how closely; how many ledgers one user may have (``LEDGERS_OF_ONE``).

User space opens the ledgers of threads that already run and seeds them from /proc. A fork opens its own in the kernel.
"""

from __future__ import annotations

import os
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from ctypes import c_uint8, c_uint32
from itertools import islice

from trainprobe.bpf import abi
from trainprobe.bpf.load.loader import Loaded
from trainprobe.bpf.load.maps import Levels
from trainprobe.bpf.read import initial_state
from trainprobe.bpf.read.ledgers import Ledgers
from trainprobe.bpf.read.paths import MAX_BYTES, Paths, ProcessFiles, read_bounded, shared_memory_device
from trainprobe.derive.workers import role_of
from trainprobe.model.cells import Level
from trainprobe.model.message import Message, template

MANY_THREADS = template("source.many_threads", "more than {number} threads that step of user {user}")
LEDGERS_OF_ONE = 1024
"""Ledgers of one user's processes, once there is little room left for all. Root's are those of many containers."""
ROOT = 0
AGAIN_NS, AGAIN_SHARE = 1_000_000_000, 50
"""A process whose threads begin to step one after the other is looked at so often at most, and the time that a look
takes is no larger part of the whole than one in so many."""
OF_USER_NS = 200_000_000
"""The same holds for all of a user's processes together, but for so long at once."""
DEVICES = 250  # of skipped_devices (descriptors.bpf.c); beyond, the oldest of the user who has most goes
QUIET_NS = 60_000_000_000


class Watching:
    """The tables of watched processes and threads, as far as user space writes them."""

    def __init__(
        self,
        loaded: Loaded,
        levels: Levels,
        ledgers: Ledgers,
        paths: Paths,
        proc: ProcessFiles,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self.proc = proc
        self._clock = clock
        self._looked: dict[int, int] = {}  # by pid: when a process that steps may be looked at again
        self._refusal: tuple[float, str | Message] = (0, "")
        self._levels, self._ledgers, self._paths = levels, ledgers, paths
        self.processes = loaded.map("processes", c_uint32, abi.Process)
        self._pool_owner = loaded.map("pool_owner", c_uint32, c_uint32)
        self._pool_target = loaded.map("pool_target", c_uint32, c_uint32)
        self._pools = loaded.map("pools", c_uint32, abi.Pool)
        self._held = loaded.map("held", c_uint32, abi.Held)
        self._calls = loaded.map("calls", c_uint32, abi.CallRecord)
        self._skipped = loaded.map("skipped_devices", c_uint32, c_uint8)
        self._devices: dict[int, int] = {}  # /dev/shm of containers that are skipped, the oldest first, and whose
        self._spent_until: dict[int, int] = {}  # by user: when the time of looks at his processes is made up for
        self._next_pool = 0
        self.refused = 0
        """Processes and threads for which there was no room."""
        self._skip_shared_memory()

    def watch(self, pid: int, descendants: int) -> None:
        """The process, its threads and so many descendants."""
        self._skip_device(self.proc.read(pid, "mountinfo", MAX_BYTES) or b"", self._owner(pid))
        self._open_process(pid, parent=0)
        self._open_thread(pid, pid, Level.FULL, pool=0)
        for parent, child in islice(self.proc.descendants(pid), descendants):
            self._open_process(child, parent)
            self._open_thread(child, child, Level.COARSE, self._pool(parent))

    def unwatch(self, pid: int) -> None:
        for tid in [*self.proc.threads(pid, initial_state.MAX_THREADS), pid]:
            self._levels[tid] = 0
            self._ledgers.delete(tid)
            self._held.delete(c_uint32(tid))
            self._calls.delete(c_uint32(tid))
        process = self.processes.get(c_uint32(pid))
        if process and process.pool:
            self._pool_owner.delete(c_uint32(process.pool))
        self.processes.delete(c_uint32(pid))
        self.forget(pid)
        self._paths.forget(pid)

    def forget(self, pid: int) -> None:
        """The process has ended, or runs another program."""
        self._looked.pop(pid, None)

    def driver_found(self, pid: int) -> bool:
        """A thread of the process made its first step: what its children's children do, as under a forkserver, is done
        for it. False: there was a look at the process a moment ago.

        By now it has its /dev/shm, too: what was watched first may have made a container for it.
        """
        began, owner = self._clock(), self._owner(pid)
        self._spent_until = {user: until for user, until in self._spent_until.items() if until > began}
        spent = self._spent_until.get(owner, began)
        if began < self._looked.get(pid, 0) or spent - began >= AGAIN_SHARE * OF_USER_NS:
            return False
        self._take_children(pid)
        now = self._clock()
        self._looked[pid] = now + max(AGAIN_NS, AGAIN_SHARE * (now - began))
        self._spent_until[owner] = spent + AGAIN_SHARE * (now - began)
        return True

    def _owner(self, pid: int) -> int:
        try:
            return self.proc.owner(pid)
        except OSError:
            return ROOT

    def _take_children(self, pid: int) -> None:
        self._skip_device(self.proc.read(pid, "mountinfo", MAX_BYTES) or b"", self._owner(pid))
        own = 0
        below = list(self.proc.descendants(pid))
        stats = self.proc.stats(child for parent, child in below if parent == pid and self._has_ledger(child))
        for child, stat in stats.items():
            if not initial_state.only_forked(stat.flags):
                self._set_aside(child, stat.comm, self.proc.command(child) or ())
        for _, child in below:
            process = self.processes.get(c_uint32(child))
            aside = not self._has_ledger(child)
            if process and process.pool and not process.driver and not aside:
                own = own or self._pool(pid)
                self._pool_target.put(c_uint32(process.pool), c_uint32(own))

    def _has_ledger(self, pid: int) -> bool:
        """Whether it is watched, and is not set aside."""
        return self._ledgers.get(pid) is not None

    def executed(self, pid: int, comm: str, command: Sequence[str]) -> None:
        self.forget(pid)
        process = self.processes.get(c_uint32(pid))
        parent = self.processes.get(c_uint32(process.parent)) if process and process.parent else None
        if parent and parent.driver:
            self._set_aside(pid, comm, command)

    def _set_aside(self, pid: int, comm: str, command: Sequence[str]) -> None:
        """A driver's child that makes no batches, as a monitor: what it does or waits for is not its workers' time. The
        files that it writes are followed."""
        if role_of(comm, command) == "helper":
            self._levels[pid] = Level.WRITER
            self._ledgers.delete(pid)
            process = self.processes.get(c_uint32(pid))
            if process and process.pool:  # what it has forked already
                self._pool_target.put(c_uint32(process.pool), c_uint32(0))

    def make_room(self, ledgers: Sequence[tuple[int, abi.Ledger]]) -> None:
        """Forget the Pythons that are kept in case they train: anybody can start thousands. Found, they are watched.

        Then take the ledgers of further drivers from users who have more than their part: those processes get no more.
        """
        for key, process in self.processes.entries():
            if process.tentative:
                self._levels[key.value] = 0
                self._ledgers.delete(key.value)
                self.processes.delete(key)
        of_process: defaultdict[int, list[int]] = defaultdict(list)
        for tid, ledger in ledgers:
            of_process[ledger.tgid].append(tid)
        of_user: defaultdict[int, list[int]] = defaultdict(list)
        for pid in of_process:
            with suppress(OSError):
                of_user[self.proc.owner(pid)].append(pid)
        of_user.pop(ROOT, None)
        for owner, pids in of_user.items():
            excess = sum(len(of_process[pid]) for pid in pids) - LEDGERS_OF_ONE
            if excess > 0:
                self._refusal = self._clock(), MANY_THREADS(number=LEDGERS_OF_ONE, user=owner)
            for pid in sorted(pids, key=lambda pid: -len(of_process[pid])):
                excess -= self._take_back(pid, [tid for tid in of_process[pid] if tid != pid][: max(0, excess)])

    def _take_back(self, pid: int, tids: list[int]) -> int:
        """The ledgers of some of a process's threads; how many."""
        process = self.processes.get(c_uint32(pid)) if tids else None
        if process is None:
            return 0
        process.drivers = abi.DRIVERS
        self.processes.replace(c_uint32(pid), process)
        for tid in tids:
            self._levels[tid] = Level.WRITER
            self._ledgers.delete(tid)
            self._held.delete(c_uint32(tid))
        self.refused += len(tids)
        return len(tids)

    def refusal(self) -> str | Message:
        """Who had more than his part of the ledgers within the last minute; "" nobody."""
        at, reason = self._refusal
        return reason if reason and self._clock() - at < QUIET_NS else ""

    def stop(self) -> None:
        """Nobody any longer: what is still attached for a moment finds nothing to do."""
        for key, _ in self.processes.entries():
            self.processes.delete(key)
        self._levels.clear()

    def _open_process(self, pid: int, parent: int) -> None:
        """All that is written of a process here is written before the kernel counts anything in it."""
        key = c_uint32(pid)
        known = self.processes.get(key)
        if known is None:
            pool = self._new_pool(pid)
            if not self.processes.insert(key, abi.Process(parent=parent, pool=pool)):
                self._pool_owner.delete(c_uint32(pool))
                known = self.processes.get(key)
                self.refused += known is None
        if known and known.tentative:
            known.tentative, known.pool = 0, self._new_pool(pid)
            if not self.processes.replace(key, known):
                self._pool_owner.delete(c_uint32(known.pool))
        self._paths.note_process(pid)
        for tid in self.proc.threads(pid, initial_state.MAX_THREADS):
            if not self._levels[tid]:
                self._levels[tid] = Level.WRITER

    def _open_thread(self, pid: int, tid: int, level: Level, pool: int) -> None:
        now_doing = initial_state.doing(pid, tid, self.proc)
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
        """The pool that a process's children add their time up in; 0: none."""
        process = self.processes.get(c_uint32(pid))
        return int(process.pool) if process else 0

    def _new_pool(self, pid: int) -> int:
        for _ in range(16):
            self._next_pool = (self._next_pool - 1) % (abi.POOLS - 1)  # downwards: the kernel counts upwards
            slot = c_uint32(self._next_pool + 1)
            if self._pool_owner.insert(slot, c_uint32(pid)):
                self._pools.put(slot, abi.Pool())
                self._pool_target.put(slot, c_uint32(0))
                return slot.value
        return 0

    def _skip_shared_memory(self) -> None:
        self._skip_device(read_bounded("/proc/self/mountinfo"), ROOT)
        descriptor = os.memfd_create("trainprobe")
        device = os.fstat(descriptor).st_dev
        os.close(descriptor)
        self._skipped.put(c_uint32(os.major(device) << 20 | os.minor(device)), c_uint8(2))

    def _skip_device(self, mountinfo: bytes, owner: int) -> None:
        device = shared_memory_device(mountinfo)
        if device is None or device in self._devices:
            return
        if len(self._devices) >= DEVICES:
            ((most, _),) = Counter(self._devices.values()).most_common(1)
            oldest = next(one for one, of in self._devices.items() if of == most)
            del self._devices[oldest]
            self._skipped.delete(c_uint32(oldest))
        self._devices[device] = owner
        self._skipped.put(c_uint32(device), c_uint8(1))
