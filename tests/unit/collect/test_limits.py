"""Collectors of what can run out, against files and against this machine."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.unit.collect.fake_proc import FakeProc
from trainprobe.collect import descriptors
from trainprobe.collect import orphans as orphans_module
from trainprobe.collect.cgroup import Cgroups
from trainprobe.collect.kernel_log import KernelLog, KillLines, kernel_text, xid_logged
from trainprobe.collect.limits import LimitReader
from trainprobe.collect.orphans import GRACE_NS, MOST, READING_SECONDS, WORKER_COMM, Orphans
from trainprobe.collect.pool import HelperPool, Read
from trainprobe.collect.procfs import Proc, Rollup
from trainprobe.collect.shared_memory import LEAKS, MAPS_SECONDS, SharedMemoryReader, shared_memory_device
from trainprobe.collect.source import Unavailable
from trainprobe.collect.watched import Watched
from trainprobe.model.event import OomLogged
from trainprobe.model.moment import NS
from trainprobe.model.sample import LimitSample

MEMCG = (
    "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/job 7/step,"
    "task_memcg=/job 7/step/task_0,task=python,pid=4711,uid=1000"
)
GLOBAL = (
    "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,"
    "task_memcg=/user.slice,task=evil,pid=1,uid=0 python,pid=815,uid=0"
)
OLD = "[ pid ]   uid  tgid total_vm      rss nr_ptes nr_pmds swapents oom_score_adj name"


def test_whose_limit_a_victim_died_of() -> None:
    lines = KillLines()
    assert lines.add_line(MEMCG, 5) == OomLogged(5, 4711, "cgroup", "/job 7/step")
    told = lines.add_line(GLOBAL, 5)
    assert told is not None
    assert (told.pid, told.scope, told.group) == (815, "host", "")
    assert lines.add_line(OLD, 5) is None


CGROUP, HOST = "Memory cgroup out of memory", "Out of memory"
WHOLE = "Tasks in /job 7/step are going to be killed due to memory.oom.group set"


def killed(pid: int, message: str = CGROUP, name: str = "python") -> str:
    return (
        f"{message}: Killed process {pid} ({name}) total-vm:7340032kB, anon-rss:6291456kB, file-rss:0kB, "
        "shmem-rss:128kB, UID:1000 pgtables:14000kB oom_score_adj:0"
    )


def told_of(*lines: str) -> list[tuple[int, str, str]]:
    """pid, scope and group of each kill that the lines tell of."""
    seen = KillLines()
    found = (seen.add_line(line, 5) for line in lines)
    return [(one.pid, one.scope, one.group) for one in found if one is not None]


def test_each_process_of_a_cgroup_that_is_killed_as_a_whole() -> None:
    """The kernel prints a line for each, for the victim two."""
    told = told_of(MEMCG, killed(4711), WHOLE, killed(4711), killed(4712), killed(4713, name="pt (a), b)"))
    assert told == [(pid, "cgroup", "/job 7/step") for pid in (4711, 4712, 4713)]


def test_a_cgroup_that_is_killed_as_a_whole_for_want_of_the_hosts_memory() -> None:
    told = told_of(GLOBAL, killed(815, HOST), WHOLE, killed(815, HOST), killed(816, HOST))
    assert told == [(815, "host", ""), (816, "host", "")]


def test_kills_whose_summary_the_kernel_left_out() -> None:
    """It prints ten in five seconds; their lines come always."""
    assert told_of(MEMCG, killed(4711), killed(4800), killed(4801, HOST)) == [
        (4711, "cgroup", "/job 7/step"),
        (4800, "cgroup", ""),
        (4801, "host", ""),
    ]
    assert told_of(killed(4711), WHOLE, killed(4711), killed(4712)) == [(4711, "cgroup", ""), (4712, "cgroup", "")]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (killed(7, "Out of memory (oom_kill_allocating_task)"), [(7, "host", "")]),
        (GLOBAL.replace("NONE", "CPUSET"), [(815, "host", "")]),
        (GLOBAL.replace("NONE", "MEMORY_POLICY"), [(815, "host", "")]),
        ("oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null)", []),  # its rest came as another record
        ("Memory cgroup out of memory: OOM victim 7 (python) is already exiting. Skip killing the task", []),
        ("oom_reaper: reaped process 7 (python), now anon-rss:0kB, file-rss:0kB, shmem-rss:0kB", []),
        ("python invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0", []),
        ("audit: said: " + killed(7), []),
    ],
)
def test_other_lines_about_memory(line: str, told: list[tuple[int, str, str]]) -> None:
    assert told_of(line) == told


def test_lines_of_another_turn_are_not_of_the_same_cgroup() -> None:
    lines = KillLines()
    for line in (MEMCG, killed(4711), WHOLE):
        lines.add_line(line, 5)
    lines.begin()
    assert lines.add_line(killed(4711), 6) is None
    assert lines.add_line(killed(9), 6) == OomLogged(6, 9, "cgroup", "")


@pytest.mark.parametrize("name", [MEMCG, "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus."])
def test_a_file_whose_name_is_a_line_of_the_kernel_log(name: str) -> None:
    """The kernel logs in which file a program faulted: anybody names his files as he likes."""
    fault = f"python[99]: segfault at 0 ip 00007f0000001000 sp 00007f0000002000 error 4 in {name}[7f0000001000+1000]"
    assert KillLines().add_line(fault, 5) is None
    assert xid_logged(fault, 5) is None


@pytest.mark.parametrize(
    ("record", "text"),
    [
        (b"3,12,900,-;" + MEMCG.encode() + b"\n SUBSYSTEM=x\n", MEMCG),
        (b"12,12,900,-;" + MEMCG.encode() + b"\n", ""),  # facility 1: somebody wrote to /dev/kmsg
        (b"nonsense", ""),
        (b"99999999999,1;x", ""),
        (b"6,1,1,-;\xff\xfe", "\ufffd\ufffd"),
    ],
)
def test_only_the_kernels_own_lines_count(record: bytes, text: str) -> None:
    assert kernel_text(record) == text


def test_a_log_that_cannot_be_read(tmp_path: Path) -> None:
    log = KernelLog(str(tmp_path / "none"))
    assert isinstance(log.open(), Unavailable)
    assert log.read(1) == []


@pytest.mark.parametrize(
    ("target", "kind"),
    [
        ("/dev/shm/torch_12_99_0 (deleted)", "shared memory"),
        ("/torch_12_99_0 (deleted)", "shared memory"),
        ("/memfd:x (deleted)", "shared memory"),
        ("/dev/nvidia0", "GPU"),
        ("socket:[12]", "socket"),
        ("pipe:[12]", "pipe"),
        ("anon_inode:[eventpoll]", "event"),
        ("/data/a.bin", "file"),
        ("net:[4026]", "other"),
    ],
)
def test_what_a_descriptor_is(target: str, kind: str) -> None:
    assert descriptors.kind_of(target) == kind


def test_the_descriptors_of_this_process() -> None:
    before = descriptors.kinds(Proc(), os.getpid())
    pipes = [os.pipe() for _ in range(random.randrange(3, 9))]
    after = descriptors.kinds(Proc(), os.getpid())
    for pair in pipes:
        for fd in pair:
            os.close(fd)
    assert before is not None
    assert after is not None
    assert after.kinds["pipe"] - before.kinds.get("pipe", 0) == 2 * len(pipes)
    assert descriptors.kinds(Proc(), 2**22 + 1) is None


def test_the_shared_memory_that_counts_is_the_one_mounted_last() -> None:
    table = (
        "36 25 0:32 / /dev/shm rw,nosuid - tmpfs tmpfs rw,size=65536k\n"
        "37 25 0:40 / /dev/shm/sub rw - tmpfs tmpfs rw\n"
        "38 25 0:41 / /dev/shm rw,nosuid - tmpfs tmpfs rw\n"
    )
    assert shared_memory_device(table) == os.makedev(0, 41)
    assert shared_memory_device(table + "39 25 8:1 /x /dev/shm rw - ext4 /dev/sda1 rw\n") is None
    assert shared_memory_device("") is None


def test_leaks_are_files_of_the_dead_that_nobody_maps() -> None:
    """On this machine's /dev/shm, with a process that lives, one that is dead, and a file that is still young."""
    place = Path("/dev/shm")
    shared = SharedMemoryReader(Proc())
    limit = shared.limit("r", os.getpid(), "", time.monotonic_ns())
    if limit is None:
        pytest.skip("no /dev/shm of limited size here")
    gone = subprocess.Popen([sys.executable, "-S", "-c", ""])
    gone.wait()
    old, files = time.time() - 3600, []
    for maker, age in ((os.getpid(), old), (gone.pid, old), (gone.pid, None)):
        path = place / f"torch_{maker}_{random.randrange(1 << 31)}_{len(files)}"
        path.write_bytes(b"x" * 8192)
        if age is not None:
            os.utime(path, (age, age))
        files.append(path)
    try:
        later = time.time() + 20  # ctime cannot be set: the young ones are those whose age is under the limit then
        assert [leak.pid for leak in shared.samples_with_leaks([limit], [], later)[0].leaks] == []
        leaks = shared.samples_with_leaks([limit], [], time.time() + 60)[0].leaks
        assert [(leak.pid, leak.files, leak.bytes) for leak in leaks if leak.pid == gone.pid] == [(gone.pid, 2, 16384)]
        assert os.getpid() not in {leak.pid for leak in leaks}
    finally:
        for path in files:
            path.unlink()


