"""Targets on a procfs made of files and a kernel that only remembers what it was asked."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

import pytest

from tests.unit.collect.fake_proc import LIBTORCH, FakeProc, maps_line
from trainprobe.collect.command import REDACTED
from trainprobe.collect.pool import Read
from trainprobe.collect.watched import Watched
from trainprobe.config.schema import Matches, TargetsConfig
from trainprobe.model.cells import Region, RowKind
from trainprobe.model.event import (
    Event,
    FileEvent,
    FileEventKind,
    MarkRow,
    ProcessEvent,
    ProcessEventKind,
    RankSeen,
    RunEnded,
    RunStarted,
)
from trainprobe.model.moment import NS, Moment
from trainprobe.runtime.discovery import identity, runs, user_shares
from trainprobe.runtime.discovery.event_room import BUFFER, PART
from trainprobe.runtime.discovery.process_table import EVENTS_OF_ONE
from trainprobe.runtime.discovery.runs import NO_LIBRARY
from trainprobe.runtime.discovery.targets import NoSuchTraining, Targets
from trainprobe.runtime.discovery.watch_locks import WatchLock, WatchLocks

SPAWN = ("python", "-c", "from multiprocessing.spawn import spawn_main; spawn_main()", "--multiprocessing-fork")
FORKSERVER = ("python", "-c", "from multiprocessing.forkserver import main; main()")
TRACKER = ("python", "-c", "from multiprocessing.resource_tracker import main;main(4)")


@dataclass
class Marks:
    found: dict[str, bool]
    reason: str = ""
    refused: bool = False


@dataclass
class Candidate:
    at_ns: int
    pid: int
    why: str = "exec"


@dataclass
class FakeKernel:
    watched: list[int] = field(default_factory=list)
    marked: list[tuple[int, str]] = field(default_factory=list)
    gone: set[int] = field(default_factory=set)
    marks: Marks | None = field(default_factory=lambda: Marks({"record": True}))
    refuses: OSError | None = None
    unwatched: list[int] = field(default_factory=list)
    clocked: list[int] = field(default_factory=list)
    room: int = 0

    def watch(self, pid: int, descendants: int = 0) -> None:
        if pid in self.gone:
            raise ProcessLookupError(pid)
        self.room = descendants
        self.watched.append(pid)

    def unwatch(self, pid: int) -> None:
        self.unwatched.append(pid)
        if pid in self.watched:
            self.watched.remove(pid)

    def ended(self, pid: int, at_ns: int) -> list[FileEvent]:
        return [FileEvent(FileEventKind.CLOSED, at_ns, pid, pid, 1, 2, "/x")]

    def attach_marks(self, pid: int, path: str, start: int, end: int) -> Marks | None:
        assert start < end
        if self.refuses:
            raise self.refuses
        self.marked.append((pid, path))
        return self.marks

    def clock_by_gpu(self, pid: int) -> None:
        self.clocked.append(pid)


NONE_BY_ITSELF = TargetsConfig(auto=False)


class World:
    """A host whose clock the test moves."""

    def __init__(self, root: Path, config: TargetsConfig = NONE_BY_ITSELF, *, claims: WatchLocks | None = None) -> None:
        self.fake = FakeProc(root)
        self.now = 1000 * NS
        self.config, self.claims = config, claims
        self.begin_anew()

    def begin_anew(self) -> None:
        """Another process of ours, on the same host."""
        self.kernel = FakeKernel()
        self.targets = Targets(
            self.kernel, self.config, proc=self.fake.proc, claims=self.claims, clock=lambda: self.now
        )  # fmt: skip

    def step(self, *events: object, after: float = 0.0) -> list[Event]:
        self.now += int(after * NS)
        return self.targets.step(Moment(self.now, self.now), events)  # type: ignore[arg-type]

    def wait(self, seconds: float) -> list[Event]:
        """Step whenever the targets want it."""
        end, out = self.now + int(seconds * NS), []
        while (due := self.targets.due_ns()) is not None and due <= end:
            self.now = max(self.now, due)
            out += self.step()
        self.now = end
        return out + self.step()

    def row(self, pid: int, kind: RowKind = RowKind.DRIVER) -> MarkRow:
        return MarkRow(kind, self.now, pid, pid, "", Region.STEP, 0, 0, 0, 0, 0, 0, (), (), ())

    def file(self, pid: int, at_ns: int = 0) -> FileEvent:
        return FileEvent(FileEventKind.OPENED, at_ns or self.now, pid, pid, 1, 2, "/x")

    def exec(self, pid: int, *command: str) -> ProcessEvent:
        return ProcessEvent(ProcessEventKind.EXEC, self.now, pid, command=command)

    def fork(self, pid: int, ppid: int, comm: str = "python") -> ProcessEvent:
        self.fake.fork(pid, ppid, comm)
        return ProcessEvent(ProcessEventKind.FORK, self.now, pid, ppid, comm)

    def exit(self, pid: int, code: int = 0) -> ProcessEvent:
        self.fake.remove(pid)
        return ProcessEvent(ProcessEventKind.EXIT, self.now, pid, code=code)

    def launch(self, pid: int, *command: str) -> list[Event]:
        """What `trainprobe run` does: a child that waits, then execs."""
        self.fake.add(pid, ("trainprobe", "run"))
        self.targets.launched(pid, command)
        self.fake.add(pid, command)
        return self.step(self.exec(pid, *command))

    def train(self, pid: int, command: Sequence[str] = ("python", "train.py"), **fields: object) -> list[Event]:
        """A training that begins by itself, and is found."""
        self.fake.add(pid, command, libtorch=True, ticks=self.now // 10_000_000, **fields)  # type: ignore[arg-type]
        self.step(Candidate(self.now, pid))
        return self.wait(0.3)

    def roles(self) -> dict[int, str]:
        self.now += 3 * NS
        return {watched.pid: watched.role for watched in self.targets.processes()}


@pytest.fixture
def run(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.fixture
def daemon(tmp_path: Path) -> World:
    world = World(tmp_path, TargetsConfig())
    world.step()
    return world


def kinds(events: Sequence[Event]) -> list[str]:
    return [type(event).__name__ for event in events]


def started(events: Sequence[Event]) -> list[RunStarted]:
    return [event for event in events if isinstance(event, RunStarted)]


def seen(events: Sequence[Event]) -> list[RankSeen]:
    return [event for event in events if isinstance(event, RankSeen)]


def ended(events: Sequence[Event]) -> list[RunEnded]:
    return [event for event in events if isinstance(event, RunEnded)]


# trainprobe run


def test_a_launched_command_is_a_run_from_its_exec_on(run: World) -> None:
    run.fake.add(50, ("trainprobe", "run"))
    run.targets.launched(50, ("python", "train.py"))
    assert run.kernel.watched == [50]
    assert run.step() == []
    run.fake.add(50, ("python", "train.py"), uid=0, ns_pids="\t1")
    run.now += NS // 10
    events = run.step(run.exec(50, "python", "train.py"))
    (begun,), (rank,) = started(events), seen(events)
    assert kinds(events) == ["RunStarted", "RankSeen", "ProcessEvent"]
    assert begun.run.startswith("train.py-")
    assert (begun.launcher_pid, begun.command, begun.user) == (50, ("python", "train.py"), "root")
    assert (begun.cwd, begun.at_ns, begun.attached) == ("/home/someone/project", run.now, False)
    assert (rank.run, rank.pid, rank.container_pid, rank.candidate, rank.marks) == (begun.run, 50, 1, True, "")
    assert rank.started_ns == run.now
    assert run.targets.processes() == [Watched(50, 500, run.now, "helper", begun.run)]


def test_an_exec_that_nobody_told_of_begins_the_run_all_the_same(run: World) -> None:
    run.fake.add(50, ("python", "train.py"))
    run.targets.launched(50, ("python", "train.py"))
    assert kinds(run.wait(1)) == ["RunStarted", "RankSeen"]


def test_a_run_exists_even_where_the_kernel_refuses_to_watch_it(run: World) -> None:
    run.kernel.gone = {50}
    assert kinds(run.launch(50, "python", "train.py"))[:2] == ["RunStarted", "RankSeen"]


def test_a_command_that_cannot_be_run_makes_no_run(run: World) -> None:
    run.fake.add(50)
    run.targets.launched(50, ("nonsense",))
    assert started(run.step(run.exit(50, 127))) == []
    assert run.wait(20) == []


def test_a_process_that_ended_before_it_could_be_read_still_is_a_run_with_an_end(run: World) -> None:
    run.fake.add(50, ("trainprobe",))
    run.targets.launched(50, ("python", "train.py"))
    begun, gone = run.exec(50, "python", "train.py"), run.exit(50, 1)
    events = run.step(begun, gone)
    assert kinds(events) == ["RunStarted", "RankSeen", "ProcessEvent", "RankSeen", "ProcessEvent", "RunEnded"]
    assert started(events)[0].run.startswith("train.py-")
    assert started(events)[0].command == ("python", "train.py")


def test_marks_are_put_on_the_library_once_it_is_mapped(run: World) -> None:
    run.launch(50, "python", "train.py")
    run.wait(0.4)
    assert run.kernel.marked == []
    run.fake.map(50)
    run.wait(0.15)
    assert run.kernel.marked == [(50, LIBTORCH)]
    run.wait(100)
    assert len(run.kernel.marked) == 1


def test_a_library_is_marked_once_for_each_inode(run: World) -> None:
    run.launch(50, "python", "train.py")
    run.fake.map(50)
    run.wait(1)
    run.step(run.fork(51, 50))
    run.step(run.exec(51, "python", "other.py"))
    run.wait(1)
    assert len(run.kernel.marked) == 1
    run.step(run.fork(52, 50))
    run.fake.map(52, line=maps_line("/container/libtorch_cpu.so", ino=99))
    run.step(run.exec(52, "python", "other.py"))
    run.wait(1)
    assert run.kernel.marked == [(50, LIBTORCH), (52, "/container/libtorch_cpu.so")]


def test_a_fork_child_shares_the_library_and_is_not_looked_at(run: World) -> None:
    run.launch(50, "python", "train.py")
    run.fake.map(50)
    run.wait(1)
    run.step(run.fork(51, 50))
    run.fake.map(51, line=maps_line(ino=99))
    run.wait(100)
    assert len(run.kernel.marked) == 1


def test_the_first_step_makes_a_driver(run: World) -> None:
    (begun, *_) = run.launch(50, "python", "train.py")
    row = run.row(50)
    events = run.step(row)
    assert isinstance(begun, RunStarted)
    assert seen(events) == [RankSeen(begun.run, run.now, 50, 50, 1000 * NS, 0, None)]
    assert events[-1] is row
    assert run.roles() == {50: "driver"}
    assert seen(run.step(run.row(50, RowKind.OPTIMIZER))) == []


@pytest.mark.parametrize("kind", [RowKind.FETCH_END, RowKind.EXIT])
def test_a_fetch_is_no_step(run: World, kind: RowKind) -> None:
    run.launch(50, "python", "train.py")
    assert seen(run.step(run.row(50, kind))) == []


def test_without_the_library_the_end_says_why_there_are_no_marks(run: World) -> None:
    run.launch(50, "python", "train.py")
    events = run.step(run.exit(50), after=1)
    assert [rank.marks for rank in seen(events)] == [NO_LIBRARY]
    assert [end.at_ns for end in ended(events)] == [run.now - NS]


def test_only_what_has_no_library_is_clocked_by_its_calls_of_cuda(run: World) -> None:
    """Of a run by a person's word; a child of it, too, as a script's training is. Again, as it loads libraries."""
    run.launch(50, "bash", "train.sh")
    run.step(run.fork(51, 50))
    run.launch(60, "python", "train.py")
    run.fake.map(60)
    run.fake.map(51, line=maps_line("/x/libcudart.so.12"))
    run.wait(0.9)
    assert run.kernel.clocked == []
    run.wait(10)
    assert set(run.kernel.clocked) == {51}
    assert run.kernel.clocked.count(51) > 2


def test_a_library_that_never_stepped_says_so(run: World) -> None:
    run.launch(50, "python", "serve.py")
    run.fake.map(50)
    run.wait(1)
    (rank,) = seen(run.step(run.exit(50)))
    assert "no optimizer step" in str(rank.marks)


def test_a_library_without_symbols_is_told_at_once(run: World) -> None:
    run.kernel.marks = Marks({"record": False}, "the library is stripped")
    run.launch(50, "python", "train.py")
    run.fake.map(50)
    (rank,) = seen(run.wait(1))
    assert (rank.candidate, rank.marks) == (True, "the library is stripped")


def test_marks_that_the_kernel_refuses_are_told(run: World) -> None:
    run.kernel.refuses = OSError(1, "Operation not permitted")
    run.launch(50, "python", "train.py")
    run.fake.map(50)
    (rank,) = seen(run.wait(1))
    assert "Operation not permitted" in str(rank.marks)


@pytest.mark.parametrize("error", [errno.ENOENT, errno.ESRCH, errno.EAGAIN])
def test_a_mapping_that_is_still_being_split_is_asked_for_again_where_it_lies_then(run: World, error: int) -> None:
    run.kernel.refuses = OSError(error, "the mapping cannot be opened")
    run.launch(50, "python", "train.py")
    run.fake.map(50)
    assert seen(run.wait(0.3)) == []
    assert run.kernel.marked == []
    run.kernel.refuses = None
    run.fake.map(50, line=maps_line("/moved/libtorch_cpu.so", ino=99))
    assert seen(run.wait(1)) == []
    assert run.kernel.marked == [(50, "/moved/libtorch_cpu.so")]
    run.wait(100)
    assert len(run.kernel.marked) == 1
    (rank,) = seen(run.step(run.exit(50)))
    assert "no optimizer step" in str(rank.marks)


def test_a_mapping_that_never_opens_is_asked_for_seldomer_as_long_as_the_process_lives(run: World) -> None:
    asked: list[int] = []

    def refuse(pid: int, path: str, start: int, end: int) -> Marks | None:
        asked.append(run.now)
        raise FileNotFoundError(errno.ENOENT, "No such file or directory")

    run.kernel.attach_marks = refuse  # type: ignore[method-assign]
    run.launch(50, "python", "train.py")
    run.fake.map(50)
    run.wait(600)
    pauses = [(after - before) / NS for before, after in pairwise(asked)]
    assert pauses == sorted(pauses)
    assert pauses[0] == pytest.approx(0.1)
    assert 30 < pauses[-1] < 60
    (rank,) = seen(run.step(run.exit(50)))
    assert "No such file or directory" in str(rank.marks)
    asked.clear()
    run.wait(300)
    assert asked == []


def test_a_child_of_a_process_whose_library_has_no_marks_yet_does_not_count_as_one_that_has_them(run: World) -> None:
    run.kernel.marks = None
    run.launch(50, "python", "train.py")
    run.fake.map(50)
    run.wait(0.3)
    run.step(run.fork(51, 50))
    run.fake.map(51)
    run.kernel.marked.clear()
    run.kernel.marks = Marks({"record": True})
    run.wait(1)
    assert (50, LIBTORCH) in run.kernel.marked


def test_a_library_that_takes_its_time_is_asked_for_now_and_then(run: World) -> None:
    run.kernel.marks = None
    run.launch(50, "python", "train.py")
    run.fake.map(50)
    assert seen(run.wait(2)) == []
    assert 10 < len(run.kernel.marked) <= 120
    run.kernel.marks = Marks({"record": False}, "the library is stripped")
    (rank,) = seen(run.wait(0.1))
    assert rank.marks == "the library is stripped"
    asked = len(run.kernel.marked)
    run.wait(60)
    assert len(run.kernel.marked) == asked


def test_a_process_that_ends_while_its_library_is_read_is_asked_for_no_more(run: World) -> None:
    run.kernel.marks = None
    run.launch(50, "python", "train.py")
    run.fake.map(50)
    run.wait(0.5)
    run.step(run.exit(50))
    asked = len(run.kernel.marked)
    run.wait(1)
    assert len(run.kernel.marked) == asked > 0


def test_events_of_strangers_are_dropped(run: World) -> None:
    run.launch(50, "python", "train.py")
    run.fake.add(60)
    assert run.step(run.row(60), run.file(60), run.exec(60, "ls"), run.exit(60), run.row(61)) == []


def test_events_of_descendants_are_delivered_until_the_end(run: World) -> None:
    run.launch(50, "python", "train.py")
    fork, file, end = run.fork(51, 50), run.file(51), ProcessEvent(ProcessEventKind.EXIT, run.now, 51, code=3)
    assert run.step(fork, file, end) == [fork, file, end]
    assert run.step(run.file(51)) == []


def test_the_run_ends_with_its_last_driver(run: World) -> None:
    run.launch(50, "python", "train.py")
    run.step(run.row(50))
    run.step(run.fork(51, 50))
    at = run.now
    events = run.step(run.exit(50))
    assert ended(events)[0].at_ns == at
    run.now += NS
    assert kinds(run.step(run.exit(51))) == ["ProcessEvent"]


def test_secrets_do_not_leave_in_commands(run: World) -> None:
    events = run.launch(50, "python", "train.py", "--api-key=abcd1234")
    shown = ("python", "train.py", f"--api-key={REDACTED}")
    assert started(events)[0].command == shown
    assert [event.command for event in events if isinstance(event, ProcessEvent)] == [shown]


def test_a_wrapper_gives_the_script_its_name(run: World) -> None:
    assert started(run.launch(50, "bash", "-c", "python train.py"))[0].run.startswith("train.py-")
    assert started(run.launch(60, "./trainer"))[0].run.startswith("trainer-")


def test_torchrun_has_its_ranks_in_one_run(run: World) -> None:
    (begun, *_) = run.launch(50, "torchrun", "--nproc-per-node=2", "train.py")
    run.fake.map(50)
    run.wait(1)
    assert isinstance(begun, RunStarted)
    assert begun.run.startswith("train.py-")
    for pid, rank in ((51, "0"), (52, "1")):
        run.step(run.fork(pid, 50))
        environ = {"RANK": rank, "WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "none"}
        run.fake.add(pid, ("python", "train.py"), ppid=50, environ=environ, libtorch=True)
        run.step(run.exec(pid, "python", "train.py"))
    events = run.step(run.row(52), run.row(51))
    assert [(e.run, e.pid, e.rank, e.world_size) for e in seen(events)] == [
        (begun.run, 52, 1, 2),
        (begun.run, 51, 0, 2),
    ]
    assert not ended(run.step(run.exit(52)))
    last = run.now
    assert not ended(run.step(run.exit(51)))
    (end,) = ended(run.step(run.exit(50), after=1))
    assert end.at_ns == last


def test_an_elastic_restart_is_a_new_run(run: World) -> None:
    (begun, *_) = run.launch(50, "torchrun", "train.py")
    run.fake.map(50)
    run.wait(1)

    def worker(pid: int, count: str) -> list[Event]:
        run.step(run.fork(pid, 50))
        run.fake.add(pid, ("python", "train.py"), ppid=50, environ={"RANK": "0", "TORCHELASTIC_RESTART_COUNT": count})
        return run.step(run.exec(pid, "python", "train.py"), run.row(pid))

    first = seen(worker(51, "0"))[0]
    run.step(run.exit(51, 1), after=5)
    second = worker(52, "1")
    assert first.run == begun.run  # type: ignore[union-attr]
    assert [event.run for event in started(second)] == [seen(second)[0].run]
    assert seen(second)[0].run != first.run
    assert [event.run for event in ended(run.wait(11))] == [first.run]


def test_two_trainings_in_one_script_are_two_runs(run: World) -> None:
    (begun, *_) = run.launch(50, "bash", "all.sh")
    for pid, script in ((51, "a.py"), (52, "b.py")):
        run.step(run.fork(pid, 50, "bash"))
        run.fake.add(pid, ("python", script), ppid=50)
        run.step(run.exec(pid, "python", script))
        events = run.step(run.row(pid))
        if script == "a.py":
            assert [rank.run for rank in seen(events)] == [begun.run]  # type: ignore[union-attr]
        else:
            assert started(events)[0].run.startswith("b.py-")
            assert [rank.run for rank in seen(events)] == [started(events)[0].run]
        (end,) = ended(run.step(run.exit(pid)))
        assert end.run == seen(events)[0].run
    assert ended(run.step(run.exit(50))) == []


# The daemon


def test_a_training_is_found_and_is_a_run_when_it_steps(daemon: World) -> None:
    assert daemon.train(50) == []
    assert daemon.kernel.watched == [50]
    assert daemon.kernel.marked == [(50, LIBTORCH)]
    assert daemon.targets.processes() == []
    events = daemon.step(daemon.row(50))
    assert kinds(events) == ["RunStarted", "RankSeen", "MarkRow"]
    assert started(events)[0].at_ns == 1000 * NS
    assert not started(events)[0].attached
    assert [process.role for process in daemon.targets.processes()] == ["driver"]


def test_what_only_infers_is_no_run(daemon: World) -> None:
    daemon.train(50, ("python", "serve.py"))
    assert daemon.step(daemon.row(50, RowKind.FETCH_END), daemon.file(50)) == []
    assert daemon.step(daemon.exit(50)) == []


def test_start_up_is_kept_and_delivered_behind_the_start(daemon: World) -> None:
    daemon.train(50)
    file, fork = daemon.file(50), daemon.fork(51, 50)
    daemon.step(file)
    daemon.now += NS
    worker = daemon.file(51)
    daemon.step(fork, worker)
    events = daemon.step(daemon.row(50), after=1)
    assert kinds(events) == ["RunStarted", "RankSeen", "FileEvent", "ProcessEvent", "FileEvent", "MarkRow"]
    assert events[2:5] == [file, fork, worker]


def test_what_is_kept_is_bounded(daemon: World) -> None:
    daemon.train(50)
    daemon.step(*[daemon.file(50) for _ in range(10 * BUFFER)])
    assert len(daemon.step(daemon.row(50))) == BUFFER + 3


def test_other_programs_are_looked_at_and_left_alone(daemon: World) -> None:
    daemon.fake.add(50, ("gcc", "x.c"), comm="gcc")
    daemon.step(Candidate(daemon.now, 50), Candidate(daemon.now, 51))
    daemon.wait(100)
    assert daemon.kernel.watched == []


def test_a_trainer_that_is_not_called_python_is_found_too(daemon: World) -> None:
    daemon.fake.add(50, ("./trainer",), comm="trainer", libtorch=True)
    daemon.step(Candidate(daemon.now, 50))
    daemon.wait(1.1)
    assert daemon.kernel.watched == [50]


def test_a_late_import_is_found_by_the_schedule_or_by_a_mark(daemon: World) -> None:
    daemon.fake.add(50)
    daemon.step(Candidate(daemon.now, 50))
    daemon.wait(70)
    daemon.fake.map(50)
    daemon.wait(20)
    assert daemon.kernel.watched == []
    daemon.step(Candidate(daemon.now, 50, "mark"))
    assert daemon.kernel.watched == [50]


def test_processes_that_ran_before_are_attached_to(tmp_path: Path) -> None:
    world = World(tmp_path, TargetsConfig())
    world.fake.add(40, ("bash",), comm="bash")
    world.fake.add(50, libtorch=True)
    world.fake.add(49, ppid=50, comm="pt_data_worker", libtorch=True, ticks=501)
    world.fake.add(2, (), comm="kthreadd", flags=0x208040)
    world.step()
    assert world.kernel.watched == [50]
    events = world.step(world.row(50), after=5)
    (begun,), (rank,) = started(events), seen(events)
    assert begun.attached
    assert (begun.at_ns, rank.at_ns) == (1000 * NS, 1000 * NS)
    assert world.roles() == {50: "driver", 49: "worker"}


def test_a_child_of_a_stranger_that_never_exec_s_is_found_by_the_next_scan(daemon: World) -> None:
    daemon.fake.add(50, libtorch=True, ticks=daemon.now // 10_000_000)
    daemon.wait(61)
    assert daemon.kernel.watched == [50]


def test_excluded_processes_are_left_alone(tmp_path: Path) -> None:
    exclude = Matches(commands=("*secret.py*",), uids=(77,), cgroups=("*/private.slice/*",))
    world = World(tmp_path, TargetsConfig(exclude=exclude))
    world.fake.add(50, ("python", "secret.py"), libtorch=True)
    world.fake.add(51, libtorch=True, uid=77)
    world.fake.add(52, libtorch=True, cgroup="0::/private.slice/x\n")
    world.fake.add(53, libtorch=True)
    world.wait(5)
    assert world.kernel.watched == [53]


def test_what_another_one_has_claimed_is_left_alone(tmp_path: Path) -> None:
    claim = WatchLock(49, tmp_path / "run")
    world = World(tmp_path / "proc", TargetsConfig(), claims=WatchLocks({50: 49}.get, tmp_path / "run"))
    world.fake.add(50, libtorch=True)
    world.fake.add(53, libtorch=True)
    world.wait(5)
    assert world.kernel.watched == [53]
    claim.release()


def test_included_processes_are_runs_before_they_step(tmp_path: Path) -> None:
    config = TargetsConfig(auto=False, include=Matches(commands=("*train*",)), exclude=Matches(uids=(77,)))
    world = World(tmp_path, config)
    world.step()
    for pid, command, uid in ((50, "train.py", 0), (51, "other.py", 0), (52, "train.py", 77)):
        world.fake.add(pid, ("python", command), uid=uid, libtorch=True, ticks=world.now // 10_000_000)
        world.step(Candidate(world.now, pid))
    events = world.wait(1)
    assert world.kernel.watched == [50]
    assert kinds(events) == ["RunStarted", "RankSeen"]
    assert not started(events)[0].attached


def test_a_python_that_holds_a_gpu_without_libtorch_is_a_run(tmp_path: Path) -> None:
    world = World(tmp_path, TargetsConfig(exclude=Matches(uids=(77,))))
    world.wait(1)
    world.fake.add(50, ("python", "jax_train.py"))
    world.fake.add(51, ("python", "train.py"), libtorch=True)  # a run when it steps
    world.fake.add(52, ("python", "jax_train.py"), uid=77)
    world.fake.add(53, ("Xorg",), comm="Xorg")
    for _ in range(2):
        world.targets.gpu_users(Moment(world.now, world.now), {50, 51, 52, 53, 54})
    events = world.step()
    assert world.kernel.watched == [50]
    assert kinds(events) == ["RunStarted", "RankSeen"]
    assert started(events)[0].run.startswith("jax_train.py-")


def test_who_holds_a_gpu_is_no_reason_where_nothing_is_to_be_found(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.fake.add(50, ("python", "jax_train.py"))
    world.targets.gpu_users(Moment(world.now, world.now), {50})
    assert (world.kernel.watched, world.step()) == ([], [])


def test_every_rank_of_a_launch_is_in_one_run(daemon: World) -> None:
    daemon.fake.add(50, ("torchrun", "--nproc-per-node=2", "train.py"), comm="torchrun")
    for pid, rank in ((51, "1"), (52, "0")):
        daemon.train(pid, ppid=50, environ={"RANK": rank, "WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "none"})
    events = daemon.step(daemon.row(51), daemon.row(52))
    (begun,) = started(events)
    assert (begun.launcher_pid, begun.command[0]) == (50, "torchrun")
    assert begun.run.startswith("train.py-")
    assert [(event.pid, event.rank, event.run) for event in seen(events)] == [(51, 1, begun.run), (52, 0, begun.run)]


def test_ranks_without_numbers_are_numbered_by_start(daemon: World) -> None:
    daemon.train(50)
    for pid in (51, 52, 53):
        daemon.now += NS
        daemon.step(daemon.fork(pid, 50))
        daemon.fake.add(pid, SPAWN, ppid=50, libtorch=True)
        daemon.step(daemon.exec(pid, *SPAWN))
    daemon.wait(1)
    events = daemon.step(daemon.row(53), daemon.row(51), daemon.row(52))
    assert {event.pid: event.rank for event in seen(events)} == {51: 0, 52: 1, 53: 2}
    assert len(started(events)) == 1
    assert started(events)[0].launcher_pid == 50


def test_a_rank_that_two_processes_claim_is_given_once(daemon: World) -> None:
    daemon.train(50, environ={"RANK": "0"})
    daemon.step(daemon.row(50))
    daemon.step(daemon.fork(51, 50))
    assert [event.rank for event in seen(daemon.step(daemon.row(51)))] == [1]


def test_any_number_of_processes_claim_one_rank(daemon: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them costs as much as the first, and a run takes no more memory the longer it lasts."""
    monkeypatch.setattr(runs, "RANKS", 4)
    numbers = []
    daemon.train(50, environ={"RANK": "0"})
    numbers += [event.rank for event in seen(daemon.step(daemon.row(50)))]
    for pid in range(51, 59):
        daemon.step(daemon.fork(pid, 50))
        numbers += [event.rank for event in seen(daemon.step(daemon.row(pid)))]
        daemon.step(daemon.exit(pid))
    assert numbers == [*range(9)]
    (run,) = daemon.targets._runs._runs.values()
    assert len(run.ranks) == 4


