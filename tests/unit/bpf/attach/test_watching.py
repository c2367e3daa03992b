# SPDX-License-Identifier: Apache-2.0
"""What a process with thousands of threads that step costs, and what of the ledgers its user gets."""

from __future__ import annotations

from collections.abc import Iterable
from ctypes import Structure, c_uint32
from types import SimpleNamespace
from typing import Any, cast

import pytest

from trainprobe.bpf import abi
from trainprobe.bpf.attach import watching
from trainprobe.bpf.attach.watching import AGAIN_NS, LEDGERS_OF_ONE, Watching
from trainprobe.model.cells import Level

NOBODYS = 1 << 23  # behind every id that a kernel gives
ATTACKER, VICTIM = 2_100_001, 2_100_002


class Map:
    def __init__(self) -> None:
        self.kept: dict[int, Any] = {}

    def get(self, key: c_uint32) -> Any:
        return self.kept.get(key.value)

    def put(self, key: c_uint32, value: Structure) -> bool:
        self.kept[key.value] = value
        return True

    def insert(self, key: c_uint32, value: Structure) -> bool:
        return key.value not in self.kept and self.put(key, value)

    def replace(self, key: c_uint32, value: Structure) -> bool:
        return key.value in self.kept and self.put(key, value)

    def delete(self, key: c_uint32) -> bool:
        return self.kept.pop(key.value, None) is not None

    def entries(self) -> list[tuple[c_uint32, Any]]:
        return [(c_uint32(key), value) for key, value in self.kept.items()]


class Ledgers:
    def __init__(self) -> None:
        self.kept: dict[int, abi.Ledger] = {}

    def get(self, tid: int) -> abi.Ledger | None:
        return self.kept.get(tid)

    def delete(self, tid: int) -> None:
        self.kept.pop(tid, None)


class World:
    def __init__(self) -> None:
        self.now, self.looks, self.uids = 10**12, 0, dict[int, int]()
        self.levels: dict[int, int] = {}
        self.ledgers = Ledgers()
        paths = SimpleNamespace(forget=lambda pid: None, note_process=lambda pid: None)
        self.children: list[int] = []
        self.asked: list[int] = []
        proc = SimpleNamespace(
            owner=self._owner, read=self._read, descendants=self._descendants, command=self._read, stats=self._stats,
            threads=lambda pid, most: [],
        )  # fmt: skip
        loaded = SimpleNamespace(map=lambda name, key, value: Map())
        parts = cast(Any, (loaded, self.levels, self.ledgers, paths, proc))
        self.watching = Watching(*parts, clock=lambda: self.now)

    def _owner(self, pid: int) -> int:
        if pid not in self.uids:
            raise FileNotFoundError(pid)
        return self.uids[pid]

    def _descendants(self, pid: int) -> list[tuple[int, int]]:
        self.looks += 1
        self.now += 40_000_000  # as with 4 000 threads
        return [(pid, child) for child in self.children]

    def _read(self, pid: int, name: str = "", limit: int = 0) -> bytes:
        self.asked += [pid] if name != "mountinfo" else []
        return b""

    def _stats(self, pids: Iterable[int]) -> dict[int, Any]:
        return {pid: SimpleNamespace(comm="python", flags=0) for pid in pids}

    def step(self, pid: int, threads: int) -> None:
        """So many threads of a process have a ledger because they step."""
        self.watching.processes.put(c_uint32(pid), abi.Process(drivers=threads))
        for tid in range(pid, pid + threads):
            self.ledgers.kept[tid] = abi.Ledger(tid=tid, tgid=pid)
            self.levels[tid] = Level.FULL


@pytest.fixture
def world() -> World:
    return World()


def test_ten_thousand_threads_that_begin_to_step_cost_no_more_looks_than_a_hundred(world: World) -> None:
    """Each look reads the children of each thread."""
    looked = []
    for threads in (100, 10_000):
        world.looks, began = 0, world.now
        for _ in range(threads):
            world.watching.driver_found(7)
            world.now += 2 * 10**9 // threads
        looked.append(world.looks * 0.04 / ((world.now - began) / 1e9))
        world.watching.forget(7)
    assert looked[1] <= 1.1 * looked[0]
    assert looked[1] <= 0.05


def test_the_processes_of_one_user_are_not_all_looked_at(world: World) -> None:
    """A look takes as long as its user's mounts and children make it."""
    world.uids = {pid: ATTACKER if pid < 1000 else VICTIM for pid in (*range(100, 1000), 2000)}
    assert sum(world.watching.driver_found(pid) for pid in range(100, 1000)) < 10
    assert world.watching.driver_found(2000)
    world.now += 60 * 10**9
    assert world.watching.driver_found(999)