def test_files_in_many_a_dead_name_hide_no_others_leak_and_cost_little(
    fake: FakeProc, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One user has made thousands of files, and has processes whose maps are slow to read; of another one's two dead
    processes one has left a file that is in use."""
    watched = [*a_crowd(fake, 200), *(Watched(pid, 1, 1, "worker", "other") for pid in range(901, 1001))]
    watched.append(Watched(900, 1, 1, "driver", "other"))
    used, left = "torch_7_1", "torch_8_1"
    theirs = {f"torch_4{number:06}_x": (4096, 1000) for number in range(5000)}
    files = {**theirs, used: (1 << 20, 1001), left: (2 << 20, 1001)}
    clock, read = [0.0], set()

    def maps(pid: int) -> bytes:
        clock[0] += 0.04 if pid < 900 else 0.005
        read.add(pid)
        return f"7f00-7f10 rw-s 00000000 00:19 7 /dev/shm/{used}\n".encode() if pid == 900 else b""

    shared = SharedMemoryReader(fake.proc)
    monkeypatch.setattr(shared, "_torch_files", lambda *_: files)
    monkeypatch.setattr(shared, "_alive_beside", lambda _: {1, 2})
    monkeypatch.setattr(fake.proc, "maps", maps)
    monkeypatch.setattr(fake.proc.pool, "owner", lambda pid: 1000 + (pid >= 900))
    monkeypatch.setattr("trainprobe.collect.owners.time.perf_counter", lambda: clock[0])
    limit = LimitSample("other", "shm", 1 << 30, 4 << 30, "host", "0:25", 900)
    for _ in range(100):
        before = clock[0]
        (sample,) = shared.samples_with_leaks([limit], watched, 0.0)
        assert clock[0] - before <= MAPS_SECONDS + 0.04
        assert (sample.leaks[0].pid, sample.leaks[0].bytes) == (8, 2 << 20), (
            "what he keeps us from reading is his alone"
        )
        assert all(leak.pid != 7 for leak in sample.leaks)
        if not shared.waiting:
            break
        assert sample.leaked_bytes == 2 << 20
    assert len(read) == 301, "each had its turn"
    assert len(sample.leaks) == LEAKS
    assert sample.leaked_bytes == (2 << 20) + 5000 * 4096
    assert len(sample.leaks) + sample.more_leaks == sum(leak.files for leak in sample.leaks) + sample.more_files == 5001


def test_a_mount_that_belongs_to_nobody_we_know(fake: FakeProc) -> None:
    """A container whose /dev/shm is a link to somewhere: its own mount table does not know that device."""
    fake.add(5)
    (fake.root / "5/root/dev").mkdir(parents=True)
    (fake.root / "5/root/dev/shm").symlink_to("/")
    (fake.root / "5/mountinfo").write_text("36 25 0:32 / /dev/shm rw - tmpfs tmpfs rw\n")
    assert SharedMemoryReader(fake.proc).limit("r", 5, "", 1) is None


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many reads each request to the helper has."""
    made: list[int] = []
    ask = HelperPool.ask

    def counted(pool: HelperPool, reads: Sequence[Read]) -> list[bytes | int | None]:
        made.append(len(reads))
        return ask(pool, reads)

    monkeypatch.setattr(HelperPool, "ask", counted)
    return made


def test_a_reading_wakes_the_helper_once(requests: list[int]) -> None:
    """Each request costs more than what is read by it."""
    proc = Proc()
    stat = proc.stat(os.getpid())
    assert stat
    watched = [Watched(os.getpid(), stat.ticks, 0, "driver", "run")]
    limits = LimitReader(proc, Cgroups(proc), SharedMemoryReader(proc))
    first = limits.read(watched, NS)
    for placed, reads in ((True, 2), (False, 4)):
        requests.clear()
        later = limits.read(watched, 2 * NS, placed=placed)
        assert requests == [reads]
        assert [(one.kind, one.place, one.limit) for one in later] == [(o.kind, o.place, o.limit) for o in first]


def test_a_process_that_enters_a_container_has_another_shm(fake: FakeProc) -> None:
    """As ``apptainer exec`` does before it becomes the training; or it mounts one itself; and another process may come
    by the number of one."""
    ours, theirs = os.stat("/dev/shm").st_dev, fake.root.stat().st_dev
    limits, watched = LimitReader(fake.proc, Cgroups(fake.proc), SharedMemoryReader(fake.proc)), a_crowd(fake, 1)
    place = fake.root / "100"

    def enter(device: int) -> None:
        name = f"{os.major(device)}:{os.minor(device)}"
        (place / "mountinfo").write_text(f"36 25 {name} / /dev/shm rw - tmpfs tmpfs rw\n")

    def told(at: int) -> list[str]:
        return [one.place for one in limits.read(watched, at * NS, placed=True) if one.kind == "shm"]

    enter(ours)
    (place / "root").symlink_to("/")
    assert [told(at) for at in (1, 2, 3)] == [[f"{os.major(ours)}:{os.minor(ours)}"]] * 3
    (place / "root").unlink()
    (place / "root/dev/shm").mkdir(parents=True)
    enter(theirs)
    assert [told(at) for at in (4, 5)] == [[f"{os.major(theirs)}:{os.minor(theirs)}"]] * 2


def test_what_a_process_is_in_is_that_of_its_cgroup_now(fake: FakeProc) -> None:
    """Its launcher moves it into its container; and another process may come by the number of one."""
    limits, watched = LimitReader(fake.proc, Cgroups(fake.proc), SharedMemoryReader(fake.proc)), a_crowd(fake, 1)
    (fake.root / "100/root").symlink_to("/")
    device = os.stat("/dev/shm").st_dev
    name = f"{os.major(device)}:{os.minor(device)}"
    (fake.root / "100/mountinfo").write_text(f"36 25 {name} / /dev/shm rw - tmpfs tmpfs rw\n")
    found = []
    for number, cgroup in enumerate(("0::/user.slice\n", f"0::/system.slice/docker-{'ab' * 32}.scope\n")):
        (fake.root / "100/cgroup").write_text(cgroup)
        found += [one.scope for one in limits.read(watched, number * NS) if one.kind == "shm"]
    assert found[0] == "host"
    assert found[1].startswith("ab")


def a_crowd(fake: FakeProc, count: int) -> list[Watched]:
    for pid in range(100, 100 + count):
        fake.add(pid)
    return [Watched(pid, pid * 10, fake.started_ns(pid), "helper", "run") for pid in range(100, 100 + count)]


def counted(found: list[LimitSample]) -> list[int]:
    return [one.pid for one in found if one.kind == "fds"]


def test_few_processes_are_counted_each_time(fake: FakeProc) -> None:
    limits, watched = LimitReader(fake.proc, Cgroups(fake.proc), SharedMemoryReader(fake.proc)), a_crowd(fake, 64)
    assert [len(counted(limits.read(watched, at * NS))) for at in range(3)] == [64, 64, 64]


def test_a_glance_asks_for_no_cgroup_that_is_known(fake: FakeProc) -> None:
    (fake.root / "meminfo").write_text("MemTotal: 1000 kB\nMemAvailable: 900 kB\n")
    limits, watched = LimitReader(fake.proc, Cgroups(fake.proc), SharedMemoryReader(fake.proc)), a_crowd(fake, 3)
    fake.add(100, cgroup="0::/\n")
    assert "memory" in {one.kind for one in limits.read(watched, 0, placed=True)}, "it is not known yet"
    (fake.root / "100/cgroup").unlink()
    assert "memory" in {one.kind for one in limits.read(watched, 0, placed=True)}
    assert "memory" not in {one.kind for one in limits.read(watched, 0)}


def test_of_many_those_far_from_their_limit_are_counted_in_turn(fake: FakeProc) -> None:
    limits, watched = LimitReader(fake.proc, Cgroups(fake.proc), SharedMemoryReader(fake.proc)), a_crowd(fake, 200)
    full = watched[random.randrange(200)].pid
    for number in range(200):
        (fake.root / f"{full}/fd/{number}").touch()
    rounds = [counted(limits.read(watched, at * NS)) for at in range(8)]
    assert all(45 <= len(found) <= 55 for found in rounds)
    assert {pid for found in rounds[:4] for pid in found} == {process.pid for process in watched}
    first = next(place for place, found in enumerate(rounds) if full in found)
    assert all(full in found for found in rounds[first:])


def test_one_that_ran_out_of_them_is_counted_at_once(fake: FakeProc) -> None:
    limits, watched = LimitReader(fake.proc, Cgroups(fake.proc), SharedMemoryReader(fake.proc)), a_crowd(fake, 200)
    for process in random.sample(watched, 20):
        assert process.pid in counted(limits.read(watched, 0, {process.pid}))


def test_a_limit_that_a_training_sets_itself_holds_as_soon_as_it_opens_more(fake: FakeProc) -> None:
    limits, watched = LimitReader(fake.proc, Cgroups(fake.proc), SharedMemoryReader(fake.proc)), a_crowd(fake, 1)

    def told(at: int, *asked: int) -> list[tuple[int, int]]:
        return [(one.used, one.limit) for one in limits.read(watched, at * NS, asked) if one.kind == "fds"]

    def allow(number: int) -> None:
        (fake.root / "100/limits").write_text(f"Max open files            {number}   4096   files\n")

    assert told(0) == [(0, 1024)]
    allow(300)
    assert told(1) == [(0, 1024)], "nothing was opened: no file is read for that"
    (fake.root / "100/fd/0").touch()
    assert told(2) == [(1, 300)]
    allow(200)
    assert told(3) == [(1, 300)]
    assert told(4, 100) == [(1, 200)], "one of its calls failed"
    allow(500)
    assert told(121) == [(1, 500)], "and in any case now and then"


def test_a_limit_that_somebody_raises_holds_soon_where_many_are_open(fake: FakeProc) -> None:
    """As the runbooks advise (``prlimit --pid``); nothing need be opened for that."""
    limits, watched = LimitReader(fake.proc, Cgroups(fake.proc), SharedMemoryReader(fake.proc)), a_crowd(fake, 1)
    for number in range(900):
        (fake.root / f"100/fd/{number}").touch()

    def told(at: int) -> list[tuple[int, int]]:
        return [(one.used, one.limit) for one in limits.read(watched, at * NS) if one.kind == "fds"]

    assert told(0) == [(900, 1024)]
    (fake.root / "100/limits").write_text("Max open files            65536   65536   files\n")
    assert told(1) == [(900, 1024)]
    assert told(13) == [(900, 65536)]


def test_a_limit_that_could_not_be_read_is_asked_the_next_time(fake: FakeProc) -> None:
    """A busy host's helper was late."""
    limits, watched = LimitReader(fake.proc, Cgroups(fake.proc), SharedMemoryReader(fake.proc)), a_crowd(fake, 1)
    path = fake.root / "100/limits"
    path.rename(fake.root / "aside")
    assert counted(limits.read(watched, 0)) == []
    (fake.root / "aside").rename(path)
    assert counted(limits.read(watched, NS)) == [100]


def test_orphans_are_told_after_a_grace(fake: FakeProc) -> None:
    fake.add(1, comm="systemd", ppid=0)
    fake.add(10, comm="python")
    fake.add(11, comm="python", ppid=10)  # an old torch's worker: only known because it was met
    fake.add(12, comm="pt_data_worker", ppid=10)
    fake.add(20, comm="pt_data_worker", ppid=1)  # its trainer ended before we came
    fake.add(30, comm="python", ppid=1)  # somebody's daemon
    orphans = Orphans(fake.proc)
    for pid in (11, 12):
        orphans.add_worker(pid, pid * 10, 10)
    assert orphans.read(NS) == ()
    assert orphans.waiting(), "the one that had none when we came"
    for pid in (11, 12):
        fake.add(pid, comm="python" if pid == 11 else "pt_data_worker", ppid=1)
    (fake.root / "10/stat").unlink()
    assert [o.pid for o in orphans.read(NS + GRACE_NS)] == [20]
    found = orphans.read(NS + 2 * GRACE_NS)
    assert [(o.pid, o.trainer) for o in found] == [(11, 10), (12, 10), (20, None)]
    assert found[0].pss_bytes is not None
    for pid in (11, 12, 20):
        (fake.root / f"{pid}/stat").unlink()
    assert orphans.read(NS + 3 * GRACE_NS) == ()
    assert not orphans.waiting()


def test_orphans_are_found_among_ten_times_as_many_processes_as_a_look_reads(
    fake: FakeProc, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Anybody can have as many; those that come anew all the time keep nobody from being read."""
    monkeypatch.setattr(orphans_module, "AT_ONCE", 10)
    fake.add(1, comm="systemd", ppid=0)
    for pid in range(100, 200):
        fake.add(pid, comm="sleep", ppid=1)
    fake.add(400, comm=WORKER_COMM, ppid=1)
    read: list[int] = []
    stats = fake.proc.stats
    monkeypatch.setattr(fake.proc, "stats", lambda pids: read.append(len(list(pids))) or stats(pids))
    orphans, told = Orphans(fake.proc), []
    for look in range(60):
        told += orphans.read(look * 5 * NS)
        assert orphans.waiting()
        for pid in range(1000 + 10 * look, 1010 + 10 * look):
            fake.add(pid, comm="sleep", ppid=1)
            if look:
                fake.remove(pid - 10)
    assert {one.pid for one in told} == {400}
    assert max(read) <= 10
    fake.remove(400)
    assert orphans.read(1000 * NS) == ()


def test_orphans_of_one_user_that_are_slow_to_read_cost_neither_the_loop_nor_others_much(
    fake: FakeProc, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One user has named hundreds of sleeping processes so, and another one has two orphans."""
    fake.add(1, comm="systemd", ppid=0)
    for pid in [*range(100, 400), 900, 901]:
        fake.add(pid, comm=WORKER_COMM)
    monkeypatch.setattr(fake.proc.pool, "owner", lambda pid: 1000 + (pid >= 900))
    rollup, clock = fake.proc.rollup, [0.0]

    def slow(pid: int) -> Rollup | None:
        clock[0] += 0.04 if pid < 900 else 0.005
        return rollup(pid)

    monkeypatch.setattr(fake.proc, "rollup", slow)
    monkeypatch.setattr("trainprobe.collect.owners.time.perf_counter", lambda: clock[0])
    orphans, costs, read = Orphans(fake.proc), [], set()
    orphans.read(0)
    for look in range(8):
        before = clock[0]
        found = {one.pid: one for one in orphans.read(GRACE_NS + look * NS)}
        costs.append(clock[0] - before)
        read.add(sum(one.pss_bytes is not None for one in found.values()))
        assert len(found) == MOST
        assert all(found[pid].pss_bytes is not None for pid in (900, 901))
    assert max(costs) <= READING_SECONDS + 0.04
    assert len(read) == 8, "others each time, and what was read stays"
    assert orphans.waiting(), "for those that are left"
    for pid in range(110, 400):
        fake.remove(pid)
    for look in range(8):
        orphans.read(GRACE_NS + (8 + look) * NS)
    assert not orphans.waiting()