def test_two_launches_of_one_script_are_two_runs(daemon: World) -> None:
    for pid in (50, 60):
        daemon.train(pid)
    events = daemon.step(daemon.row(50), daemon.row(60))
    assert len({event.run for event in started(events)}) == 2
    assert [event.rank for event in seen(events)] == [0, 0]


def test_a_scheduler_id_used_twice_in_a_row_gives_two_attempts_of_one_run(daemon: World) -> None:
    begun: list[RunStarted] = []
    for pid in (50, 60):
        daemon.train(pid, environ={"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0"})
        begun += started(daemon.step(daemon.row(pid)))
        daemon.step(daemon.exit(pid))
    name = begun[0].name
    assert name.startswith("7.0-")
    assert [(one.name, one.run, one.attempt, one.job) for one in begun] == [
        (name, name, 1, name),
        (name, f"{name}.2", 2, name),
    ]


def test_an_elastic_restart_is_the_next_attempt_of_its_job(daemon: World) -> None:
    torchrun = {"TORCHELASTIC_RUN_ID": "exp1", "TORCHELASTIC_RESTART_COUNT": ""}
    begun: list[RunStarted] = []
    for pid, count in ((50, "0"), (60, "2")):
        daemon.train(pid, environ=torchrun | {"TORCHELASTIC_RESTART_COUNT": count})
        begun += started(daemon.step(daemon.row(pid)))
        daemon.step(daemon.exit(pid))
    first, third = begun
    assert (first.attempt, third.attempt) == (1, 3), "the second one was not seen here"
    assert first.name != third.name
    assert first.job == third.job == first.name


