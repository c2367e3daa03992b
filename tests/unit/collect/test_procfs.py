from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.unit.collect.fake_proc import FakeProc
from trainprobe.collect import procfs
from trainprobe.collect.procfs import Proc, parse_stat, read_file


@pytest.fixture
def child() -> subprocess.Popen[bytes]:
    env = {"RANK": "3", "SECRET": "s", "SLURM_JOB_ID": "9" * 1000}
    with subprocess.Popen([sys.executable, "-c", "print('up', flush=True); input()"], env=env,
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:  # fmt: skip
        assert process.stdout
        process.stdout.readline()
        yield process  # type: ignore[misc]
        process.kill()


def test_a_real_process(child: subprocess.Popen[bytes]) -> None:
    proc = Proc()
    stat, status, rollup = proc.stat(child.pid), proc.status(child.pid), proc.rollup(child.pid)
    assert stat
    assert status
    assert rollup
    assert (stat.ppid, stat.threads, stat.dead, stat.flags & procfs.KERNEL_THREAD) == (os.getpid(), 1, False, 0)
    assert stat.comm.startswith("python")
    assert stat.rss_bytes > 1 << 20
    assert (status.uid, status.gid) == (os.getuid(), os.getgid())
    assert status.swap_bytes == 0
    assert rollup.pss_bytes
    assert rollup.pss_bytes <= stat.rss_bytes * 2
    assert proc.command(child.pid) == (sys.executable, "-c", "print('up', flush=True); input()")
    assert proc.link(child.pid, "cwd") == os.getcwd()
    assert proc.limited((), (), [child.pid])[2] == {child.pid: 3}
    details = proc.details_of([child.pid])[child.pid]
    assert details[:2] == (proc.status(child.pid), 3)
    assert details[2] is not None
    assert proc.cgroup(child.pid)
    assert "/proc" in (proc.mountinfo(child.pid) or "")
    assert proc.threads(child.pid) == [child.pid]
    assert child.pid in proc.children(os.getpid())
    assert (os.getpid(), child.pid) in list(proc.descendants(os.getpid()))
    assert child.pid in proc.pids()
    assert proc.library(child.pid) is None


def test_only_named_variables_are_read_and_values_are_bounded(child: subprocess.Popen[bytes]) -> None:
    assert Proc().environ(child.pid) == {"RANK": "3", "SLURM_JOB_ID": "9" * procfs.VALUE_LIMIT}
    assert "SECRET" not in procfs.ENVIRON_KEYS


def of_bytes(tmp_path: Path, name: str, data: bytes) -> Proc:
    fake = FakeProc(tmp_path)
    fake.add(10)
    (tmp_path / "10" / name).write_bytes(data)
    return fake.proc


@pytest.mark.parametrize("variable", [b"\0", b"a=\0", b"RANK\0"])
def test_a_million_variables_take_no_time(variable: bytes, tmp_path: Path) -> None:
    """Whoever writes over his environment has any number of them, and each first step of a process reads them."""
    many = variable * ((procfs.ENVIRON_LIMIT - 100) // len(variable))
    proc = of_bytes(tmp_path, "environ", many + b"RANK=3\0WORLD_SIZE=\0RANK=4\0MY_RANK=5\0")
    proc.environ(10)  # which starts the helper
    began = time.thread_time()
    assert proc.environ(10) == {"RANK": "3", "WORLD_SIZE": ""}
    assert time.thread_time() - began < 0.03


def test_a_command_line_takes_little_memory(tmp_path: Path) -> None:
    """Each of a user's thousand watched processes keeps its own."""
    command = of_bytes(tmp_path, "cmdline", b"ab\0" * 100_000).command(10)
    assert command
    assert command[:2] == ("ab", "ab")
    assert sum(map(sys.getsizeof, command)) + sys.getsizeof(command) < 40_000
    assert of_bytes(tmp_path / "other", "cmdline", b"python\0train.py\0\0\0").command(10) == ("python", "train.py")


def test_the_start_is_on_the_monotonic_clock() -> None:
    before = time.monotonic_ns()
    with subprocess.Popen(["/bin/sleep", "5"]) as process:
        stat = Proc().stat(process.pid)
        after = time.monotonic_ns()
        process.kill()
    assert stat
    started = Proc().started_ns(stat.ticks)
    assert before - 2 * procfs.TICK_NS <= started <= after + procfs.TICK_NS


def test_the_same_start_is_the_same_number() -> None:
    proc = Proc()
    assert len({proc.started_ns(1000) for _ in range(100)}) == 1


def test_a_process_that_is_gone_is_an_ordinary_answer() -> None:
    with subprocess.Popen(["/bin/true"]) as process:
        pid = process.pid
    proc = Proc()
    assert proc.stat(pid) is None
    assert proc.status(pid) is None
    assert proc.command(pid) is None
    assert proc.environ(pid) == {}
    assert proc.library(pid) is None
    assert proc.cgroup(pid) is None
    assert proc.link(pid, "cwd") == ""
    assert proc.limited((), (), [pid])[2] == {}
    assert proc.details_of([pid]) == {pid: (None, None, None)}
    assert proc.limited([pid], [pid], [pid]) == ({pid: (None, None)}, {pid: None}, {})
    assert proc.rollup(pid) is None
    assert proc.threads(pid) == []
    assert list(proc.descendants(pid)) == []


def test_a_process_may_vanish_between_any_two_reads() -> None:
    """Each reader, again and again, on processes that die meanwhile: files that were open give ESRCH."""
    proc, seen = Proc(), 0
    for _ in range(15):
        child = subprocess.Popen(["sleep", "0.01"])
        pid, alive = child.pid, True
        while alive:
            alive = child.poll() is None
            for read in (
                proc.stat, proc.status, proc.command, proc.environ, proc.library, proc.maps, proc.cgroup,
                lambda pid: proc.link(pid, "cwd"), proc.mountinfo, lambda pid: proc.limited((), (), [pid])[2],
                lambda pid: any(proc.details_of([pid])[pid]),
                proc.rollup, proc.threads, proc.children,
            ):  # fmt: skip
                seen += bool(read(pid))  # type: ignore[operator]
            assert list(proc.descendants(pid)) == []
        assert proc.stat(pid) is None
    assert seen > 15


def test_a_zombie_is_dead_and_has_no_command() -> None:
    process = subprocess.Popen(["/bin/true"])
    proc = Proc()
    deadline = time.monotonic() + 5
    while (stat := proc.stat(process.pid)) and not stat.dead and time.monotonic() < deadline:
        time.sleep(0.01)
    assert stat
    assert stat.dead
    assert proc.command(process.pid) == ()
    process.wait()


def test_a_name_may_hold_anything() -> None:
    stat = parse_stat("7 (a) S 1 (b c) R 1 7 7 0 -1 64 0 0 0 0 100 50 0 0 20 0 3 0 555 0 10 0\n")
    assert stat
    assert (stat.comm, stat.state, stat.ppid, stat.ticks) == ("a) S 1 (b c", "R", 1, 555)
    assert stat.cpu_ns == 150 * procfs.TICK_NS


@pytest.mark.parametrize("text", ["", "7", "7 (a", "7 (a)", "7 )a( S", "7 (a) S " + "x " * 30])
def test_a_broken_stat_is_none(text: str) -> None:
    assert parse_stat(text) is None


def test_reads_are_bounded(tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(b"x" * 100_000)
    assert read_file(str(tmp_path / "large"), 10) == b"x" * 10
    assert read_file("/dev/zero", 5000) == b"\0" * 5000
    assert read_file(str(tmp_path), 10) is None
    assert read_file(str(tmp_path / "missing"), 10) is None


def test_a_fifo_in_place_of_a_file_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    assert read_file(str(tmp_path / "fifo"), 10) in (b"", None)


def test_children_of_children_each_once(fake: FakeProc) -> None:
    fake.add(10, ppid=1)
    fake.add(11, ppid=10)
    fake.add(12, ppid=11)
    (fake.root / "12/task/12/children").write_text("10 12 x -5 99999999999999999999 ")
    assert list(fake.proc.descendants(10))[:2] == [(10, 11), (11, 12)]


def test_descendants_are_asked_for_by_generation(fake: FakeProc, monkeypatch: pytest.MonkeyPatch) -> None:
    for pid in range(10, 60):
        fake.add(pid, ppid=9 if pid < 11 else 10 if pid < 50 else pid - 1)
    requests: list[int] = []
    ask = fake.proc.pool.ask
    monkeypatch.setattr(fake.proc.pool, "ask", lambda reads: requests.append(len(reads)) or ask(reads))
    assert {child for _, child in fake.proc.descendants(10)} == {*range(11, 60)}
    assert len(requests) <= 13


def test_numbers_of_the_fake(fake: FakeProc) -> None:
    fake.add(10, ns_pids="\t1", uid=1000)
    status = fake.proc.status(10)
    assert status
    assert (status.uid, status.container_pid, status.swap_bytes) == (1000, 1, 12 << 10)
    assert fake.proc.details_of([10])[10][2] == 1024
    (fake.root / "10/limits").write_text("Max open files            unlimited            unlimited files\n")
    assert fake.proc.details_of([10])[10][2] is None


def test_shared_memory_that_waits_unmapped_is_seen() -> None:
    """As torch hands batches over: made, closed or unmapped by its maker, open until somebody takes it."""
    proc = Proc()
    before = proc.rollup_and_held(os.getpid())[1]
    if before is None or not os.access("/dev/shm", os.W_OK):
        pytest.skip("no /dev/shm here")
    path = Path(f"/dev/shm/trainprobe-test-{os.getpid()}")
    with path.open("wb", buffering=0) as file:
        path.unlink()
        file.write(bytes(3 << 20))
        second = os.dup(file.fileno())
        try:
            assert proc.rollup_and_held(os.getpid())[1] == before + (3 << 20), "once, however often it is open"
        finally:
            os.close(second)
    assert proc.rollup_and_held(os.getpid())[1] == before
    assert proc.rollup_and_held(2**22 + 1) == (None, None)


@pytest.mark.parametrize("size", [0, 1, 16 << 10, (16 << 10) + 1, 3 << 20])
def test_a_file_is_read_whole_and_no_further_than_the_limit(tmp_path: Path, size: int) -> None:
    data = random.randbytes(size)
    (tmp_path / "file").write_bytes(data)
    assert read_file(str(tmp_path / "file"), 4 << 20) == data
    limit = random.randrange(size + 1)
    assert read_file(str(tmp_path / "file"), limit) == data[:limit]
