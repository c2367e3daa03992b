"""Which trainings go on when the daemon begins anew."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.runtime.discovery.test_targets import World
from trainprobe.config.schema import TargetsConfig
from trainprobe.model.cells import CELLS, LEAVES, Leaf, Region, cell
from trainprobe.model.event import RankSeen, RunEnded, RunStarted
from trainprobe.model.moment import NS, Moment
from trainprobe.model.report import Rank, Run
from trainprobe.model.resume_state import KeptClock, KeptRank, ResumedRun
from trainprobe.runtime.resume import ResumeStates, found_again
from trainprobe.wire import codec

SLURM = {"SLURM_JOB_ID": "12", "SLURM_STEP_ID": "3"}
CELL_NS = tuple(40_000_000 if index == cell(Region.STEP, Leaf.CPU) else 0 for index in range(CELLS))


def kept(world: World, pid: int, **fields: object) -> KeptRank:
    stat = world.fake.proc.stat(pid)
    assert stat is not None
    made = KeptRank(
        pid, world.fake.proc.started_ns(stat.ticks), pid, KeptClock("each", "", (), 0), 50_000_000, CELL_NS,
        (0,) * LEAVES, 1, 1,
    )  # fmt: skip
    return replace(made, **fields)  # type: ignore[arg-type]


def cpu(world: World, pid: int, nanoseconds: int) -> None:
    (world.fake.root / str(pid) / f"task/{pid}" / "schedstat").write_text(f"{nanoseconds} 5 7\n")


def again(world: World, name: str, rank: KeptRank) -> list[ResumedRun]:
    run = Run(name, [], "root", "/", 1.0, ranks=[Rank(0, 1, rank.pid)])
    text = codec.dumps(rank)
    return found_again([run], {(name, "0"): text}, Moment(world.now, world.now), world.fake.proc)


def named_of(world: World, pid: int) -> str:
    """The name of a run that a daemon knows."""
    return next(watched.run for watched in world.targets.processes() if watched.pid == pid)


def named(world: World, pid: int) -> str:
    """The name of a training's run, from a daemon that saw it step."""
    world.train(pid)
    events = world.step(world.row(pid))
    return next(event.run for event in events if isinstance(event, RunStarted))


@pytest.fixture
def first(tmp_path: Path) -> World:
    world = World(tmp_path, TargetsConfig())
    world.step()
    return world


def following(first: World) -> World:
    """Another daemon on the same host."""
    world = World.__new__(World)
    world.__dict__.update(first.__dict__)
    world.begin_anew()
    return world


def test_a_training_is_watched_again_from_the_first_moment_with_its_name(first: World) -> None:
    name = named(first, 77)
    (found,) = again(first, name, kept(first, 77))
    second = following(first)
    second.targets.go_on([found])
    events = second.step()
    assert [type(event) for event in events] == [RunStarted, RankSeen, ResumedRun]
    assert {event.run for event in events} == {name}  # type: ignore[union-attr]
    assert second.kernel.watched == [77]
    assert any(isinstance(event, RunEnded) for event in [*second.step(second.exit(77)), *second.wait(15)])


def test_ranks_keep_their_numbers(first: World) -> None:
    """Two drivers of one launch whose environment names no rank: found again in another order."""
    first.train(70)
    first.step(first.row(70))
    for pid in (71, 72):
        first.step(first.fork(pid, 70))
        first.step(first.row(pid))
    seen = {71: 1, 72: 2}
    run = named_of(first, 70)
    ranks = [Rank(seen[pid], 3, pid, name=str(seen[pid])) for pid in (72, 71)]
    texts = {(run, rank.name): codec.dumps(kept(first, rank.pid)) for rank in ranks}
    again = found_again([Run(run, [], "root", "/", 1.0, ranks=ranks)], texts, Moment(0, first.now), first.fake.proc)
    second = following(first)
    second.targets.go_on(again)
    found = {event.pid: event.rank for event in second.step() if isinstance(event, RankSeen)}
    assert found == seen


def test_another_process_with_its_pid_is_another_training(first: World) -> None:
    name = named(first, 77)
    before = kept(first, 77)
    first.fake.add(77, ticks=999_999, libtorch=True)
    assert again(first, name, before) == []
    first.fake.remove(77)
    assert again(first, name, before) == []


