from __future__ import annotations

import os
import subprocess
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from benchmarks.limits import groups
from benchmarks.stalls.host import CannotHere
from tests.unit.collect.fake_proc import FakeProc
from trainprobe.collect.cgroup import (
    INNERMOST,
    OUTERMOST,
    CgroupMount,
    Cgroups,
    Throttling,
    directory,
    nearest,
    number,
    parse_mounts,
)
from trainprobe.collect.limits import LimitReader
from trainprobe.collect.procfs import Proc, Stat, read_file
from trainprobe.collect.shared_memory import SharedMemoryReader
from trainprobe.collect.source import Sources, Unavailable
from trainprobe.collect.watched import Watched
from trainprobe.model.moment import NS, Moment
from trainprobe.model.sample import IoLimitSample, LimitSample, MemorySample, SourceStatus
from trainprobe.runtime.sampling.samplers import Collectors

GB = 1 << 30


class Hierarchies:
    """Mounted cgroup hierarchies made of directories."""

    def __init__(self, fake: FakeProc) -> None:
        self.fake = fake
        self.base = fake.root / "cg root"  # mountinfo writes the space as \040
        self.lines: list[str] = []
        (fake.root / "self").mkdir()
        (fake.root / "meminfo").write_text(f"MemTotal: {16 * GB >> 10} kB\nMemAvailable: {6 * GB >> 10} kB\n")
        self.mount()

    def mount(self, kind: str = "", controllers: str = "", root: str = "/") -> Path:
        if kind:
            point = self.base / (controllers or "unified")
            point.mkdir(parents=True)
            escaped = str(point).replace(" ", "\\040")
            self.lines.append(
                f"30 20 0:3 {root} {escaped} rw,nosuid shared:9 - {kind} cgroup rw,{controllers or 'x'}\n"
            )
        (self.fake.root / "self/mountinfo").write_text("".join(self.lines))
        return self.base / (controllers or "unified")


def write(directory: Path, **files: str) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (directory / name.replace("__", ".")).write_text(text + "\n")


@pytest.fixture
def host(fake: FakeProc) -> Hierarchies:
    return Hierarchies(fake)


def test_v2_takes_the_nearest_limit_above_the_process(host: Hierarchies) -> None:
    root = host.mount("cgroup2")
    write(root / "a", memory__max=str(4 * GB), memory__current=str(3 * GB), memory__stat=f"anon 1\ninactive_file {GB}")
    write(root / "a/b", memory__max="max", memory__current=str(GB))
    write(root / "a/b/c", memory__max=str(8 * GB), memory__current=str(GB))
    host.fake.add(5, cgroup="0::/a/b/c\n")
    assert nearest("r", Cgroups(host.fake.proc).memory("r", 5)) == MemorySample("r", 2 * GB, 4 * GB, "cgroup")


@pytest.mark.parametrize("depth", [5, 7, 9, 60])
def test_each_limit_above_a_run_counts_but_for_the_midst_of_a_deep_tree(
    host: Hierarchies, monkeypatch: pytest.MonkeyPatch, depth: int
) -> None:
    """Runs beside each other read what they share once."""
    root, shared = host.mount("cgroup2"), "/kubepods.slice"
    parts = [str(number) for number in range(1, depth - 1)]
    chains = ["/".join([shared, run, *parts]) for run in "ab"]
    levels = [chain.rsplit("/", up)[0] for chain in chains for up in range(depth)]
    for level in levels:
        write(root / level[1:], memory__max=str(4 * GB), memory__current=str(GB), pids__max="9", pids__current="3")
    for pid, chain in enumerate(chains, 5):
        host.fake.add(pid, cgroup=f"0::{chain}\n")
    opened = Counter[str]()

    def read(path: str, limit: int) -> bytes | None:
        opened[path] += 1
        return read_file(path, limit)

    monkeypatch.setattr("trainprobe.collect.cgroup.read_file", read)
    watched = [Watched(pid, 10 * pid, 1, "driver", chain) for pid, chain in enumerate(chains, 5)]
    limits = [one for one in limits_of(host, host.fake.proc).read(watched, 1) if one.scope == "cgroup"]
    for kind in ("memory", "pids"):
        told = [{one.place for one in limits if (one.kind, one.run) == (kind, run)} for run in chains]
        assert len(told[0]) == min(depth, INNERMOST + OUTERMOST - 1), "the mount itself has none"
        assert {shared, chains[0]} <= told[0]
        assert (told[0] | told[1] == set(levels)) == (depth < INNERMOST + OUTERMOST)
    assert set(opened.values()) == {1}


