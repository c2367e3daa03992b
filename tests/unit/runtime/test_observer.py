from __future__ import annotations

import random
from dataclasses import replace

import pytest

from tests.unit.runtime.fakes import (
    FakeClock,
    FakeCore,
    FakeKernel,
    FakeSampler,
    FakeStacks,
    FakeTargets,
    FakeWants,
)
from tests.unit.runtime.sampling.test_joined_rows import rows as rows_of_even_steps
from trainprobe.collect.source import Failed, Sources
from trainprobe.model.cells import Level, RowKind, ThreadState
from trainprobe.model.event import (
    Event,
    FileEvent,
    FileEventKind,
    Leaf,
    MarkRow,
    ProcessEvent,
    ProcessEventKind,
    RankSeen,
    Region,
    RunEnded,
    RunStarted,
    StackSeen,
    ThreadSample,
)
from trainprobe.model.frame import Frame, FrameSamples
from trainprobe.model.moment import NS
from trainprobe.model.report import Report
from trainprobe.model.sample import CountSample, GpuHolder, GpuSample, SourceStatus
from trainprobe.model.step_deadline import Armed, DriverProgress
from trainprobe.runtime.loop.budget import CostBudget
from trainprobe.runtime.observer import Observer, Outlets, Parts
from trainprobe.runtime.schedule import (
    CALM_NS,
    CALM_TICK_NS,
    CALM_TICKS_NS,
    DETAIL_NS,
    EARLY_SLACK_NS,
    GLANCES,
    SLACK_NS,
    TICK_NS,
)

DEATH = ProcessEvent(ProcessEventKind.EXIT, 1, 77, signal=9)
SAMPLE = ThreadSample(7, 7, Level.FULL, ThreadState.ON, Region.STEP, Leaf.CPU, 1, 1, -1, -1, 0, 0, "", ())


class World:
    """An observer and everything around it."""

    def __init__(self, budget: CostBudget | None = None) -> None:
        self.clock, self.kernel, self.targets = FakeClock(), FakeKernel(), FakeTargets()
        self.sampler, self.stacks, self.core = FakeSampler(), FakeStacks(), FakeCore()
        self.frames: list[Frame] = []
        self.reports: list[Report] = []
        self.kernel.samples = [SAMPLE]
        self.followed = False
        self.sources = Sources()
        self.observer = Observer(
            Parts(self.kernel, self.targets, self.sampler, self.stacks, self.core, self.sources, self.clock),
            Outlets(self.frames.append, self.reports.append, lambda: self.followed),
            budget,
        )

    def look(self, after_ns: int = 10_000_000) -> Frame:
        """Something that does not wait wakes it."""
        self.kernel.ring = [DEATH]
        return self.turn(after_ns, woken=True)

    def turn(self, after_ns: int = TICK_NS, *, woken: bool = False) -> Frame:
        self.clock.ns += after_ns
        self.observer.turn(woken=woken)
        return self.frames[-1]


@pytest.fixture
def world() -> World:
    return World()


def test_the_core_and_the_recording_see_the_same_frames(world: World) -> None:
    world.kernel.ring = [DEATH]
    for _ in range(9):
        world.turn()
    assert world.frames == world.core.frames
    assert world.frames[0].events == (DEATH,)


def test_thread_samples_come_every_second_while_nothing_is_wrong(world: World) -> None:
    seen = [bool(world.turn().threads) for _ in range(12)]
    assert seen == [True] * 12


@pytest.mark.parametrize(("threads", "seconds"), [(450, 1), (1000, 2), (2000, 4)])
def test_thread_samples_come_the_more_seldom_the_more_threads_there_are(
    world: World, threads: int, seconds: int
) -> None:
    world.kernel.samples = [SAMPLE] * threads
    seen = [bool(world.turn().threads) for _ in range(4 * seconds)]
    assert seen == [turn % seconds == 0 for turn in range(4 * seconds)]
    world.core.wanted = FakeWants(detail=True)
    world.turn()
    assert all(world.turn(DETAIL_NS).threads for _ in range(5)), "a step is late"