def test_one_users_shared_memory_leaves_the_others_theirs(world: World) -> None:
    line = b"41 22 0:%d / /dev/shm rw - tmpfs tmpfs rw\n"
    world.watching._skip_device(line % 5000, VICTIM)
    for number in range(1000):
        world.watching._skip_device(line % number, ATTACKER)
    kept = cast(Any, world.watching._skipped).kept
    assert 5000 in kept
    assert 999 in kept
    assert len(kept) <= 256


def test_children_that_are_not_watched_cost_no_request(world: World) -> None:
    world.children = [*range(100, 4100)]
    for child in (100, 101):
        world.ledgers.kept[child] = abi.Ledger(tid=child, tgid=child)
    assert world.watching.driver_found(7)
    assert world.asked == [100, 101]


def test_a_process_is_looked_at_again_later_and_where_it_runs_another_program(world: World) -> None:
    assert world.watching.driver_found(7)
    assert world.watching.driver_found(8), "another process"
    assert not world.watching.driver_found(7)
    world.watching.executed(7, "python", ())
    assert world.watching.driver_found(7)
    world.now += 3 * AGAIN_NS
    assert world.watching.driver_found(7)


def test_one_users_threads_leave_the_others_their_ledgers(world: World) -> None:
    for number in range(20):
        pid = NOBODYS + 1000 * number
        world.uids[pid] = ATTACKER
        world.step(pid, abi.DRIVERS)
    victim = NOBODYS + 10**6
    world.uids[victim] = VICTIM
    world.step(victim, 8)
    world.watching.make_room(list(world.ledgers.kept.items()))
    theirs = [ledger for ledger in world.ledgers.kept.values() if ledger.tgid != victim]
    assert len(theirs) == LEDGERS_OF_ONE
    assert len(world.ledgers.kept) - len(theirs) == 8
    assert all(pid in world.ledgers.kept for pid in world.uids), "the first thread of each process keeps its own"
    assert world.watching.refused == 20 * abi.DRIVERS - LEDGERS_OF_ONE
    assert f"user {ATTACKER}" in str(world.watching.refusal())
    capped = [p for _, p in world.watching.processes.entries() if p.drivers >= abi.DRIVERS]
    assert len(capped) == 20
    world.now += watching.QUIET_NS
    assert world.watching.refusal() == ""


class Counted(Map):
    """Processes that run: whoever puts one back undoes what the kernel has counted in it meanwhile."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[int] = []

    def put(self, key: c_uint32, value: Structure) -> bool:
        self.written.append(key.value)
        return super().put(key, value)


@pytest.mark.parametrize("tentative", [False, True])
def test_a_process_is_written_once_as_it_is_opened(world: World, tentative: bool) -> None:
    world.watching.processes = processes = cast(Any, Counted())
    world.children = [8, 9]
    if tentative:
        processes.kept[7] = abi.Process(tentative=1)
    world.watching.watch(7, 10)
    assert sorted(processes.written) == [7, 8, 9]
    pools = [processes.kept[pid].pool for pid in (7, 8, 9)]
    assert all(pools)
    assert len({*pools}) == 3
    assert not processes.kept[7].tentative
    world.watching.watch(7, 10)
    assert world.watching.driver_found(7)
    assert len(processes.written) == 3
    assert [process.pool for process in processes.kept.values()] == pools
    owners = cast(Any, world.watching._pool_owner).kept
    assert {slot: owner.value for slot, owner in owners.items()} == dict(zip(pools, (7, 8, 9)))


@pytest.mark.parametrize("opens", [watching.Watching.watch, watching.Watching._take_back])
def test_a_process_that_ends_meanwhile_is_not_brought_back(world: World, opens: Any) -> None:
    class Ends(Map):
        def get(self, key: c_uint32) -> Any:
            return self.kept.pop(key.value, None)

    world.watching.processes = processes = cast(Any, Ends())
    processes.kept[7] = abi.Process(tentative=1)
    opens(world.watching, 7, [8] if opens is Watching._take_back else 0)
    assert processes.kept == {}
    assert cast(Any, world.watching._pool_owner).kept == {}


def test_what_is_watched_no_longer_leaves_no_thread_behind(world: World) -> None:
    world.step(7, 3)
    for tid in (7, 8, 9):
        cast(Any, world.watching._calls).put(c_uint32(tid), abi.CallRecord())
    world.watching.proc.threads = lambda pid, most: [7, 8, 9]  # type: ignore[method-assign]
    world.watching.unwatch(7)
    assert cast(Any, world.watching._calls).kept == {}
    assert world.ledgers.kept == {}
    assert not any(world.levels.values())


def test_root_is_many_containers(world: World) -> None:
    for number in range(20):
        pid = NOBODYS + 1000 * number
        world.uids[pid] = 0
        world.step(pid, abi.DRIVERS)
    world.watching.make_room(list(world.ledgers.kept.items()))
    assert len(world.ledgers.kept) == 20 * abi.DRIVERS