def test_of_runs_for_ever_so_many_names_are_known_and_other_users_keep_theirs(
    daemon: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "ATTEMPTS", 16)
    daemon.targets.attempted({1001: {f"old-{number:08x}": 1 for number in range(100)}})
    slurm = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0"}
    attempts = []
    for user, times in ((1000, 1), (1001, 30), (1000, 1)):
        for count in range(times):
            pid = 50 + count
            again = {"TORCHELASTIC_RUN_ID": "x", "TORCHELASTIC_RESTART_COUNT": str(count)}
            daemon.train(pid, environ=slurm if user == 1000 else again, uid=user)
            attempts += [(user, one.attempt) for one in started(daemon.step(daemon.row(pid)))]
            daemon.step(daemon.exit(pid))
    assert [attempt for user, attempt in attempts if user == 1000] == [1, 2]
    assert len(attempts) == 32
    assert sum(map(len, daemon.targets._runs._attempts.values())) == 16


def test_a_rank_that_does_not_know_the_meeting_joins_the_others_of_its_launcher(daemon: World) -> None:
    """Lightning sets MASTER_ADDR and the like in rank 0 itself, where /proc does not show it."""
    daemon.train(50)
    daemon.step(daemon.row(50))
    static = {"MASTER_ADDR": "node0", "MASTER_PORT": "29500", "WORLD_SIZE": "4", "RANK": "1"}
    daemon.train(51, ppid=50, environ=static)
    events = daemon.step(daemon.row(51))
    assert started(events) == []
    assert [event.rank for event in seen(events)] == [1]


