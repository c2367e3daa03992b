"""What runs out: told before, explained when it happens, to the rank that it happens to."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.builders.driver import PID, Driver, moment
from trainprobe.causes.limits import oom_kill
from trainprobe.causes.situation import KnownLimits, MemoryGrowth, Situation
from trainprobe.collect.kernel_log import KillLines
from trainprobe.derive.files.saves import KEEP
from trainprobe.derive.trend.forecast import Forecast
from trainprobe.model.cells import Leaf, Region, RowKind
from trainprobe.model.event import CallFailed, Event, OomLogged, ProcessEvent, ProcessEventKind, RunEnded
from trainprobe.model.frame import Frame
from trainprobe.model.moment import NS
from trainprobe.model.report import Host as ReportHost
from trainprobe.model.report import Rank, Report
from trainprobe.model.sample import (
    DescriptorSample,
    Leak,
    LimitSample,
    MemorySample,
    OrphanSample,
    ProcessSample,
    SharedSample,
    SpaceSample,
)
from trainprobe.pipeline import Pipeline
from trainprobe.pipeline.host import HostState
from trainprobe.pipeline.limits import EACH_RANK_NS
from trainprobe.pipeline.supplies import FOLLOWED
from trainprobe.runtime.publishing.publish import LIMIT
from trainprobe.wire.bounded import BoundedReport

RUN = "train.py-0123abcd"
GB = 10**9
WORKER = 2000


class Host:
    """A training that steps, second by second, and what is sampled of it."""

    def __init__(self) -> None:
        self.driver = Driver()
        self.driver.begin()
        self.driver.fork(WORKER)
        self.pipeline = Pipeline()
        self.second()

    def second(self, *events: Event, **samples: Any) -> None:
        self.driver.train(20)
        told = (*self.driver.events, *events)
        self.driver.events.clear()
        self.pipeline.step(Frame(moment(self.driver.now), told, **samples))

    def ramp(self, kind: str, start: float, limit: float, seconds: int, part: float = 0.9, **where: Any) -> None:
        for second in range(int(seconds * part)):
            used = int(start + (limit - start) * second / seconds)
            self.second(limits=(LimitSample(RUN, kind, used, int(limit), **where),))

    @property
    def report(self) -> Report:
        return self.pipeline.report(moment(self.driver.now))

    @property
    def rank(self) -> Rank:
        return self.report.runs[0].ranks[0]

    def end(self, code: int | None = 1, signal: int | None = None) -> None:
        self.driver.exit(code, signal)
        self.second_of_end()

    def second_of_end(self) -> None:
        told = tuple(self.driver.events)
        self.driver.events.clear()
        self.pipeline.step(Frame(moment(self.driver.now), told))


def sample(pid: int, role: str, pss: int, **more: Any) -> ProcessSample:
    return ProcessSample(pid, 1, role, 1, rss_bytes=pss, pss_bytes=pss, **more)


def test_memory_that_grows_is_told_with_the_time_left_and_who_grows() -> None:
    host = Host()
    for second in range(90):
        used = 2 * GB + second * 0.06 * GB
        processes = (sample(PID, "driver", GB), sample(WORKER, "worker", int(used) - GB, private_bytes=int(used)))
        limits = (
            LimitSample(RUN, "memory", int(used), 10 * GB, "cgroup", "/job"),
            LimitSample(RUN, "memory", int(20 * GB + used), 64 * GB, "host"),
        )
        host.second(limits=limits, processes=processes if second % 5 == 0 else ())
    (warning,) = host.rank.warnings
    assert warning.cause == "oom_kill"
    assert warning.eta_seconds is not None
    left = (10 - 2 - 89 * 0.06) / 0.06
    assert abs(warning.eta_seconds - left) < 0.1 * left + 3
    assert "the cgroup /job" in warning.summary
    assert "the worker" in warning.summary, "who grows"
    assert any("copy-on-write" in line for line in warning.advice)
    assert host.rank.counters.memory_exhaustion_seconds == warning.eta_seconds
    for _ in range(40):
        host.second(limits=(LimitSample(RUN, "memory", 3 * GB, 10 * GB, "cgroup", "/job"),))
    (warning,) = host.rank.warnings
    assert warning.eta_seconds is None
    assert "did not go on" in warning.summary
    assert host.rank.counters.memory_exhaustion_seconds is None


@pytest.mark.parametrize(("batch", "worth"), [(8_000, False), (40_000_000, True)])
def test_what_frees_next_to_nothing_is_no_advice(batch: int, worth: bool) -> None:
    limit = LimitSample(RUN, "memory", 8 * GB, 10 * GB, "cgroup", "/job")
    key = ("memory", "/job", 0)
    growth = [MemoryGrowth("driver", 1, 7 * GB, 1e8, 1e8), MemoryGrowth("worker", 3, GB, 0.0, 0.0)]
    limits = KnownLimits({key: limit}, {key: Forecast(20, 1e8, 60)})
    told = Situation(1, PID, limits=limits, growth=growth, workers=3, shm_per_batch=batch)
    (notice,) = oom_kill.check(told)
    assert any(line.id == oom_kill.PREFETCH_LOWER.id for line in notice.advice) == worth
    assert oom_kill.DRIVER_KEEPS() in notice.advice


@pytest.mark.parametrize("workers", [0, 3])
def test_memory_is_saved_on_workers_only_where_there_are_some(workers: int) -> None:
    limits = KnownLimits(
        {("memory", "/job", 0): LimitSample(RUN, "memory", 8 * GB, 10 * GB, "cgroup", "/job")},
        {("memory", "/job", 0): Forecast(20, 1e8, 60)},
    )
    (notice,) = oom_kill.check(Situation(1, PID, limits=limits, workers=workers))
    assert any("workers" in str(line) for line in notice.advice) == bool(workers)


def test_swapped_pages_that_forked_processes_share_count_once() -> None:
    """1 GB of the driver's was swapped out before the fork: /proc tells it of both, and one half of it each shares."""
    host = Host()
    swapped: dict[str, Any] = {"swap_bytes": GB, "swap_share_bytes": GB // 2, "private_bytes": 2 * GB}
    host.second(processes=(sample(PID, "driver", 3 * GB, **swapped), sample(WORKER, "worker", 2 * GB, **swapped)))
    assert host.rank.memory.taken_peak_bytes == 6 * GB
    assert host.rank.memory.worker_private_bytes == 2.5 * GB
    host = Host()
    told = {**swapped, "swap_read_bytes": GB}
    host.second(processes=(sample(PID, "driver", 3 * GB, **told), sample(WORKER, "worker", 2 * GB, **told)))
    assert host.rank.memory.worker_private_bytes == 2 * GB, "what is swapped they share"


def test_readings_from_before_and_after_a_fork_are_not_added_up() -> None:
    """The driver had 3 GB for itself; with the worker it has 1.5 GB of them, and so has the worker."""
    host = Host()
    before, after = host.driver.now - 60 * NS, host.driver.now
    worker = sample(WORKER, "worker", 2 * GB, pss_read_ns=after)
    host.second(processes=(sample(PID, "driver", 3 * GB, pss_read_ns=before), worker))
    assert host.rank.memory.taken_peak_bytes is None
    host.second(processes=(sample(PID, "driver", 3 * GB // 2, pss_read_ns=after), worker))
    assert host.rank.memory.taken_peak_bytes == 3.5 * GB


def test_what_others_hold_of_its_limit_is_told_as_of_when_its_workers_lived() -> None:
    host = Host()
    used = MemorySample(RUN, 7 * GB, 10 * GB, "cgroup")
    host.second(memory=(used,), processes=(sample(PID, "driver", 3 * GB), sample(WORKER, "worker", 2 * GB)))
    host.second(memory=(used,), processes=(sample(PID, "driver", 3 * GB), sample(WORKER, "worker", 2 * GB)))
    assert host.rank.memory.others_bytes == 2 * GB
    host.driver.die(WORKER)
    host.second(processes=(sample(PID, "driver", 3 * GB),))
    assert host.rank.memory.others_bytes == 2 * GB


def test_a_victim_of_its_container_and_one_of_the_host() -> None:
    for scope, group, words, log_first in (
        ("cgroup", "/job", "the limit of its cgroup /job, 10 GB,", False),
        ("host", "", "the host's memory", False),
        ("cgroup", "/job", "the limit of its cgroup /job, 10 GB,", True),
        ("host", "", "the host's memory", True),
    ):
        host = Host()
        host.second(
            limits=(
                LimitSample(RUN, "memory", 9 * GB, 10 * GB, "cgroup", "/job"),
                LimitSample(RUN, "memory", 30 * GB, 64 * GB, "host"),
            ),
            processes=(sample(PID, "driver", 3 * GB), sample(WORKER, "worker", 6 * GB)),
        )
        told = OomLogged(host.driver.now, WORKER, scope, group)
        if log_first:
            host.second(told)
        killed = ProcessEvent(ProcessEventKind.OOM, host.driver.now, WORKER, anonymous_bytes=6 * GB, shared_bytes=0)
        host.second(killed, *(() if log_first else (told,)))
        later = MemorySample(RUN, GB, 2 * GB, "host" if scope == "cgroup" else "cgroup")
        host.second(memory=(later,))
        host.driver.die(WORKER, None, 9)
        host.end()
        rank = host.rank
        assert rank.memory.limit_scope == scope, "whatever is the nearest limit after the kill"
        (warning,) = [w for w in rank.warnings if w.cause == "oom_kill"]
        assert words in warning.summary
        assert f"worker {WORKER}" in warning.summary
        assert {e.pid: e.value for e in warning.evidence if "held (PSS" in e.what} == {WORKER: 6 * GB, PID: 3 * GB}
        assert (rank.verdict.kind, rank.verdict.cause) == ("end", "oom_kill")
        assert host.report.runs[0].oom_kills == {scope: 1}


def test_a_container_that_is_killed_as_a_whole_is_no_host_without_memory() -> None:
    """However full the host is: the kernel's lines name each of its processes once or more, and the limit."""
    host, lines = Host(), KillLines()
    host.second(
        limits=(
            LimitSample(RUN, "memory", 92 * GB // 10, 10 * GB, "cgroup", "/job"),
            LimitSample(RUN, "memory", 639 * GB // 10, 64 * GB, "host"),
        ),
        processes=(sample(PID, "driver", 3 * GB), sample(WORKER, "worker", 6 * GB)),
    )
    now = host.driver.now
    told = [
        f"oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=0,oom_memcg=/job,task_memcg=/job,task=pt,pid={WORKER},uid=0",
        f"Memory cgroup out of memory: Killed process {WORKER} (python) total-vm:1kB, anon-rss:1kB",
        "Tasks in /job are going to be killed due to memory.oom.group set",
        f"Memory cgroup out of memory: Killed process {WORKER} (python) total-vm:1kB, anon-rss:1kB",
        f"Memory cgroup out of memory: Killed process {PID} (python) total-vm:1kB, anon-rss:1kB",
    ]
    events = [ProcessEvent(ProcessEventKind.OOM, now, pid, anonymous_bytes=GB) for pid in (WORKER, PID)]
    host.second(*events, *(found for line in told if (found := lines.add_line(line, now)) is not None))
    host.driver.die(WORKER, None, 9)
    host.end(None, 9)
    happened = [w.summary for w in host.rank.warnings if w.cause == "oom_kill"]
    assert len(happened) == 2
    assert all("the limit of its cgroup /job, 10 GB, was reached" in summary for summary in happened)
    assert host.report.runs[0].oom_kills == {"cgroup": 2}


def test_a_container_that_the_command_entered_is_its_label() -> None:
    host = Host()
    assert host.report.runs[0].labels["container"] is None
    host.second(limits=(LimitSample(RUN, "shm", 1, GB, "3f2a", "0:40"),))
    assert host.report.runs[0].labels["container"] == "3f2a"
    host.second(limits=(LimitSample(RUN, "shm", 1, GB, "host", "0:27"),))
    assert host.report.runs[0].labels["container"] == "3f2a"


def test_who_is_killed_by_a_person_is_no_victim_of_want() -> None:
    host = Host()
    host.second(CallFailed(host.driver.now, PID, PID, "openat", 24))
    now = host.driver.now
    sent = ProcessEvent(ProcessEventKind.SIGNAL, now, PID, signal=9, sender_pid=77, sender_comm="bash", by_user=True)
    host.second(sent)
    host.end(None, 9)
    assert host.rank.verdict.cause is None
    assert "signal 9 by bash (77)" in host.rank.verdict.summary


def test_descriptors_are_told_from_shared_memory_and_the_other_way_round() -> None:
    shm_free = LimitSample(RUN, "shm", GB, 16 * GB, "host", "0:25", PID)
    shm_full = LimitSample(RUN, "shm", 63_000_000, 64_000_000, "c0ffee" * 10, "0:99", PID)
    fds_free = LimitSample(RUN, "fds", 30, 1024, pid=PID)
    fds_full = LimitSample(RUN, "fds", 1024, 1024, pid=PID)
    kinds = DescriptorSample(PID, 1024, {"shared memory": 900, "socket": 100, "file": 24}, 1024)

    host = Host()
    cut = CallFailed(host.driver.now, PID, PID, "recvmsg", 0)
    host.second(cut, limits=(shm_free, fds_full), descriptors=(kinds,))
    host.end()
    (warning,) = host.rank.warnings
    assert warning.cause == "fd_exhaustion"
    assert "1024 of 1024" in warning.summary
    assert host.rank.fds.open_peak == 1024, "the report does not say fewer elsewhere"
    assert "87 % of them tensors in shared memory" in warning.summary
    assert any("/dev/shm is not the reason: 1 GB of 16 GB used" in e.what for e in warning.evidence)
    assert any("file_system" in line for line in warning.advice)
    assert host.rank.verdict.cause == "fd_exhaustion"
    assert host.rank.exit is not None
    assert host.rank.exit.reason == "exit code 1 after fd_exhaustion"

    host = Host()
    full = CallFailed(host.driver.now, WORKER, WORKER, "fallocate", 28, 1, 5, 6, True, "/dev/shm/torch_2000_1")
    host.second(full, limits=(shm_full, fds_free))
    host.driver.die(WORKER, 1)
    host.end()
    assert host.rank.verdict.cause == "shm_exhaustion"
    warning = next(w for w in host.rank.warnings if w.cause == "shm_exhaustion")
    assert "of container c0ffeec0ffee" in warning.summary
    assert any("--shm-size" in line for line in warning.advice)
    assert not any("prefetch_factor 2" in line for line in warning.advice), "what a batch takes is not known"
    assert host.rank.counters.shm_errors == 1


@pytest.mark.parametrize("killed", [False, True])
def test_a_batch_that_had_no_room_in_shared_memory_is_what_the_training_waits_for(killed: bool) -> None:
    """The worker's thread that sends batches prints the error and goes on; the DataLoader waits for ever."""
    host = Host()
    shm = LimitSample(RUN, "shm", 7_650_000, 12_600_000, "c0ffee" * 10, "0:99", PID)
    full = CallFailed(host.driver.now, WORKER, WORKER, "fallocate", 28, 1, 99, 6, True, "/dev/shm/torch_2000_1")
    host.second(full, limits=(shm,))
    for _ in range(60):
        host.driver.spend(0.5, Leaf.PIPE_READ, Region.FETCH)
        told = tuple(host.driver.events)
        host.driver.events.clear()
        threads = (host.driver.sample(Leaf.PIPE_READ),)
        host.pipeline.step(Frame(moment(host.driver.now), told, threads=threads))
    if killed:
        host.end(None, 15)
    verdict = host.rank.verdict
    assert (verdict.kind, verdict.cause) == ("stall", "shm_exhaustion")
    assert verdict.seconds == pytest.approx(30, abs=1)
    assert verdict.summary.startswith(
        "worker 2000 ran out of /dev/shm of container c0ffeec0ffee: fallocate failed with"
    )
    assert ("until it was killed" if killed else "so far") in verdict.summary
    assert list(host.rank.lost) == ["worker_hang"]
    assert host.rank.stalls[-1].summary.startswith("worker 2000 could not send a batch (fallocate failed)")


def test_a_worker_that_has_no_room_on_another_tmpfs_has_sent_its_batches() -> None:
    host = Host()
    shm = LimitSample(RUN, "shm", 1_000_000, 64_000_000, "host", "0:25", PID)
    host.second(limits=(shm,))
    full = CallFailed(host.driver.now, WORKER, WORKER, "write", 28, 1, 60, 6, True, "/tmp/cache.bin")
    host.second(full, limits=(shm,))
    host.driver.spend(6.0, Leaf.PIPE_READ, Region.FETCH)
    host.second()
    assert host.rank.stalls[-1].cause != "worker_hang"


@pytest.mark.parametrize(("minor", "cause"), [(60, "disk_full"), (25, "shm_exhaustion")])
def test_only_the_tmpfs_at_dev_shm_is_shared_memory(minor: int, cause: str) -> None:
    host = Host()
    shm = LimitSample(RUN, "shm", 98_300, 25 * GB, "host", "0:25", PID)
    host.second(CallFailed(host.driver.now, PID, PID, "write", 28, 1, minor, 6, True, "/tmp/cache.bin"), limits=(shm,))
    (warning,) = host.rank.warnings
    assert warning.cause == cause
    assert host.rank.counters.shm_errors == (cause == "shm_exhaustion")
    if cause == "disk_full":
        assert "/tmp/cache.bin failed with ENOSPC (its file system is full: a tmpfs" in warning.summary
        assert any("sizeLimit" in line for line in warning.advice)


def test_a_tmpfs_failure_without_a_device_goes_by_its_path() -> None:
    for path, cause in (("/tmp/cache.bin", "disk_full"), ("/dev/shm/torch_2000_1", "shm_exhaustion")):
        host = Host()
        host.second(CallFailed(host.driver.now, PID, PID, "write", 28, 1, 0, 0, True, path))
        assert [warning.cause for warning in host.rank.warnings] == [cause]


def test_evidence_has_the_number_of_its_sentence() -> None:
    """What the descriptors are is looked at seldom: 106 then, 240 now."""
    host = Host()
    host.ramp("fds", 100, 256, 60, 0.9, pid=PID)
    host.second(descriptors=(DescriptorSample(PID, 106, {"socket": 100, "file": 6}, 106),))
    for _ in range(3):
        host.second(limits=(LimitSample(RUN, "fds", 240, 256, pid=PID),))
    (warning,) = host.rank.warnings
    told = {evidence.what: evidence.value for evidence in warning.evidence}
    assert f"has {told['open file descriptors']} of 256" in warning.summary
    assert told["open file descriptors"] == 240


def test_how_much_shared_memory_the_batches_need_is_said_in_numbers() -> None:
    host, batch = Host(), 7_700_000
    host.driver.batch = batch
    for _ in range(3):
        host.second()
    assert host.rank.memory.shm_bytes_per_batch == batch
    shm = LimitSample(RUN, "shm", 63_000_000, 64_000_000, "host", "0:25", PID)
    host.second(CallFailed(host.driver.now, WORKER, WORKER, "fallocate", 28, 1, 25, 6, True), limits=(shm,))
    (warning,) = host.rank.warnings
    assert any("a batch is 7.7 MB" in line for line in warning.advice)
    assert any("needs 15.4 MB with prefetch_factor 2, 30.8 MB with 4 (num_workers 1)" in a for a in warning.advice)
    assert any(e.what == "shared memory of one batch" and e.value == batch for e in warning.evidence)


def test_a_message_cut_off_while_descriptors_abound_is_none_of_ours() -> None:
    host = Host()
    fds = LimitSample(RUN, "fds", 30, 1024, pid=PID)
    host.second(CallFailed(host.driver.now, PID, PID, "recvmsg", 0), limits=(fds,))
    assert host.rank.warnings == []


def test_a_bus_error_counts_where_shared_memory_is_full() -> None:
    for used, told in ((63, ["shm_exhaustion"]), (3, [])):
        host = Host()
        shm = LimitSample(RUN, "shm", used * 10**6, 64 * 10**6, "host", "0:25", PID)
        bus = ProcessEvent(ProcessEventKind.SIGNAL, host.driver.now, WORKER, signal=7)
        host.second(bus, limits=(shm,))
        assert [w.cause for w in host.rank.warnings] == told


def test_descriptors_that_grow_are_told_with_their_kind() -> None:
    host = Host()
    host.ramp("fds", 100, 1024, 60, 0.7, pid=PID)
    host.second(descriptors=(DescriptorSample(PID, 700, {"socket": 600, "file": 100}, 700),))
    for _ in range(3):
        host.second(limits=(LimitSample(RUN, "fds", 760, 1024, pid=PID),))
    (warning,) = host.rank.warnings
    assert "% of them sockets" in warning.summary
    assert warning.eta_seconds is not None
    assert host.rank.counters.fd_exhaustion_seconds == warning.eta_seconds


@pytest.mark.parametrize("alive", [True, False])
def test_what_was_read_after_a_worker_had_gone_says_nothing_of_the_room_that_it_lacked(alive: bool) -> None:
    """Its files in /dev/shm go with it: 45 kB of 29 MB would be in use when it ran out of room."""
    host = Host()
    fds = [LimitSample(RUN, "fds", 50, 1024, pid=PID), LimitSample(RUN, "fds", 53, 1024, pid=WORKER)]
    shm = LimitSample(RUN, "shm", 28_000_000 if alive else 45_056, 29_360_128, "host", "0:25", PID)
    full = CallFailed(host.driver.now, WORKER, WORKER, "fallocate", 28, 1, 25, 6, True, "/dev/shm/torch_2000_1")
    host.second(full, limits=(shm, *fds[: 1 + alive]))
    (warning,) = (one for one in host.rank.warnings if one.cause == "shm_exhaustion")
    told = {one.message.id: one for one in warning.evidence if one.message is not None}
    assert ("are used" in warning.summary, "shm_exhaustion.used" in told) == (alive, alive)
    assert told["shm_exhaustion.size"].value == 29_360_128
    assert told["shm_exhaustion.fds_are_not"].pid == (WORKER if alive else PID)


@pytest.mark.parametrize("apart", [1_000_000, 5 * EACH_RANK_NS])
def test_what_a_run_ends_by_is_told_however_soon_after_another_failure(apart: int) -> None:
    host = Host()
    shm = LimitSample(RUN, "shm", 99, 100, "host", "0:25")
    host.second(CallFailed(host.driver.now, WORKER, WORKER, "openat", 2), limits=(shm,))
    host.driver.spend(apart / NS)
    host.driver.row(RowKind.EXIT)
    at = host.driver.now
    bus = ProcessEvent(ProcessEventKind.SIGNAL, at, WORKER, signal=7)
    host.driver.events += [bus, ProcessEvent(ProcessEventKind.EXIT, at, WORKER, PID, "pt_data_worker", None, 7)]
    host.driver.events += [ProcessEvent(ProcessEventKind.EXIT, at, PID, 1, "python", 1), RunEnded(RUN, at)]
    host.second_of_end()
    assert host.rank.verdict.summary.startswith("worker 2000 ran out of /dev/shm")


@pytest.mark.parametrize("files", [2, KEEP, 2000])
def test_a_save_of_several_files_needs_room_for_all_of_them(files: int) -> None:
    """More than are kept, too, and behind an earlier save."""
    host = Host()
    sizes = [random.randrange(10**8, 10**9) // files for _ in range(files)]
    for save in range(2):
        for number, size in enumerate(sizes):
            host.driver.write(
                f"/ckpt/checkpoint-{save}/{number}.bin", size, 0.4 / files, ino=10_000 * save + 10 + number
            )
        host.second()
    host.second(spaces=(SpaceSample(PID, "/ckpt/checkpoint-1", sum(sizes), 9000),))
    host.second()
    assert host.rank.warnings == [], "it fits"
    assert host.rank.counters.checkpoint_last_bytes == sum(sizes)
    assert host.rank.counters.checkpoint_last_seconds == pytest.approx(0.4, abs=0.1)
    host.second(spaces=(SpaceSample(PID, "/ckpt/checkpoint-1", sum(sizes) - 1, 9000),))
    for _ in range(3):
        host.second()
    (coming,) = host.rank.warnings
    assert "will not fit" in coming.summary


def test_the_disk_is_full_or_too_full_for_the_next_save() -> None:
    host = Host()
    size = random.randrange(10**8, 10**9)
    host.driver.write("/ckpt/step-1.pt", size, 0.2)
    host.second(spaces=(SpaceSample(PID, "/ckpt", 2 * size, 1000),))
    host.second()
    assert host.rank.warnings == [], "it fits"
    assert host.rank.counters.checkpoint_available_bytes == 2 * size
    host.second(spaces=(SpaceSample(PID, "/ckpt", size - 1, 1000),))
    for _ in range(3):
        host.second()
    (coming,) = host.rank.warnings
    assert "will not fit" in coming.summary
    failed = CallFailed(host.driver.now, PID, PID, "writev", 28, 1, 1, 8, False, "/ckpt/step-2.pt")
    host.driver.write("/ckpt/step-2.pt", size // 2, 0.2, ino=8)
    host.second(failed)
    happened = host.rank.warnings[-1]
    assert (happened.cause, happened.evidence[0].path) == ("disk_full", "/ckpt/step-2.pt")
    assert "do not resume" in happened.summary


def test_no_inode_is_left_for_the_next_save() -> None:
    host = Host()
    host.driver.write("/ckpt/step-1.pt", 10**8, 0.2)
    host.second(spaces=(SpaceSample(PID, "/ckpt", 10**12, 1),))
    for _ in range(3):
        host.second()
    assert "1 inode" in host.rank.warnings[0].summary


def test_no_thread_could_be_started() -> None:
    host = Host()
    pids = LimitSample(RUN, "pids", 100, 100, "cgroup", "/job")
    threads = (sample(PID, "driver", GB, threads=80), sample(WORKER, "worker", GB, threads=20))
    host.second(CallFailed(host.driver.now, WORKER, WORKER, "clone3", 11), limits=(pids,), processes=threads)
    (warning,) = host.rank.warnings
    assert warning.cause == "pid_exhaustion"
    assert "100 of 100 threads and processes in the cgroup /job" in warning.summary
    assert [(e.what, e.value) for e in warning.evidence if e.what.startswith("threads of the training")] == [
        (f"threads of the training (pid {PID})", 80)
    ]
    assert "fewer threads per worker" in warning.advice[0]


def test_threads_of_a_training_without_workers_are_its_own() -> None:
    host = Host()
    host.driver.die(WORKER)
    pids = LimitSample(RUN, "pids", 40, 40, "cgroup", "/job")
    threads = (sample(PID, "driver", GB, threads=31),)
    host.second(CallFailed(host.driver.now, PID, PID, "clone3", 11), limits=(pids,), processes=threads)
    (warning,) = host.rank.warnings
    assert warning.advice[0].startswith(f"the training (pid {PID}) has 31 threads: let a pool of them do the work")


def test_what_dead_processes_left_in_shared_memory() -> None:
    host = Host()
    leaks = (Leak(5, 3, 3 * GB, "torch_5_1"), Leak(6, 1, GB, "torch_6_9"))
    host.second(shared=(SharedSample("0:25", "host", 8 * GB, 5 * GB, leaks, (RUN,)),))
    for _ in range(3):
        host.second()
    (warning,) = host.rank.warnings
    assert warning.cause == "shm_leak"
    assert "4 GB in 4 files" in warning.summary
    assert "(5, 6)" in warning.summary
    assert host.report.shared_memory[0].leaked_bytes == 4 * GB


def test_what_users_leave_in_shared_memory_takes_a_part_of_the_report_and_no_more() -> None:
    """As many runs as there may be, each with a /dev/shm of its own that is mounted anew again and again."""
    host, left = (
        HostState(ReportHost()),
        tuple(Leak(4_000_000_000 + n, 1, n, f"torch_{n}_{'x' * 240}") for n in range(2000)),
    )
    orphans = tuple(OrphanSample(4_000_000 + n, 1, None, "pt_data_worker", GB, GB, 99) for n in range(256))
    for device in range(3):
        shared = [SharedSample(f"{device}:{n}", "c" * 64, GB, GB, left, (f"{n}",), 3, 5, 7) for n in range(512)]
        host.add_frame(Frame(moment(device * NS), shared=tuple(shared), orphans=orphans))
    report = host.report(moment(NS), [])
    assert [one.device for one in report.shared_memory] == [f"2:{n}" for n in range(512)]
    assert report.shared_memory[0].leaked_bytes == sum(range(2000)) + 7
    assert report.shared_memory[0].leaked[0].value == 1999, "the largest"
    assert len(BoundedReport(report).encode(1 << 30)) < LIMIT / 4


@pytest.mark.parametrize("depth", [5, 10])
@pytest.mark.parametrize("outermost_first", [False, True])
@pytest.mark.parametrize(("gb_per_second", "seconds"), [(0.5, 60), (3.5, 12)])
def test_nested_cgroups_that_fill_up_together_are_all_foreseen(
    depth: int, outermost_first: bool, gb_per_second: float, seconds: int
) -> None:
    """Within one reading those that are read first have grown more than the others."""
    host, levels = Host(), range(depth)
    for second in range(seconds):
        used = [int(GB * (16 + gb_per_second * second + n / 50)) for n in levels]
        read = [LimitSample(RUN, "memory", used[n], 64 * GB, "cgroup", "/a" * (depth - n)) for n in levels]
        host.second(limits=tuple(read[::-1] if outermost_first else read))
    supplies = host.pipeline.runs[RUN].limits.supplies
    assert len(supplies.forecasts) == FOLLOWED
    assert {len(series.levels[0].points) for series in supplies._series.values()} == {seconds}


def test_of_nested_cgroups_the_fullest_are_followed() -> None:
    """And the host, whichever is fuller."""
    host, depth = Host(), 30
    for second in range(40):
        nested = [LimitSample(RUN, "memory", GB * (2 + n), 64 * GB, "cgroup", f"/{n}") for n in range(depth)]
        filling = LimitSample(RUN, "memory", GB * (8 + 2 * second), 100 * GB, "cgroup", "/filling")
        host.second(limits=(*nested, filling, LimitSample(RUN, "memory", 12 * GB, 64 * GB, "host")))
    supplies = host.pipeline.runs[RUN].limits.supplies
    assert {key[1] for key in supplies._series} == {"", "/filling", *(f"/{n}" for n in range(depth - 3, depth))}
    assert len(supplies.latest) >= depth + 2
    (warning,) = host.rank.warnings
    assert "/filling" in warning.summary


def test_workers_that_outlive_their_trainer() -> None:
    host = Host()
    assert host.report.orphans is None, "nobody looked"
    host.end(None, 9)
    later = host.driver.now + 20 * NS
    orphans = (OrphanSample(WORKER, 1, PID, "pt_data_worker", GB, 10**8, 2), OrphanSample(9, 1, None, "x", GB, None, 0))
    host.pipeline.step(Frame(moment(later), orphans=orphans))
    (warning,) = [w for w in host.rank.warnings if w.cause == "orphan_workers"]
    assert f"worker {WORKER} has outlived the trainer and holds 1 GB, and 1 of them a GPU" in warning.summary
    assert [orphan.pid for orphan in host.report.orphans or []] == [WORKER, 9]


def test_a_limit_that_fails_in_a_loop_is_one_warning() -> None:
    host = Host()
    for count in (1, 60, 130):
        host.second(CallFailed(host.driver.now, PID, PID, "accept4", 24, count))
    assert len(host.rank.warnings) == 1
    assert host.rank.totals.warnings == 1
    assert host.rank.counters.fd_errors == {"EMFILE": 130}
