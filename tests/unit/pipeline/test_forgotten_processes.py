"""Of processes that are gone so much is kept as the rules need, however many a run starts; sums go on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.builders.driver import PID, Driver
from tests.unit.pipeline.test_limits import RUN, Host, sample
from trainprobe.causes.situation import Notice
from trainprobe.model.cause import Cause
from trainprobe.model.cells import Level
from trainprobe.model.event import CallFailed, Event, OomLogged, ProcessEvent, ProcessEventKind, RankSeen
from trainprobe.model.message import template
from trainprobe.model.sample import DescriptorSample, LimitSample, SpaceSample
from trainprobe.pipeline import kills, limits, notices
from trainprobe.pipeline.rank import lives, memory
from trainprobe.pipeline.rank.state import RankState
from trainprobe.pipeline.run import state as state_of_run
from trainprobe.pipeline.run.state import RunState
from trainprobe.pipeline.supplies import RoleMemory

CHILD = 5000
MANY = 600
HAPPENED = template("test.happened", "it happened")


def state(host: Host) -> tuple[RunState, RankState]:
    (run,) = host.pipeline.runs.values()
    (rank,) = run.ranks
    return run, rank


def child(host: Host, pid: int, *, helper: bool = True, signal: int | None = None, code: int | None = 0) -> None:
    """A child that is sampled, and then ends."""
    driver = host.driver
    driver.fork(pid)
    if helper:
        driver.events.append(ProcessEvent(ProcessEventKind.EXEC, driver.now, pid, PID, "sleep", command=("sleep", "1")))
    thread = replace(driver.sample(), pid=pid, tid=pid, level=Level.COARSE)
    process = sample(pid, "helper", 1000, open_fds=pid % 100, max_fds=100)
    host.second(threads=(thread,), processes=(process,))
    driver.die(pid, code if signal is None else None, signal, sender=1 if signal else None)


def test_of_helpers_that_end_little_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "ENDED", 10)
    host = Host()
    for pid in range(CHILD, CHILD + 100):
        child(host, pid, signal=9)
    host.second()
    _, rank = state(host)
    assert not rank.open.worker_samples
    assert len(rank.memory.processes) <= 11
    assert rank.known(CHILD + 99), "of what fails late the process is known"
    assert not rank.known(CHILD)
    workers = rank.lives.workers
    assert not workers._signals
    assert host.rank.fds.limit == 100


def test_the_latest_deaths_are_kept_and_all_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lives, "DEATHS", 10)
    host = Host()
    for pid in range(CHILD, CHILD + 30):
        child(host, pid, helper=False, code=1)
    host.second()
    _, rank = state(host)
    assert [death.pid for death in rank.lives.deaths] == list(range(CHILD + 20, CHILD + 30))
    assert host.rank.totals.warnings == 30


def test_the_latest_victims_are_kept_and_all_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kills, "VICTIMS", 10)
    host = Host()
    held = [sample(pid, "helper", pid) for pid in range(8000, 8020)]
    for one in held:
        host.driver.fork(one.pid)
    host.second(processes=tuple(held))
    for pid in range(CHILD, CHILD + 30):
        host.driver.fork(pid)
        killed: list[Event] = [
            ProcessEvent(ProcessEventKind.OOM, host.driver.now, pid, anonymous_bytes=10),
            OomLogged(host.driver.now, pid, "cgroup", "/job"),
        ]
        host.second(*killed)
        host.driver.die(pid, None, 9)
    host.second()
    run, _ = state(host)
    assert [victim.event.pid for victim in run.limits.kills.victims] == list(range(CHILD + 20, CHILD + 30))
    assert max(len(victim.processes) for victim in run.limits.kills.victims) <= 6
    assert host.report.runs[0].oom_kills == {"cgroup": 30}
    assert host.rank.totals.warnings == 30


@pytest.mark.parametrize("order", ["victims first", "log first", "in turn", "no log"])
def test_a_container_that_is_killed_as_a_whole_is_counted_as_a_whole(order: str) -> None:
    host, killed = Host(), range(CHILD, CHILD + 200)
    for pid in killed:
        host.driver.fork(pid)
    host.second(limits=(LimitSample(RUN, "memory", 99 if order == "no log" else 50, 100, "cgroup", "/job"),))
    victims: list[Event] = [ProcessEvent(ProcessEventKind.OOM, host.driver.now, pid) for pid in killed]
    log: list[Event] = [OomLogged(host.driver.now, pid, "cgroup", "/job") for pid in killed]
    if order == "in turn":
        host.second(*[event for pair in zip(victims, log) for event in pair])
    else:
        for events in {"victims first": (victims, log), "log first": (log, victims), "no log": (victims,)}[order]:
            host.second(*events)
    host.second(*log)
    run, _ = state(host)
    assert host.report.runs[0].oom_kills == {"cgroup": 200}
    assert len(run.limits.kills.victims) == kills.VICTIMS
    assert not run.limits.kills._unnamed


def test_of_victims_whose_limit_is_never_known_few_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("VICTIMS", "UNNAMED", "LINES"):
        monkeypatch.setattr(kills, name, 10)
    host, later = Host(), 2 * kills.SAME_KILL_NS
    for pid in range(CHILD, CHILD + 50):
        host.driver.fork(pid)
        host.second(ProcessEvent(ProcessEventKind.OOM, host.driver.now, pid), OomLogged(host.driver.now, 1, "host"))
    host.second(*[OomLogged(host.driver.now + later, pid, "cgroup", "/job") for pid in range(CHILD + 30, CHILD + 40)])
    run, _ = state(host)
    assert run.limits.kills.count == 50
    assert run.limits.kills.by_scope() == {}, "a pid that came again"
    assert len(run.limits.kills.victims) == len(run.limits.kills._unnamed) == len(run.limits.kills._lines) == 10


def test_failures_of_many_processes_are_counted_and_few_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "COUNTS", 10)
    monkeypatch.setattr(memory, "ENDED", 10)
    host = Host()
    for pid in range(CHILD, CHILD + 40):
        child(host, pid)
        host.driver.events.insert(-1, CallFailed(host.driver.now, pid, pid, "openat", 24, count=2))
        shm = CallFailed(host.driver.now, pid, pid, "ftruncate", 28, count=3, tmpfs=True, path="/dev/shm/" + "x" * 4000)
        host.driver.events.insert(-1, shm)
    host.second()
    run, _ = state(host)
    assert len(run.limits.counts) == 10
    assert host.rank.counters.fd_errors == {"EMFILE": 80}
    assert host.rank.counters.shm_errors == 120


def test_a_process_that_fails_again_after_many_others_is_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "COUNTS", 10)
    host, others = Host(), range(CHILD, CHILD + 10)

    def fail(count: int, *pids: int) -> dict[str, int]:
        host.second(*[CallFailed(host.driver.now, pid, pid, "openat", 24, count=count) for pid in pids])
        return host.rank.counters.fd_errors

    for pid in others:
        host.driver.fork(pid)
    assert fail(100, PID) == {"EMFILE": 100}
    assert fail(1, *others) == {"EMFILE": 110}
    assert fail(101, PID) == {"EMFILE": 111}
    assert fail(2, *others) == {"EMFILE": 121}
    assert fail(3, PID) == {"EMFILE": 124}, "the kernel has forgotten it and counts anew"
    for pid in range(CHILD + 100, CHILD + 150):
        host.driver.fork(pid)
        fail(1, pid)
    run, _ = state(host)
    assert len(run.limits._further._known) == len(run.limits.counts) == 10
    assert host.rank.counters.fd_errors == {"EMFILE": 174}


def test_of_what_is_known_by_pid_or_path_the_latest_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name in ((limits, "SPACES"), (state_of_run, "DESCRIPTORS"), (limits, "BUS_ERRORS")):
        monkeypatch.setattr(module, name, 10)
    host = Host()
    for at in range(30):
        host.driver.fork(CHILD + at)
        host.driver.signal(7, 0, "", by_user=False, pid=CHILD + at)
        room = (SpaceSample(PID, "/out/first", 10**12), SpaceSample(PID, f"/out/{at}", 10**12))
        host.second(spaces=room, descriptors=(DescriptorSample(CHILD + at, 10),))
    run, _ = state(host)
    assert set(run.limits.spaces) == {"/out/first", *(f"/out/{at}" for at in range(21, 30))}
    assert list(run.limits.descriptors) == list(range(CHILD + 20, CHILD + 30))
    assert len(run.limits.bus_errors) == 10


def test_drivers_that_made_room_leave_nothing_in_the_limits() -> None:
    host = Host()
    run, _ = state(host)
    for pid in range(CHILD, CHILD + 40):
        run.limits._roles[pid, "driver"] = RoleMemory()
    host.second(limits=(LimitSample(RUN, "fds", 1, 100, pid=PID),))
    assert {driver for driver, _ in run.limits._roles} <= {PID}


def test_a_notice_that_made_room_is_no_news() -> None:
    told = notices.RankNotices()
    found = [Notice(f"oom-{n}", Cause.OOM_KILL, n, HAPPENED(), happened=True) for n in range(notices.KEPT + 50)]
    assert told.update(found, 10)
    assert not told.update(found, 20)
    assert told.total == len(found)
    assert list(told.told) == [one.key for one in found[50:]]
    told.update((), 30)
    assert len(told.since) == len(told.first) == notices.KEPT


def test_failures_before_its_first_step_are_the_ranks_own() -> None:
    host = Host()
    host.driver.fork(CHILD)
    host.driver.events.append(CallFailed(host.driver.now, CHILD, CHILD, "openat", 24, count=2))
    host.second(RankSeen(RUN, host.driver.now, CHILD, None, host.driver.now, rank=1))
    host.second(*stepped(CHILD, host.driver.now))
    errors = {rank.pid: rank.counters.fd_errors for rank in host.report.runs[0].ranks}
    assert errors == {PID: {}, CHILD: {"EMFILE": 2}}


def stepped(pid: int, at_ns: int) -> list[Event]:
    other = Driver(pid=pid, tid=pid, now=at_ns)
    other.train(2)
    return other.events