def test_a_rank_that_is_late_keeps_its_run_open(daemon: World) -> None:
    daemon.train(50)
    for pid in (51, 52):
        daemon.step(daemon.fork(pid, 50))
        daemon.fake.add(pid, SPAWN, ppid=50, libtorch=True)
        daemon.step(daemon.exec(pid, *SPAWN))
    daemon.wait(1)
    first = daemon.step(daemon.row(51))
    assert not ended(daemon.step(daemon.exit(51, 1)))
    second = daemon.step(daemon.row(52), after=1)
    assert [event.run for event in seen(second)] == [started(first)[0].run]


def test_a_notebook_that_lives_on_ends_its_run_after_a_while(daemon: World) -> None:
    daemon.train(50, ("python", "-m", "ipykernel_launcher"))
    daemon.step(daemon.fork(51, 50))
    daemon.fake.add(51, SPAWN, ppid=50, libtorch=True)
    daemon.step(daemon.exec(51, *SPAWN))
    daemon.wait(1)
    daemon.step(daemon.row(51))
    at = daemon.now
    assert not ended(daemon.step(daemon.exit(51)))
    (end,) = ended(daemon.wait(20))
    assert end.at_ns == at


def test_a_pid_that_comes_again_is_another_process(daemon: World) -> None:
    daemon.train(50)
    first = started(daemon.step(daemon.row(50)))[0]
    daemon.step(daemon.exit(50))
    assert daemon.step(daemon.row(50)) == []
    daemon.now += NS
    daemon.train(50)
    second = started(daemon.step(daemon.row(50)))[0]
    assert first.run != second.run
    assert second.at_ns > first.at_ns