@pytest.mark.parametrize(
    ("noted", "now", "same"),
    [
        (10 * NS, 10 * NS, True),
        (10 * NS, 10 * NS + 15_000_000, True),
        (10 * NS, 10 * NS + 25_000_000, False),
        (0, 5, False),
    ],
)
def test_a_driver_that_has_used_the_cpu_of_half_a_step_has_stepped(
    first: World, noted: int, now: int, same: bool
) -> None:
    name = named(first, 77)
    cpu(first, 77, now)
    (found,) = again(first, name, kept(first, 77, stalled_from_ns=first.now, cpu_ns=noted))
    assert found.ranks[0].same_step is same


def test_a_training_without_a_baseline_goes_on_too_and_another_with_its_pid_does_not(first: World) -> None:
    """It had made few steps: there is nothing to go on with but what was told of it."""
    name = named(first, 77)
    run = Run(name, [], "root", "/", 1.0, ranks=[Rank(0, 1, 77)])
    (found,) = found_again([run], {}, Moment(0, first.now), first.fake.proc)
    second = following(first)
    second.targets.go_on([found])
    assert [event.run for event in second.step() if isinstance(event, RunStarted)] == [name]
    first.fake.add(77, ticks=999_999, libtorch=True)
    third = following(first)
    third.targets.go_on(found_again([run], {}, Moment(0, first.now), first.fake.proc))
    assert not [event for event in third.step() if isinstance(event, RunStarted)]


def test_what_an_older_version_kept_is_left_alone(first: World) -> None:
    name = named(first, 77)
    run = Run(name, [], "root", "/", 1.0, ranks=[Rank(0, 1, 77)])
    assert found_again([run], {(name, "0"): '{"pid": 77}'}, Moment(0, 0), first.fake.proc) == []


def test_a_scheduler_id_that_is_used_again_is_the_next_attempt_of_the_run(tmp_path: Path) -> None:
    """A loop in one batch script, and the daemon restarted between two of its launches."""
    begun_before: dict[int, dict[str, int]] = {}
    names: list[str] = []
    for count in range(3):
        world = World(tmp_path / str(count), TargetsConfig())
        world.targets.attempted(begun_before)
        world.step()
        world.train(100 + count, environ=SLURM)
        (begun,) = [event for event in world.step(world.row(100 + count)) if isinstance(event, RunStarted)]
        assert (begun.attempt, begun.job) == (count + 1, begun.name)
        begun_before = {1000: {begun.name: begun.attempt}}
        names.append(begun.run)
    assert names == [begun.name, f"{begun.name}.2", f"{begun.name}.3"]


def test_a_later_attempt_goes_on_as_the_one_that_it_is(first: World) -> None:
    name = named(first, 77)
    run = Run(name, [], "root", "/", 1.0, ranks=[Rank(0, 1, 77)], attempt=3)
    (found,) = found_again([run], {}, Moment(0, first.now), first.fake.proc)
    second = following(first)
    second.targets.attempted({1000: {name: 3}})
    second.targets.go_on([found])
    assert [(e.run, e.attempt) for e in second.step() if isinstance(e, RunStarted)] == [(f"{name}.3", 3)]


class Core:
    """Counts how often it is asked."""

    stalled = False
    asked = 0

    def __init__(self, rank: KeptRank) -> None:
        self.rank = rank

    def kept(self) -> dict[tuple[str, str], KeptRank]:
        self.asked += 1
        return {("r", "0"): self.rank}


def test_it_is_noted_now_and_then_and_all_the_time_while_a_stall_is_open(first: World) -> None:
    named(first, 77)
    cpu(first, 77, 1234)
    core = Core(kept(first, 77))
    noted = ResumeStates(core, first.fake.proc)
    for second in range(20):
        noted.at(second * NS)
    assert core.asked == 2
    core.stalled, core.rank = True, kept(first, 77, stalled_from_ns=5)
    for second in range(20, 25):
        text = noted.at(second * NS)["r", "0"]
    assert core.asked == 7
    assert codec.decode(KeptRank, codec.loads(text)).cpu_ns == 1234
    core.stalled = False
    noted.at(25 * NS)
    assert core.asked == 8