def test_v1_in_a_hybrid_host(host: Hierarchies) -> None:
    host.mount("cgroup2")
    root = host.mount("cgroup", "memory")
    write(root, memory__limit_in_bytes="9223372036854771712", memory__usage_in_bytes=str(9 * GB))
    write(root / "job", memory__limit_in_bytes=str(2 * GB), memory__usage_in_bytes=str(GB),
          memory__stat=f"inactive_file 7\ntotal_inactive_file {GB // 2}")  # fmt: skip
    host.fake.add(5, cgroup="4:memory:/job\n0::/\n")
    assert nearest("r", Cgroups(host.fake.proc).memory("r", 5)) == MemorySample("r", GB // 2, 2 * GB, "cgroup")


def test_a_limit_above_the_hosts_memory_is_none(host: Hierarchies) -> None:
    root = host.mount("cgroup2")
    write(root / "a", memory__max=str(64 * GB), memory__current=str(GB))
    host.fake.add(5, cgroup="0::/a\n")
    assert nearest("r", Cgroups(host.fake.proc).memory("r", 5)) == MemorySample("r", 10 * GB, 16 * GB, "host")


def test_a_mount_that_shows_a_part_of_the_hierarchy(host: Hierarchies) -> None:
    root = host.mount("cgroup", "memory", root="/docker/abc")
    write(root, memory__limit_in_bytes=str(GB), memory__usage_in_bytes="5")
    host.fake.add(5, cgroup="4:memory:/docker/abc\n")
    host.fake.add(6, cgroup="4:memory:/docker/abcd\n")
    assert nearest("r", Cgroups(host.fake.proc).memory("r", 5)) == MemorySample("r", 5, GB, "cgroup")
    assert nearest("r", Cgroups(host.fake.proc).memory("r", 6)) is None, "its limit is not known; the host's is not it"


@pytest.mark.parametrize("path", ["4:memory:/pod\n0::/\n", "0::/../pod\n", "0::/pod\n"])
def test_limits_are_not_known_where_the_cgroups_are_out_of_sight(host: Hierarchies, path: str) -> None:
    """A daemon in a container without the host's /sys/fs/cgroup: the source says so, and no limit is made up."""
    sources = Sources()
    process = Watched(5, 1, 0, "driver", "r")
    host.fake.add(5, cgroup=path)
    samples = Collectors(sources, host.fake.proc).read(Moment(NS, NS), [process])
    assert samples.memory == ()
    assert not [one for one in samples.limits if one.kind == "memory"]
    [state] = [one for one in sources.states() if one.name == "cgroups"]
    assert state.state is SourceStatus.UNAVAILABLE
    assert "mount the host's /sys/fs/cgroup" in state.remedy


def test_without_cgroups_the_host_is_the_limit_and_a_dead_process_has_none(host: Hierarchies) -> None:
    host.fake.add(5, cgroup="")
    cgroups = Cgroups(host.fake.proc)
    assert nearest("r", cgroups.memory("r", 5)) == MemorySample("r", 10 * GB, 16 * GB, "host")
    assert nearest("r", cgroups.memory("r", 6)) is None


def test_a_path_does_not_leave_its_mount() -> None:
    mounts = [CgroupMount("/sys/fs/cgroup", "/", frozenset({""}))]
    assert directory(mounts, "", "/../../etc") is None
    assert directory(mounts, "", "/a/b") == ("/sys/fs/cgroup", "/sys/fs/cgroup/a/b")
    assert directory(mounts, "", "/") == ("/sys/fs/cgroup", "/sys/fs/cgroup")
    assert directory(mounts, "memory", "/") is None


def throttling(host: Hierarchies) -> Throttling | Unavailable:
    """Of process 5."""
    return Cgroups(host.fake.proc).throttling(host.fake.proc.cgroup(5) or "")


def test_throttling_v2(host: Hierarchies) -> None:
    root = host.mount("cgroup2")
    write(
        root / "a", cpu__max="50000 100000", cpu__stat="usage_usec 1\nnr_periods 9\nnr_throttled 4\nthrottled_usec 70"
    )
    write(root / "a/b", cpu__max="max 100000", cpu__stat="nr_periods 0\nnr_throttled 0\nthrottled_usec 0")
    host.fake.add(5, cgroup="0::/a/b\n")
    assert throttling(host) == Throttling(9, 4, 70_000, 0.5, "/a")


def test_throttling_v1_in_a_shared_hierarchy(host: Hierarchies) -> None:
    root = host.mount("cgroup", "cpu,cpuacct")
    write(root / "a", cpu__cfs_quota_us="40000", cpu__cfs_period_us="100000",
          cpu__stat="nr_periods 10\nnr_throttled 3\nthrottled_time 123")  # fmt: skip
    host.fake.add(5, cgroup="3:cpu,cpuacct:/a\n")
    assert throttling(host) == Throttling(10, 3, 123, 0.4, "/a")
    write(root / "a", cpu__cfs_quota_us="-1")
    assert throttling(host) == Throttling(10, 3, 123, None)


def test_speed_limits_of_devices_v2(host: Hierarchies) -> None:
    """The innermost one counts; what is "max" is no limit."""
    root = host.mount("cgroup2")
    write(root / "a", io__max="7:0 rbps=9000 wbps=max riops=max wiops=max\n8:16 rbps=max wbps=2000 riops=50 wiops=max")
    write(root / "a/b", io__max="7:0 rbps=5000 wbps=max riops=max wiops=max\n9:1 rbps=max wbps=max riops=max wiops=max")
    host.fake.add(5, cgroup="0::/a/b\n")
    assert Cgroups(host.fake.proc).io_limits("run", "0::/a/b\n") == [
        IoLimitSample("run", 7 << 20, "/a/b", read_bytes=5000),
        IoLimitSample("run", 8 << 20 | 16, "/a", write_bytes=2000, reads=50),
    ]


def test_speed_limits_of_devices_v1(host: Hierarchies) -> None:
    root = host.mount("cgroup", "blkio")
    write(
        root / "a", blkio__throttle__read_bps_device="7:0 5000\n8:0 7000", blkio__throttle__write_iops_device="7:0 30"
    )
    assert Cgroups(host.fake.proc).io_limits("run", "4:blkio:/a\n0::/\n") == [
        IoLimitSample("run", 7 << 20, "/a", read_bytes=5000, writes=30),
        IoLimitSample("run", 8 << 20, "/a", read_bytes=7000),
    ]
    assert Cgroups(host.fake.proc).io_limits("run", "0::/\n") == []


def test_no_cpu_controller_is_unavailable(host: Hierarchies) -> None:
    host.mount("cgroup2")
    host.fake.add(5, cgroup="0::/a\n")
    assert isinstance(throttling(host), Unavailable)


def test_mountinfo_lines() -> None:
    text = (
        "31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n"
        "33 31 0:30 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
        "41 31 0:38 / /sys/fs/cgroup/my\\040unified rw shared:3 master:1 - cgroup2 none rw\n"
        "broken\n1 2 3 - cgroup2\n"
    )
    assert parse_mounts(text) == [
        CgroupMount("/sys/fs/cgroup/cpu,cpuacct", "/", frozenset({"rw", "cpu", "cpuacct"})),
        CgroupMount("/sys/fs/cgroup/my unified", "/", frozenset({""})),
    ]


def test_this_machine() -> None:
    """Whatever cgroups the machine that runs this has: an answer that makes sense."""
    import os

    from trainprobe.collect.procfs import Proc

    sample = nearest("r", Cgroups(Proc()).memory("r", os.getpid()))
    assert sample
    assert sample.limit_bytes
    assert 0 < (sample.used_bytes or 0) <= sample.limit_bytes


@pytest.mark.skipif(os.geteuid() != 0, reason="not root")
def test_a_real_cgroup_with_everything_in_its_name_that_the_kernel_allows() -> None:
    """A user may own a part of the hierarchy. Newlines the kernel refuses, so that /proc/PID/cgroup stays readable."""
    limit, name = 512 << 20, f"{os.getpid()}\"'}}\\{{\x1b[2J\r:0::\u202e \t<script>"
    with pytest.raises(CannotHere, match="Invalid argument"), groups.memory(f"{name}\n0::/", limit):
        pass
    try:
        with groups.memory(name, limit) as made, subprocess.Popen(["sleep", "60"]) as child:
            try:
                (made / "cgroup.procs").write_text(str(child.pid))
                cgroups = Cgroups(Proc())
                found = [one for one in cgroups.memory("r", child.pid) if one.limit == limit]
                place = cgroups.place(child.pid)
            finally:
                child.kill()
                child.wait()
    except CannotHere as reason:
        pytest.skip(str(reason))
    assert [one.place.rpartition("/")[2] for one in found] == [name]
    assert (place.container, place.pod_uid, place.slurm_job) == (None, None, None)


def test_every_limit_of_memory_is_told_with_its_place(host: Hierarchies) -> None:
    root = host.mount("cgroup", "memory")
    write(root / "a", memory__limit_in_bytes=str(4 * GB), memory__usage_in_bytes=str(GB))
    write(root / "a/b", memory__limit_in_bytes=str(2 * GB), memory__usage_in_bytes=str(GB // 2))
    host.fake.add(5, cgroup="4:memory:/a/b\n")
    assert Cgroups(host.fake.proc).memory("r", 5) == [
        LimitSample("r", "memory", GB // 2, 2 * GB, "cgroup", "/a/b"),
        LimitSample("r", "memory", GB, 4 * GB, "cgroup", "/a"),
        LimitSample("r", "memory", 10 * GB, 16 * GB, "host"),
    ]


def test_the_limit_of_processes(host: Hierarchies) -> None:
    root = host.mount("cgroup", "pids")
    write(root / "a", pids__max="100", pids__current="42")
    write(root / "a/b", pids__max="max", pids__current="40")
    host.fake.add(5, cgroup="8:pids:/a/b\n")
    assert Cgroups(host.fake.proc).processes("r", 5) == [LimitSample("r", "pids", 42, 100, "cgroup", "/a")]


@dataclass(frozen=True)
class Trainer:
    pid: int
    run: str = "r"
    role: str = "driver"
    ticks: int = 50
    started_ns: int = 1


class Dying(Proc):
    """A process that begins to exit while it is read: cgroup v1 shows it in the root from then on."""

    def __init__(self, root: Path) -> None:
        super().__init__(str(root), boot_offset_ns=0)
        self.after: Callable[[], None] | None = None

    def stat(self, pid: int) -> Stat | None:
        found = super().stat(pid)
        if self.after is not None:
            self.after()
        return found

    def cgroup(self, pid: int) -> str | None:
        found = super().cgroup(pid)
        if self.after is not None:
            self.after()
        return found


def limits_of(host: Hierarchies, proc: Proc) -> LimitReader:
    return LimitReader(proc, Cgroups(proc), SharedMemoryReader(proc))


def test_a_process_that_is_killed_keeps_the_limit_that_it_is_killed_for(host: Hierarchies) -> None:
    root = host.mount("cgroup", "memory")
    write(root / "job", memory__limit_in_bytes=str(2 * GB), memory__usage_in_bytes=str(GB))
    proc = Dying(host.fake.root)
    limits = limits_of(host, proc)
    alive, exiting = "4:memory:/job\n", "4:memory:/\n"
    host.fake.add(5, cgroup=alive, ticks=50)
    (before,) = [one for one in limits.read([Trainer(5)], 1) if one.scope == "cgroup"]
    assert (before.used, before.limit, before.place) == (GB, 2 * GB, "/job")
    write(root / "job", memory__usage_in_bytes=str(2 * GB))
    proc.after = lambda: host.fake.add(5, cgroup=exiting, ticks=50, flags=0x400004)
    for _ in range(3):  # before, while and after it begins to exit
        (at_the_end,) = [one for one in limits.read([Trainer(5)], 2) if one.scope == "cgroup"]
        assert (at_the_end.used, at_the_end.limit, at_the_end.place) == (2 * GB, 2 * GB, "/job")
    proc.after = None
    host.fake.add(5, cgroup=exiting, ticks=50, state="Z", flags=0x400004)
    assert [one for one in limits.read([Trainer(5)], 3) if one.kind == "memory"] == []


def test_an_exiting_process_with_the_number_of_another_one_has_no_limits(host: Hierarchies) -> None:
    root = host.mount("cgroup", "memory")
    write(root / "job", memory__limit_in_bytes=str(2 * GB), memory__usage_in_bytes=str(GB))
    limits = limits_of(host, host.fake.proc)
    host.fake.add(5, cgroup="4:memory:/job\n", ticks=50)
    assert [one.scope for one in limits.read([Trainer(5)], 1) if one.kind == "memory"] == ["cgroup", "host"]
    host.fake.add(5, cgroup="4:memory:/\n", ticks=51, flags=0x400004)
    assert [one for one in limits.read([Trainer(5)], 2) if one.kind == "memory"] == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a 1\nb 2\n",
        "MemTotal:       24684096 kB\nMemFree: 1 kB\nMemAvailable:   19728244 kB\n",
        "total_inactive_file 5\ninactive_file 7\ninactive_file_more 9",
        "xinactive_file 5\n",
        "inactive_file\n12\n",
        "inactive_file x\n",
        "inactive_file -3\ninactive_file 4\n",
        "anon 3\ninactive_file  44\n",
        "b 2\na \u0664\n",
    ],
)
def test_one_number_is_what_all_numbers_say(text: str) -> None:
    words = (line.split() for line in text.split("\n"))
    keyed = {
        name: int(given)
        for name, given, *_ in filter(lambda line: len(line) > 1, words)
        if given.isascii() and given.isdecimal()
    }
    for name in ("a", "b", "inactive_file", "total_inactive_file", "MemTotal:", "MemAvailable:", "anon"):
        assert number(text, name) in (keyed.get(name), None)
    for name in ("a", "total_inactive_file", "MemTotal:", "MemAvailable:"):
        assert number(text, name) == keyed.get(name)