def test_an_end_that_the_kernel_lost_is_noticed(daemon: World) -> None:
    daemon.train(50)
    daemon.step(daemon.row(50))
    daemon.fake.remove(50)
    events = daemon.wait(45)
    assert kinds(events) == ["FileEvent", "ProcessEvent", "RunEnded"], "what the kernel side knew of it goes, too"
    assert daemon.targets.processes() == []


def test_a_pid_reused_behind_our_back_is_noticed(daemon: World) -> None:
    daemon.train(50)
    daemon.step(daemon.row(50))
    daemon.fake.add(50, ("ls",), ticks=999_999)
    assert len(ended(daemon.wait(45))) == 1


def test_a_process_that_died_before_it_could_be_watched(daemon: World) -> None:
    daemon.kernel.gone = {50}
    daemon.train(50)
    assert daemon.step(daemon.row(50)) == []


def test_idle_libraries_are_watched_no_more_until_a_mark(daemon: World) -> None:
    daemon.train(50)
    daemon.wait(4 * 3600 + 20)
    assert daemon.kernel.watched == []
    daemon.step(Candidate(daemon.now, 50, "mark"))
    events = daemon.step(daemon.row(50))
    assert started(events)[0].attached


def test_nothing_to_watch_asks_for_little(daemon: World) -> None:
    daemon.wait(1)
    due = daemon.targets.due_ns()
    assert due
    assert due - daemon.now > 50 * NS