def test_open_files_come_with_them(world: World) -> None:
    world.kernel.open = [FileEvent(FileEventKind.PROGRESS, 1, 7, 7, 1, 1, "/c.pt")]
    assert [len(world.turn().events) for _ in range(8)] == [1] * 8


def test_detail_means_thread_samples_at_every_tick_and_shorter_ticks(world: World) -> None:
    world.core.wanted = FakeWants(detail=True)
    world.turn()
    assert world.observer.due_ns() == world.clock.ns + DETAIL_NS
    assert all(world.turn(DETAIL_NS).threads for _ in range(5))


def test_a_limit_that_fills_within_seconds_gets_turns_of_its_own(world: World) -> None:
    world.turn()
    world.sampler.due = world.clock.ns + NS // 4
    assert world.observer.due_ns() == world.sampler.due
    frames = len(world.frames)
    world.turn(NS // 4)
    assert len(world.frames) == frames + 1


def alarm(world: World, limit_ns: int = 80_000_000) -> Armed:
    """A step that has just begun, the driver's eleventh."""
    world.core.alarms = [one := Armed(7, 10, 10, world.clock.ns, world.clock.ns + limit_ns)]
    return one


def test_a_late_step_wakes_it_and_brings_thread_samples(world: World) -> None:
    world.kernel.has_clock = False
    one = alarm(world)
    world.turn(10_000_000)
    world.kernel.reached[7] = DriverProgress(11, 11, one.began_ns + 5)  # its backward, in the same step
    assert world.observer.due_ns() == one.limit_ns + SLACK_NS
    assert world.turn(one.limit_ns + SLACK_NS - world.clock.ns).threads == (SAMPLE,)


def test_a_step_that_is_over_costs_a_look_at_its_ledger_and_no_frame(world: World) -> None:
    world.kernel.has_clock = False
    one = alarm(world)
    world.turn(10_000_000)
    world.kernel.reached[7] = DriverProgress(14, 13, one.began_ns + 120_000_000)
    frames = len(world.frames)
    world.turn(one.limit_ns + SLACK_NS - world.clock.ns)
    assert len(world.frames) == frames
    assert world.observer.due_ns() == one.limit_ns + SLACK_NS + 120_000_000
    world.turn(120_000_000)
    assert len(world.frames) == frames + 1, "the later step is late itself"


def test_an_alarm_shortly_before_the_tick_is_looked_at_with_it(world: World) -> None:
    world.turn()
    tick = world.clock.ns + TICK_NS
    alarm(world, TICK_NS - SLACK_NS - 100_000_000)
    world.observer.turn(woken=True)
    assert world.observer.due_ns() == tick


def test_a_brief_burst_that_recurs_is_looked_at_as_soon_as_it_is_late(world: World) -> None:
    """Also where the kernel would wake us: it does so later."""
    one = replace(alarm(world), early=True)
    world.core.alarms = [one]
    world.turn(10_000_000)
    assert world.observer.due_ns() == one.limit_ns + EARLY_SLACK_NS
    world.kernel.reached[7] = DriverProgress(11, 11, one.began_ns + 5)
    assert world.turn(one.limit_ns + EARLY_SLACK_NS - world.clock.ns).threads == (SAMPLE,)


def test_over_the_budget_it_is_not(world: World) -> None:
    world = World(budget := CostBudget(0.01))
    for second in range(0, 600, 5):
        budget.add_cpu_seconds(second * NS, second * 0.5)
    world.core.alarms = [replace(alarm(world), early=True)]
    world.turn(10_000_000)
    assert world.observer.due_ns() > world.core.alarms[0].limit_ns + EARLY_SLACK_NS


def calm(world: World, lasts_ns: int = CALM_NS) -> None:
    """For so long, with a driver whose steps are short."""
    world.core.wanted = FakeWants(stable_ns=lasts_ns)
    alarm(world)
    world.look()


def pause(world: World) -> int:
    """From one look to the next."""
    frames = len(world.frames)
    began = world.clock.ns
    while len(world.frames) == frames:
        world.clock.ns = max(world.observer.due_ns(), world.clock.ns + 1)
        world.core.alarms = []
        if world.core.wanted.stable_ns:
            alarm(world)
        world.observer.turn(woken=False)
    return world.clock.ns - began


def test_the_longer_all_is_calm_the_seldomer_are_the_looks(world: World) -> None:
    ends = [after for after, _ in CALM_TICKS_NS[:-1]]
    for (after, wanted), end in zip(CALM_TICKS_NS, [1 << 40, *ends]):
        calm(world, random.randrange(after, end))
        assert pause(world) == wanted
    calm(world, random.randrange(CALM_NS))
    assert pause(world) == TICK_NS


def test_between_far_looks_limits_are_glanced_at(world: World) -> None:
    calm(world, CALM_TICKS_NS[0][0])
    before = world.sampler.glances
    assert pause(world) == CALM_TICKS_NS[0][1]
    assert world.sampler.glances - before == GLANCES - 1
    world.sampler.far = False
    assert pause(world) == CALM_TICKS_NS[0][1] // GLANCES, "what a glance finds to fill is looked at there and then"
    assert pause(world) == TICK_NS


@pytest.mark.parametrize(("compared", "rows"), [(False, 7), (True, 30)])
def test_rows_that_come_with_a_far_look_are_joined_unless_other_ranks_are_compared(
    world: World, compared: bool, rows: int
) -> None:
    """Who of several came last is known step by step."""
    calm(world, CALM_TICKS_NS[0][0])
    alarm(world)
    world.core.alarms = [replace(one, compared=compared) for one in world.core.alarms]
    world.look()
    world.kernel.ring = rows_of_even_steps(30, at_ns=world.clock.ns)
    assert len(world.turn(CALM_TICKS_NS[0][1]).events) == rows


def test_while_somebody_follows_the_reports_they_come_as_soon_as_ever(world: World) -> None:
    calm(world, CALM_TICKS_NS[0][0])
    world.followed = True
    world.observer.look_sooner()
    assert world.observer.due_ns() <= world.clock.ns + CALM_TICK_NS
    assert [pause(world) for _ in range(5)] == [CALM_TICK_NS] * 5
    world.followed = False
    pause(world)
    assert pause(world) == CALM_TICKS_NS[0][1]


def test_who_reads_once_in_a_while_finds_what_was_so_when_he_read_before(world: World) -> None:
    """As Prometheus does: without that, rates over a minute would follow when the looks came."""
    calm(world, CALM_TICKS_NS[0][0])
    for _ in range(4):
        looks = len(world.frames)
        world.clock.ns += 15 * NS - 1
        world.observer.look_sooner()
        assert world.observer.due_ns() <= world.clock.ns
        world.turn(1)
        assert len(world.frames) == looks + 1
        assert world.observer.due_ns() > world.clock.ns + CALM_TICK_NS
    assert pause(world) == CALM_TICKS_NS[0][1]


def test_where_the_kernel_can_wake_us_no_alarm_is_asked_after(world: World) -> None:
    alarm(world)
    world.turn(10_000_000, woken=True)
    assert (world.kernel.alarms, world.kernel.tells_ended) == ([7], False), "an uneven training is late all the time"
    assert world.observer.due_ns() == world.clock.ns + TICK_NS
    calm(world)
    assert (world.kernel.alarms, world.kernel.tells_ended) == ([7], True), "where looks are far apart they cannot wait"
    assert world.observer.due_ns() == world.clock.ns + CALM_TICK_NS
    frames = len(world.frames)
    world.turn(100_000_000, woken=True)
    assert len(world.frames) == frames + 1, "and when it wakes us for a late step we look, whatever our own alarm says"
    world.core.alarms = []
    world.turn(CALM_TICK_NS)
    assert world.kernel.alarms == []


def test_even_steps_are_told_together_also_where_a_gpu_is_asked_each_second(world: World) -> None:
    alarm(world)
    world.turn(10_000_000)
    assert not world.kernel.tells_together
    world.sampler.far = False
    calm(world)
    assert (world.kernel.tells_together, world.kernel.tells_ended) == (True, False)
    assert world.observer.due_ns() == world.clock.ns + TICK_NS
    world.core.wanted = FakeWants(detail=True)
    world.turn(TICK_NS)
    assert not world.kernel.tells_together


def row(at_ns: int, kind: RowKind = RowKind.OPTIMIZER, tid: int = 7, *lengths: int) -> MarkRow:
    return MarkRow(kind, at_ns, 7, tid, "", Region.STEP, 1, 1, 1, 0, 1, 0, (), (), (), lengths=lengths)


def test_what_wakes_it_while_all_is_calm_costs_no_look_where_it_is_but_steps(world: World) -> None:
    calm(world, CALM_TICKS_NS[0][0])
    frames, began = len(world.frames), world.clock.ns
    steps = [row(began - 10_000_000 + 70_000_000 * count) for count in range(1, 20)]
    steps.append(row(steps[-1].at_ns + 180_000_000, RowKind.OPTIMIZER, 7, 60_000_000, 60_000_000, 60_000_000))
    for count, some in ((22, steps[:12]), (29, steps[12:])):
        world.kernel.ring = list(some)
        world.kernel.reached[7] = DriverProgress(count, count, some[-1].at_ns)
        world.turn(some[-1].at_ns - world.clock.ns, woken=True)  # another program has begun
    assert len(world.frames) == frames
    assert world.observer.due_ns() == began + CALM_TICKS_NS[0][1] // GLANCES, "the glance is where it was"
    assert world.look().events == (*steps, DEATH)


@pytest.mark.parametrize(
    ("told", "after_ns"),
    [
        ([row(60_000_000), row(145_000_000)], 150_000_000),
        ([row(60_000_000)], 145_000_000),
        ([row(140_000_000, RowKind.OPTIMIZER, 7, 20_000_000, 120_000_000)], 150_000_000),
        ([row(150_000_000, RowKind.OPTIMIZER, 7, 20_000_000, 20_000_000)], 155_000_000),
        ([row(60_000_000, RowKind.EXIT)], 70_000_000),
        ([row(60_000_000, tid=8)], 70_000_000),
        ([row(60_000_000), DEATH], 70_000_000),
    ],
    ids=[
        "a late step has ended",
        "a step is late",
        "one of several was late",
        "their first was late",
        "a thread has ended",
        "another driver",
        "a death",
    ],
)
def test_what_is_more_than_steps_is_looked_at_at_once(world: World, told: list[MarkRow], after_ns: int) -> None:
    calm(world)
    frames, began = len(world.frames), world.clock.ns
    world.kernel.ring = [replace(one, at_ns=began - 10_000_000 + one.at_ns) for one in told]
    world.turn(after_ns - 10_000_000, woken=True)
    assert len(world.frames) == frames + 1


def test_while_all_is_calm_ticks_are_longer_but_alarms_come_as_ever(world: World) -> None:
    world.kernel.has_clock = False
    world.core.wanted = FakeWants(stable_ns=CALM_NS)
    world.turn()
    assert world.observer.due_ns() == world.clock.ns + CALM_TICK_NS
    one = alarm(world)
    world.look()
    assert world.observer.due_ns() == one.limit_ns + SLACK_NS
    world.core.alarms = []
    world.sampler.far = False
    world.turn()
    assert world.observer.due_ns() == world.clock.ns + TICK_NS, "a limit is read each second"


def test_a_driver_whose_ledger_is_gone_is_looked_at(world: World) -> None:
    world.kernel.has_clock = False
    one = alarm(world)
    world.turn(10_000_000)
    frames = len(world.frames)
    world.turn(one.limit_ns + SLACK_NS - world.clock.ns)
    assert len(world.frames) == frames + 1


def test_an_alarm_that_has_passed_does_not_spin(world: World) -> None:
    alarm(world, -1)
    world.turn()
    assert world.observer.due_ns() == world.clock.ns + TICK_NS


def test_targets_that_are_always_due_do_not_spin(world: World) -> None:
    world.turn()
    world.targets.due = 0
    assert world.observer.due_ns() >= world.clock.ns + 10_000_000


def test_while_looks_are_far_apart_so_are_searches(world: World) -> None:
    calm(world, CALM_TICKS_NS[0][0])
    world.targets.due = 0
    began, searches = world.clock.ns, 0
    while world.clock.ns < began + 8 * NS:
        world.clock.ns = max(world.observer.due_ns(), world.clock.ns + 1)
        world.observer.turn(woken=False)
        searches += 1
    assert searches <= 8 + 4, "one each second, and the glances"


def test_a_search_that_finds_nothing_makes_no_frame(world: World) -> None:
    world.turn()
    frames = len(world.frames)
    for _ in range(3):
        world.targets.due = world.clock.ns + 200_000_000
        assert world.observer.due_ns() == world.targets.due
        world.turn(200_000_000)
        assert world.observer.due_ns() > world.clock.ns, "it does not spin"
    assert len(world.frames) == frames


def test_what_a_search_finds_is_in_a_frame_at_once_before_what_the_kernel_told_meanwhile(world: World) -> None:
    world.turn()
    begun = RunStarted("train.py-1", 5, 7, ("python", "train.py"), "user", "/", {})
    world.targets.due, world.targets.found, world.kernel.ring = world.clock.ns + 200_000_000, [begun], [DEATH]
    assert world.turn(200_000_000).events == (begun, DEATH)


def test_who_holds_a_gpu_is_told_to_the_search_for_trainings(world: World) -> None:
    holders = (GpuHolder(70, 1 << 30), GpuHolder(71))
    gpus = (GpuSample(0, holders=holders), GpuSample(1))
    world.sampler.samples = FrameSamples(gpus=gpus)
    world.turn()
    assert world.targets.users == {70, 71}


@pytest.mark.parametrize("event", [DEATH, RankSeen("train", 1, 77, None, 1)])
def test_a_rare_event_is_in_a_report_at_once(world: World, event: Event) -> None:
    world.turn()
    made = len(world.reports)
    world.kernel.ring = [event]
    world.turn(8_000_000, woken=True)
    assert len(world.reports) == made + 1


@pytest.mark.parametrize(
    "event",
    [
        ProcessEvent(ProcessEventKind.EXIT, 1, 77, code=0),
        ProcessEvent(ProcessEventKind.FORK, 1, 77, 7),
        ProcessEvent(ProcessEventKind.SIGNAL, 1, 77, signal=15),
    ],
)
def test_what_a_crowd_does_all_the_time_waits_for_the_next_report(world: World, event: ProcessEvent) -> None:
    world.turn()
    world.turn()
    made = len(world.reports)
    world.kernel.ring = [event]
    assert event in world.turn(8_000_000, woken=True).events
    assert len(world.reports) == made
    world.turn()
    assert len(world.reports) == made + 1


def test_the_end_of_a_run_is_in_a_report_at_once(world: World) -> None:
    world.turn()
    made = len(world.reports)
    world.kernel.ring = [RunEnded("run", 1)]
    world.turn(8_000_000, woken=True)
    assert len(world.reports) == made + 1


def test_reports_come_every_second_otherwise_with_the_tick(world: World) -> None:
    for _ in range(10):
        assert world.observer.due_ns() == (world.clock.ns + TICK_NS if world.frames else 0)
        world.turn()
    assert len(world.reports) == 10


def test_page_faults_are_traced_only_while_the_core_wants_it(world: World) -> None:
    world.turn()
    world.core.wanted = FakeWants(faults=True)
    world.turn()
    world.turn()
    world.core.wanted = FakeWants()
    world.turn()
    assert world.kernel.faults == [True, False]


def test_a_stack_that_hangs_is_a_source_in_error_until_it_ends(world: World) -> None:
    told = []
    for hung in (None, Failed("py-spy hangs", "end process 7"), Failed("py-spy hangs", "end process 7"), None, None):
        world.stacks.hung = hung
        sources = world.turn().sources
        told += [(one.state, one.reason, one.remedy) for one in sources if one.name == "python_stack"]
    assert told == [(SourceStatus.ERROR, "py-spy hangs", "end process 7"), (SourceStatus.UP, "", "")]


def test_stacks_are_asked_for_and_delivered_as_events(world: World) -> None:
    world.core.wanted = FakeWants(stacks=((7, 8),))
    world.turn()
    assert world.stacks.asked == [(7, 8, "r")]
    world.stacks.answer = StackSeen(1, 7, 8, ("f (a.py:1)",))
    assert world.turn().events == (StackSeen(1, 7, 8, ("f (a.py:1)",)),)


def states(frame: Frame) -> dict[str, tuple[SourceStatus, str]]:
    return {state.name: (state.state, state.reason) for state in frame.sources}


def test_how_sources_are_is_told_when_it_changes(world: World) -> None:
    assert states(world.turn()) == {"bpf": (SourceStatus.UP, "")}
    assert world.turn().sources == ()
    world.kernel.broken = RuntimeError("ring gone")
    assert states(world.turn()) == {"bpf": (SourceStatus.ERROR, "RuntimeError: ring gone")}
    world.kernel.broken = None
    assert states(world.turn()) == {"bpf": (SourceStatus.UP, "")}


def test_a_failing_collector_ends_nothing(world: World) -> None:
    world.sampler.broken = True
    assert states(world.turn())["collectors"] == (SourceStatus.ERROR, "OSError: [Errno 5] Input/output error")
    world.sampler.broken = False
    assert states(world.turn())["collectors"] == (SourceStatus.UP, "")


def test_a_failing_core_is_told_and_the_next_frame_is_tried(world: World) -> None:
    world.core.broken = ZeroDivisionError("oops")
    world.turn()
    world.core.broken = None
    frame = world.turn()
    assert states(frame) == {"core": (SourceStatus.ERROR, "ZeroDivisionError: oops")}
    assert states(world.turn()) == {"core": (SourceStatus.UP, "")}
    assert world.observer.finish().events_lost == len(world.core.frames)


def test_a_failing_output_ends_nothing(world: World) -> None:
    def full(report: Report) -> None:
        raise OSError(28, "No space left on device")

    world.observer._outlets = Outlets(world.frames.append, full)
    world.turn()
    assert "No space left" in states(world.turn())["output"][1]


def test_the_last_look_takes_everything(world: World) -> None:
    world.turn()
    world.turn(1_000_000)
    world.kernel.ring = [DEATH]
    world.clock.ns += 1_000_000
    report = world.observer.finish()
    assert world.frames[-1].events == (DEATH,)
    assert world.frames[-1].threads == (SAMPLE,)
    assert report.generated == world.clock().wall_ns / NS


def test_close_takes_everything_out_of_the_kernel(world: World) -> None:
    world.observer.close()
    assert world.kernel.closed
    assert world.stacks.closed


def test_the_cost_of_watching_is_in_the_frames(world: World) -> None:
    costs = [world.turn().cost for _ in range(6)]
    assert [cost is not None for cost in costs] == [True, *[False] * 4, True]
    assert costs[0] is not None
    assert costs[0].cpu_seconds > 0
    assert costs[0].rss_bytes > 1 << 20


def test_instructions_are_counted_while_the_core_wants_them(world: World) -> None:
    world.core.wanted = FakeWants(count=((7, 7),))
    world.sampler.samples = FrameSamples(counted=(CountSample(7, 7, 1, 2, 3),))
    assert world.turn().counted == world.sampler.samples.counted
    assert world.sampler.counted == ((7, 7),)
    world.core.wanted = FakeWants()
    world.turn()
    assert world.sampler.counted == ()
    world.core.wanted = FakeWants(count=((7, 7),))
    world.turn()
    world.observer.close()
    assert world.sampler.counted == (), "no counter outlives us"


def test_processes_and_libraries_that_do_not_answer_are_sources_in_error(world: World) -> None:
    world.targets.silent, world.kernel.unread = (12, 11, 13, 14), [(1000, 15)]
    world.turn()
    told = {state.name: state for state in world.sources.states()}
    assert "process 11, 12, 13 and 1 more" in told["processes"].reason
    assert "process 15" in told["libraries"].reason
    assert "(1000)" in told["libraries"].reason
    assert {told[name].state for name in ("processes", "libraries")} == {SourceStatus.ERROR}
    world.targets.silent, world.kernel.unread = (), []
    world.turn()
    assert {one.state for one in world.sources.states()} == {SourceStatus.UP}