# Roles


def test_roles_of_a_spawning_training(daemon: World) -> None:
    daemon.train(50)
    for pid, command in ((51, TRACKER), (52, SPAWN), (53, ("git", "status"))):
        daemon.step(daemon.fork(pid, 50))
        daemon.fake.add(pid, command, ppid=50)
        daemon.step(daemon.exec(pid, *command))
    daemon.step(daemon.row(50))
    assert daemon.roles() == {50: "driver", 51: "helper", 52: "worker", 53: "helper"}


def test_roles_of_a_forkserver_training(daemon: World) -> None:
    daemon.train(50)
    daemon.step(daemon.fork(51, 50))
    daemon.fake.add(51, FORKSERVER, ppid=50)
    daemon.step(daemon.exec(51, *FORKSERVER), daemon.row(50))
    daemon.step(daemon.fork(52, 51), daemon.fork(53, 51))
    assert daemon.roles() == {50: "driver", 51: "helper", 52: "worker", 53: "worker"}


def test_a_fork_is_a_worker_unless_this_torch_names_its_workers(daemon: World) -> None:
    daemon.train(50)
    daemon.step(daemon.row(50), daemon.fork(51, 50), daemon.fork(52, 50))
    assert daemon.roles() == {50: "driver", 51: "worker", 52: "worker"}
    daemon.fake.add(52, ppid=50, comm="pt_data_worker")
    assert daemon.roles() == {50: "driver", 51: "helper", 52: "worker"}


def test_the_same_roles_are_found_at_attach(run: World) -> None:
    run.fake.add(50, libtorch=True)
    run.fake.add(51, FORKSERVER, ppid=50)
    run.fake.add(52, FORKSERVER, ppid=51)
    run.fake.add(53, ppid=50)
    run.fake.add(54, TRACKER, ppid=50)
    run.targets.attach(50)
    run.step(run.row(50))
    assert run.roles() == {50: "driver", 51: "helper", 52: "worker", 53: "worker", 54: "helper"}


# trainprobe attach


def test_workers_that_were_there_before_are_told_of_as_the_kernel_would_have(run: World) -> None:
    run.fake.add(50, libtorch=True)
    run.fake.add(51, ppid=50, comm="pt_data_worker")
    run.fake.add(52, TRACKER, ppid=50)
    run.targets.attach(50)
    told = [event for event in run.step(run.row(50)) if isinstance(event, ProcessEvent)]
    assert [(e.kind.value, e.pid, e.ppid, e.comm) for e in told] == [
        ("fork", 51, 50, "pt_data_worker"),
        ("fork", 52, 50, "python"),
        ("exec", 52, 50, "python"),
    ]
    assert told[2].command == TRACKER
    assert all(event.at_ns < run.now for event in told)


def test_attach_is_a_run_at_once(run: World) -> None:
    run.fake.add(50, libtorch=True, environ={"RANK": "2", "WORLD_SIZE": "4"})
    run.targets.attach(50)
    events = run.step()
    assert kinds(events) == ["RunStarted", "RankSeen"]
    assert (started(events)[0].attached, started(events)[0].at_ns) == (True, run.now)
    assert (seen(events)[0].rank, seen(events)[0].world_size, seen(events)[0].candidate) == (2, 4, True)
    assert [event.rank for event in seen(run.step(run.row(50)))] == [2]


def test_a_program_that_uses_cuda_may_be_a_training(run: World) -> None:
    """Written by hand, in no Python; its calls may be its clock."""
    run.fake.add(50, ("./train",), comm="train")
    run.fake.map(50, line=maps_line("/usr/lib/x86_64-linux-gnu/libcuda.so.1"))
    run.targets.attach(50)
    assert kinds(run.step())[:2] == ["RunStarted", "RankSeen"]
    run.wait(100)
    assert set(run.kernel.clocked) == {50}


def test_attach_to_torchrun_takes_its_children(run: World) -> None:
    run.fake.add(50, ("torchrun", "train.py"), comm="torchrun")
    run.fake.add(51, ppid=50, libtorch=True)
    run.targets.attach(50)
    events = run.step(run.row(51))
    assert seen(events)[-1].pid == 51
    assert len(started(events)) == 1


@pytest.mark.parametrize(
    ("pid", "reason"),
    [(49, "there is no process 49"), (50, "is a Python"), (51, "thread of the kernel"), (52, "there is no process 52")],
)
def test_attach_refuses_what_is_no_training(run: World, pid: int, reason: str) -> None:
    run.fake.add(50, ("sleep", "1"), comm="sleep")
    run.fake.add(51, (), comm="kworker", flags=0x208040)
    run.fake.add(52, state="Z")
    with pytest.raises(NoSuchTraining, match=reason):
        run.targets.attach(pid)
    assert run.kernel.watched == []


def test_attach_twice_is_refused(run: World) -> None:
    run.fake.add(50, libtorch=True)
    run.targets.attach(50)
    with pytest.raises(NoSuchTraining, match="watched already"):
        run.targets.attach(50)


def test_a_run_that_was_attached_to_is_not_begun_a_second_time_under_its_name(daemon: World) -> None:
    daemon.train(50)
    first = daemon.step(daemon.row(50))
    daemon.fake.add(60, ppid=50)
    daemon.targets.attach(60)
    second = daemon.step()
    assert started(first)[0].run != started(second)[0].run


def test_one_users_processes_leave_room_for_the_others(daemon: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(user_shares, "PROCESSES_OF_ONE", 8)
    daemon.train(50, uid=1000)
    for pid in range(100, 120):
        daemon.step(daemon.fork(pid, 50))
    assert daemon.kernel.unwatched == list(range(107, 120)), "those beyond his part are let go"
    assert "8 processes of user 1000" in str(daemon.targets.refusal())
    daemon.train(200, uid=1000)
    assert daemon.step(daemon.row(200)) == []
    daemon.train(201, uid=1001)
    assert len(started(daemon.step(daemon.row(201)))) == 1
    daemon.step(*(daemon.exit(pid) for pid in range(100, 107)))
    daemon.train(202, uid=1000)
    assert len(started(daemon.step(daemon.row(202)))) == 1
    daemon.wait(61)
    assert daemon.targets.refusal() == ""


def find_family(world: World, pid: int, children: int, uid: int) -> tuple[int, int]:
    """A training that is found with children: for how many the kernel side was asked, and how many are watched now."""
    world.fake.add(pid, libtorch=True, ticks=world.now // 10_000_000, uid=uid)
    for child in range(pid + 1, pid + 1 + children):
        world.fake.add(child, ppid=pid, uid=uid)
    world.step(Candidate(world.now, pid))
    world.wait(0.3)
    return world.kernel.room, len(world.targets._table)


def test_a_family_without_end_is_taken_in_slowly(daemon: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each descendant is read and watched by itself, and whose place is free can be had again at once."""
    monkeypatch.setattr(user_shares, "FAMILY", 8)
    monkeypatch.setattr(user_shares, "FAMILY_APART_NS", NS)
    assert find_family(daemon, 100, 20, 1000) == (8, 9)
    assert "processes of user 1000" in str(daemon.targets.refusal())
    assert find_family(daemon, 200, 20, 1000) == (0, 10)
    assert find_family(daemon, 300, 2, 1001) == (8, 13), "another one's"
    daemon.wait(60)
    assert find_family(daemon, 400, 2, 1000) == (8, 16)


def test_a_family_takes_no_more_places_than_its_user_has(daemon: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(user_shares, "PROCESSES_OF_ONE", 4)
    assert find_family(daemon, 100, 20, 1000) == (4, 4), "nor does the kernel side read the others"
    assert find_family(daemon, 300, 2, 1001) == (4, 7)


def test_processes_that_begin_to_step_without_end_delay_nobody_elses(
    daemon: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(user_shares, "DRIVERS", 8)
    asked: list[int] = []
    environ = daemon.fake.proc.environ
    monkeypatch.setattr(daemon.fake.proc, "environ", lambda pid: asked.append(pid) or environ(pid))
    daemon.train(50, uid=1000)
    daemon.step(daemon.row(50))
    for pid in range(100, 120):
        daemon.step(daemon.fork(pid, 50))
        daemon.step(daemon.row(pid), daemon.row(pid))
    assert asked == [50, *range(100, 107)]
    assert "8 processes of user 1000" in str(daemon.targets.refusal())
    daemon.train(200, uid=1001)
    assert len(started(daemon.step(daemon.row(200)))) == 1
    daemon.wait(10.1)
    assert kinds(daemon.step(daemon.row(119))) == ["RankSeen", "MarkRow"], "it is let in later"
    for pid in range(300, 330):  # containers run as root, of many people
        daemon.train(pid, uid=0)
        assert len(started(daemon.step(daemon.row(pid)))) == 1
        daemon.now += NS


def test_ids_that_a_user_was_lent_share_his_part(daemon: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(user_shares, "RUNS_OF_ONE", 3)
    monkeypatch.setattr(daemon.targets._table.shares, "owner", lambda uid: 1000 if 100_000 <= uid < 165_536 else uid)
    begun = []
    for pid in range(50, 56):
        daemon.train(pid, uid=100_000 + pid)
        begun += started(daemon.step(daemon.row(pid)))
    assert len(begun) == 3
    assert "3 runs of user 1000" in str(daemon.targets.refusal())
    daemon.train(60, uid=1001)
    assert len(started(daemon.step(daemon.row(60)))) == 1


def test_a_library_that_was_refused_is_asked_for_again_and_that_is_told(daemon: World) -> None:
    daemon.kernel.marks = Marks({}, "more than 16 different libtorch files of user 1000", refused=True)
    daemon.train(50, uid=1000)
    daemon.wait(1)
    assert "16 different libtorch files of user 1000" in str(daemon.targets.refusal())
    daemon.kernel.marks = Marks({"record": True})
    asked = len(daemon.kernel.marked)
    daemon.wait(5)
    assert len(daemon.kernel.marked) == asked + 1
    daemon.wait(60)
    assert len(daemon.kernel.marked) == asked + 1
    assert daemon.targets.refusal() == ""


def test_a_process_that_cannot_be_read_for_a_while_has_not_ended(
    daemon: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon.train(50, uid=1000)
    (run,) = started(daemon.step(daemon.row(50)))
    monkeypatch.setattr(daemon.fake.proc, "stat", lambda pid: None)
    ended = [event for event in daemon.wait(60) if isinstance(event, RunEnded)]
    assert ended == []
    assert [seen.run for seen in daemon.targets.processes()] == [run.run]


VICTIM, OTHER, THIRD = 3_000_001, 3_000_002, 3_000_003  # nobody's
SAME_ID = [
    {"SLURM_JOB_ID": "12", "SLURM_STEP_ID": "0"},
    {"SLURM_JOB_ID": "12", "SLURM_RESTART_COUNT": "2"},
    {"TORCHELASTIC_RUN_ID": "exp1"},
    {"TORCHELASTIC_RUN_ID": "exp1", "RANK": "1", "WORLD_SIZE": "2"},
]


def begun_by(world: World, pid: int, uid: int, environ: dict[str, str]) -> tuple[list[RunStarted], RankSeen]:
    """(the runs that begin with a training's first step, its rank)."""
    world.train(pid, uid=uid, environ=environ)
    events = world.step(world.row(pid))
    return started(events), seen(events)[0]


@pytest.mark.parametrize("environ", SAME_ID)
def test_another_users_scheduler_id_joins_no_run(daemon: World, environ: dict[str, str]) -> None:
    (victims,), first = begun_by(daemon, 50, VICTIM, environ | {"RANK": "0"})
    (others,), planted = begun_by(daemon, 60, OTHER, environ)
    none, second = begun_by(daemon, 51, VICTIM, environ | {"RANK": "1"})
    assert (victims.user, others.user) == (str(VICTIM), str(OTHER))
    assert victims.run != others.run
    assert none == []
    assert (first.run, second.run, planted.run) == (victims.run, victims.run, others.run)


def test_another_user_who_finds_the_same_digest_joins_no_run(daemon: World, monkeypatch: pytest.MonkeyPatch) -> None:
    sha256 = identity.sha256
    monkeypatch.setattr(identity, "sha256", lambda key: sha256(key.partition(b"\0")[2]))
    (victims,), _ = begun_by(daemon, 50, VICTIM, SAME_ID[0])
    (others,), _ = begun_by(daemon, 60, OTHER, SAME_ID[0])
    assert len({victims.run, others.run}) == 2
    assert begun_by(daemon, 51, VICTIM, SAME_ID[0])[1].run == victims.run
    assert begun_by(daemon, 61, OTHER, SAME_ID[0])[1].run == others.run
    daemon.step(*(daemon.exit(pid) for pid in (50, 51)))
    daemon.wait(15)
    (again,), _ = begun_by(daemon, 62, THIRD, SAME_ID[0])
    assert again.run not in (victims.run, others.run), "nor one that has ended"


def test_a_run_is_the_drivers_owners_whoever_launched_it(daemon: World) -> None:
    daemon.fake.add(60, ("python", "-m", "torch.distributed.run", "train.py"), uid=OTHER)
    daemon.train(61, uid=VICTIM, ppid=60)
    (run,) = started(daemon.step(daemon.row(61)))
    assert (run.launcher_pid, run.user) == (60, str(VICTIM))


def test_one_users_runs_leave_room_for_the_others(daemon: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(user_shares, "RUNS_OF_ONE", 3)
    begun = []
    for pid in range(50, 56):
        daemon.train(pid, uid=1000)
        begun += started(daemon.step(daemon.row(pid)))
    assert len(begun) == 3
    assert "3 runs of user 1000" in str(daemon.targets.refusal())
    daemon.train(60, uid=1001)
    assert len(started(daemon.step(daemon.row(60)))) == 1
    daemon.step(daemon.exit(50))
    daemon.wait(20)
    assert len(started(daemon.step(daemon.row(55)))) == 1, "it steps still, and there is room now"


def test_one_users_events_before_a_step_leave_room_for_the_others(daemon: World) -> None:
    for pid in range(100, 160):
        daemon.train(pid, uid=1000)
        daemon.step(*[replace(daemon.file(pid), path="/" + "x" * 4000) for _ in range(BUFFER)])
    daemon.train(50, uid=1001)
    daemon.step(*[daemon.file(50) for _ in range(BUFFER)])
    assert len(daemon.step(daemon.row(50))) == BUFFER + 3
    kept = [event for pid in range(100, 160) for event in daemon.step(daemon.row(pid)) if isinstance(event, FileEvent)]
    assert kept
    assert sum(len(event.path) for event in kept) <= PART * EVENTS_OF_ONE
    daemon.train(200, uid=1000)
    daemon.step(daemon.file(200))
    assert kinds(daemon.step(daemon.row(200)))[-2:] == ["FileEvent", "MarkRow"], "there is room again"


@pytest.mark.parametrize(("servers", "theirs", "mine"), [(24, 1000, 1000), (94, 0, 1001)])
def test_servers_that_log_for_minutes_leave_room_for_a_trainings_start(
    daemon: World, servers: int, theirs: int, mine: int
) -> None:
    pids = range(100, 100 + servers)
    for pid in pids:
        daemon.train(pid, ("python", "serve.py"), uid=theirs)
    log = replace(daemon.file(0), kind=FileEventKind.PROGRESS, path="/var/log/serve.log")
    for second in range(BUFFER + 4):
        daemon.step(*[replace(log, pid=pid, ino=pid, bytes=second) for pid in pids])
    daemon.train(50, uid=mine)
    daemon.step(daemon.file(50), *[daemon.fork(pid, 50, "pt_data_worker") for pid in range(51, 55)])
    begun = kinds(daemon.step(daemon.row(50)))
    assert (begun.count("ProcessEvent"), begun.count("FileEvent")) == (4, 1)


def test_workers_that_were_forked_are_known_whatever_wrote_files_since(daemon: World) -> None:
    daemon.train(50, uid=1000)
    daemon.step(*[daemon.fork(pid, 50, "pt_data_worker") for pid in range(51, 101)])
    for pid in range(51, 101):
        daemon.step(*[daemon.file(pid) for _ in range(BUFFER)])
    begun = daemon.step(daemon.row(50))
    assert sum(isinstance(event, ProcessEvent) for event in begun) == 50
    assert sum(isinstance(event, FileEvent) for event in begun) == EVENTS_OF_ONE


def test_rows_of_a_process_that_was_refused_are_not_kept(daemon: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(user_shares, "RUNS_OF_ONE", 0)
    daemon.train(50, uid=1000)
    daemon.step(daemon.file(50), *[daemon.row(50, RowKind.BACKWARD) for _ in range(5)])
    monkeypatch.setattr(user_shares, "RUNS_OF_ONE", 1)
    daemon.wait(11)
    told = kinds(daemon.step(daemon.row(50, RowKind.BACKWARD)))
    assert told.count("MarkRow") == 1
    assert told.count("FileEvent") == 1


def test_root_runs_containers_of_many(daemon: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(user_shares, "RUNS_OF_ONE", 3)
    monkeypatch.setattr(user_shares, "RUNS", 5)
    begun = []
    for pid in range(50, 58):
        daemon.train(pid)
        begun += started(daemon.step(daemon.row(pid)))
    assert len(begun) == 5


def test_processes_are_asked_for_together_and_maps_only_of_those_that_did_something(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a host that starts Pythons all the time these requests were half of what the daemon took."""
    world = World(tmp_path, TargetsConfig())
    world.step()
    for pid in range(500, 510):
        world.fake.add(pid, ("python", "tool.py"), ticks=world.now // 10_000_000)
        world.step(Candidate(world.now, pid))
    asked: list[list[str]] = []
    ask = world.fake.proc._ask

    def counted(reads: Sequence[Read]) -> list[bytes | None]:
        asked.append([read.path.rpartition(b"/")[2].decode() for read in reads])
        return ask(reads)

    monkeypatch.setattr(world.fake.proc, "_ask", counted)
    world.wait(4.5)
    assert [one for one in asked if one == ["maps"]] == [["maps"]] * 10, "at the first look alone"
    stats = [len(one) for one in asked if set(one) == {"stat"}]
    assert stats == [10] * len(stats)
    world.fake.map(505)
    world.fake.grow(505, 90_000)
    assert world.kernel.watched == []
    world.wait(2)
    assert world.kernel.watched == [505]
