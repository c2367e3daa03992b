"""Each cause with each ending: what matters most stays the verdict, and the ending is reported beside it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.builders.driver import PID, Driver, moment, played
from tests.unit.pipeline.test_pipeline import adds_up, rank_of
from trainprobe.model.cells import Leaf, Region
from trainprobe.model.event import OomLogged, ProcessEvent, ProcessEventKind
from trainprobe.model.frame import Frame
from trainprobe.model.report import Rank
from trainprobe.pipeline import Pipeline

WORKER, SHELL = 2000, 50
INTERRUPT, ABORT, KILL, FAULT, TERM, CPU_TIME = 2, 6, 9, 11, 15, 24
Step = Callable[[Driver], None]


def finishes(driver: Driver) -> None:
    driver.finalize()
    driver.exit()


def raises(driver: Driver, code: int = 1) -> None:
    driver.spend(0.3)
    driver.finalize()
    driver.exit(code)


def interrupted(driver: Driver) -> None:
    """As CPython does: a traceback, its end with much garbage, and the same signal to itself."""
    driver.signal(INTERRUPT, 7, "kworker/u8:0", by_user=False)
    driver.spend(1.6, Leaf.COLLECTOR)
    driver.finalize()
    driver.spend(0.6)
    driver.signal(INTERRUPT, PID, "python")
    driver.exit(None, INTERRUPT, 0.0)


def interrupted_in_code(driver: Driver, code: int = 130) -> None:
    driver.signal(INTERRUPT, SHELL, "bash")
    raises(driver, code)


def closed_by_its_client(driver: Driver) -> None:
    """As a notebook's client does when every cell has run: the kernel is interrupted, and ends well."""
    driver.signal(INTERRUPT, WORKER, "python")
    finishes(driver)


def killed(driver: Driver, number: int = KILL, sender: int = SHELL, name: str = "bash") -> None:
    driver.signal(number, sender, name)
    driver.exit(None, number, 0.0)


def kills_itself(driver: Driver) -> None:
    killed(driver, TERM, PID, "python")


def killed_by_worker(driver: Driver) -> None:
    killed(driver, KILL, WORKER, "pt_data_worker")


def times_out(driver: Driver) -> None:
    """With a second signal: ``timeout -k``."""
    driver.signal(TERM, SHELL, "timeout")
    driver.signal(18, SHELL, "timeout")
    driver.spend(0.05)
    killed(driver, KILL, SHELL, "timeout")


def times_out_beside_us(driver: Driver) -> None:
    driver.signal(TERM, 60, "trainprobe")
    killed(driver, TERM, SHELL, "timeout")


def runs_out_of_cpu_time(driver: Driver) -> None:
    driver.signal(CPU_TIME, 7, "python", by_user=False)
    driver.exit(None, CPU_TIME, 0.0)


def aborts(driver: Driver, thread: str = "pt_nccl_watchdg") -> None:
    killed(driver, ABORT, PID, thread)


def crashes(driver: Driver) -> None:
    driver.signal(FAULT, PID, "python", by_user=False)
    driver.exit(None, FAULT, 0.0)


def runs_out_of_memory(driver: Driver) -> None:
    driver.signal(KILL, 7, "python", by_user=False)
    driver.events.append(ProcessEvent(ProcessEventKind.OOM, driver.now, PID))
    driver.events.append(OomLogged(driver.now, PID, "host"))
    driver.exit(None, KILL, 0.0)


def is_killed_to_keep_memory(driver: Driver) -> None:
    killed(driver, TERM, 70, "earlyoom")


def runs(driver: Driver) -> None:
    driver.signal(TERM, SHELL, "bash")
    driver.spend(0.01)


def input_bound(driver: Driver) -> None:
    for _ in range(40):
        driver.fetch(0.2, Leaf.SLEEP, inline=True)
        driver.spend(0.02)
        driver.backward()
        driver.optimizer()


def stalls_early(driver: Driver) -> None:
    driver.train(40)
    driver.spend(3.0)
    driver.train(40)


def clean(driver: Driver) -> None:
    driver.train(40)


ENDINGS: dict[Step, str] = {
    finishes: "finished", closed_by_its_client: "finished", raises: "exception", interrupted: "interrupted",
    interrupted_in_code: "interrupted", killed: "killed", kills_itself: "own_kill", killed_by_worker: "own_kill",
    times_out: "timeout", times_out_beside_us: "timeout", runs_out_of_cpu_time: "timeout", aborts: "watchdog",
    crashes: "exception", runs_out_of_memory: "oom", is_killed_to_keep_memory: "oom", runs: "running",
}  # fmt: skip
FAILURES = {raises, killed, aborts, crashes, runs_out_of_memory, is_killed_to_keep_memory}
CAUSES: dict[Step, tuple[str, str | None]] = {
    input_bound: ("bottleneck", "data_inline"), stalls_early: ("stall", "cpu_bound"), clean: ("none", None),
}  # fmt: skip


class Watched:
    """A training with one worker, sampled every tenth of a second while it is late."""

    def __init__(self, before: Step = clean) -> None:
        self.driver, self.pipeline = Driver(), Pipeline()
        self.driver.begin()
        self.driver.fork(WORKER)
        before(self.driver)
        played(self.driver, self.pipeline)

    def late(self, seconds: float, leaf: Leaf = Leaf.CPU, region: Region | None = None) -> None:
        for _ in range(round(seconds * 10)):
            self.driver.spend(0.1, leaf, region)
            self.pipeline.step(Frame(moment(self.driver.now), threads=(self.driver.sample(leaf),)))

    def ends(self, how: Step) -> Rank:
        how(self.driver)
        played(self.driver, self.pipeline)
        rank = self.pipeline.report(moment(self.driver.now)).runs[0].ranks[0]
        if how is not runs:  # its last sample is older than the report
            adds_up(rank)
        return rank


def verdict(rank: Rank) -> tuple[str, str | None]:
    return rank.verdict.kind, rank.verdict.cause


@pytest.mark.parametrize("how", ENDINGS, ids=lambda how: how.__name__)
@pytest.mark.parametrize("cause", CAUSES, ids=lambda cause: cause.__name__)
def test_only_a_failure_outranks_what_was_lost(cause: Step, how: Step) -> None:
    rank = Watched(cause).ends(how)
    assert rank.exit is not None
    assert rank.exit.ending == ENDINGS[how]
    if how not in FAILURES:
        assert verdict(rank) == CAUSES[cause]
    else:
        assert verdict(rank) == ("end", "oom_kill" if ENDINGS[how] == "oom" else None)
    assert "gc_pause" not in rank.lost
    assert {warning.cause for warning in rank.warnings} <= {"oom_kill"}


@pytest.mark.parametrize("how", [how for how in ENDINGS if how not in (runs_out_of_memory, is_killed_to_keep_memory)])
def test_a_hang_after_the_last_step_keeps_its_verdict(how: Step) -> None:
    watched = Watched()
    watched.late(8.0, Leaf.SLEEP, Region.FETCH)
    rank = watched.ends(how)
    assert verdict(rank) == ("stall", "unknown")
    assert rank.lost["unknown"] == pytest.approx(8.0, abs=0.15)
    assert rank.exit is not None
    assert rank.exit.ending == ENDINGS[how]


@pytest.mark.parametrize("how", ENDINGS, ids=lambda how: how.__name__)
def test_an_end_before_the_first_step_is_told_with_its_reason(how: Step) -> None:
    watched = Watched(lambda _: None)
    watched.late(0.1)
    rank = watched.ends(how)
    assert rank.exit is not None
    if how in (finishes, closed_by_its_client, runs):
        assert rank.verdict.kind == "none"
    elif ENDINGS[how] != "oom":
        assert verdict(rank) == ("end", None)
        assert rank.verdict.summary == f"{rank.exit.reason} before the first training step"


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        (raises, "exit code 1"),
        (interrupted, "interrupted (Ctrl-C)"),
        (interrupted_in_code, "interrupted by SIGINT, sent by bash (50)"),
        (killed, "killed by signal 9 by bash (50)"),
        (kills_itself, "ended by a signal of its own, 15"),
        (killed_by_worker, "ended by a signal of its own, 9 by pt_data_worker (2000)"),
        (times_out, "timed out: signal 15 by timeout (50)"),
        (times_out_beside_us, "timed out: signal 15 by timeout (50)"),
        (aborts, "aborted by a watchdog: signal 6"),
        (crashes, "killed by signal 11"),
        (is_killed_to_keep_memory, "killed for want of memory by earlyoom (70)"),
    ],
)
def test_the_reason_names_who_did_it(how: Step, reason: str) -> None:
    rank = Watched().ends(how)
    assert rank.exit is not None
    assert rank.exit.reason == reason


@pytest.mark.parametrize("seconds", [2.0, 6.0])
def test_a_computation_after_the_last_step_is_a_stall_and_torchs_end_is_not(seconds: float) -> None:
    watched = Watched()
    watched.late(seconds)
    rank = watched.ends(finishes)
    assert rank.lost == {"cpu_bound": pytest.approx(seconds, abs=0.1)}
    assert rank.counters.phase_seconds["shutdown"] == pytest.approx(0.6, abs=0.05)


@pytest.mark.parametrize("seen", [False, True])
def test_a_loader_that_waits_for_its_workers_to_end_is_shutdown_unless_it_was_published(seen: bool) -> None:
    watched = Watched()
    if seen:
        watched.late(2.0, Leaf.SLEEP, Region.FETCH)
    else:
        watched.driver.spend(2.0, Leaf.SLEEP, Region.FETCH)
    watched.driver.die(WORKER)
    rank = watched.ends(finishes)
    assert rank.lost == ({"unknown": pytest.approx(2.0, abs=0.1)} if seen else {})


def test_what_is_computed_while_a_traceback_is_printed_is_shutdown() -> None:
    watched = Watched()
    watched.driver.spend(2.0)
    rank = watched.ends(raises)
    assert rank.lost == {}
    assert rank.counters.phase_seconds["shutdown"] > 2.5


def test_workers_that_a_failed_training_kills_are_a_consequence() -> None:
    watched = Watched()
    watched.late(8.0, Leaf.POLL, Region.FETCH)
    watched.driver.signal(KILL, PID, "python", pid=WORKER)
    watched.driver.die(WORKER, None, KILL)
    rank = watched.ends(raises)
    assert verdict(rank)[0] == "stall"
    assert rank.warnings == []
    assert "a consequence" in rank.stalls[-1].chain[-1]


def test_a_worker_that_the_training_kills_in_an_ordinary_step_died() -> None:
    watched = Watched()
    watched.driver.signal(KILL, PID, "python", pid=WORKER)
    watched.driver.die(WORKER, None, KILL)
    assert verdict(watched.ends(raises)) == ("end", "worker_death")


def test_workers_that_get_the_signal_too_did_not_end_the_training() -> None:
    watched = Watched(input_bound)
    watched.driver.die(WORKER, None, TERM, sender=SHELL)
    watched.driver.spend(0.01)
    rank = watched.ends(lambda driver: killed(driver, TERM))
    assert verdict(rank) == ("bottleneck", "data_inline")
    assert rank.warnings == []


def test_a_signal_that_the_training_went_on_after_did_not_end_it() -> None:
    watched = Watched()
    watched.driver.signal(TERM, SHELL, "bash")
    watched.driver.train(40)
    rank = watched.ends(raises)
    assert rank.exit is not None
    assert rank.exit.ending == "exception"


@pytest.mark.parametrize(("number", "ending"), [(TERM, "finished"), (INTERRUPT, "interrupted")])
def test_a_training_that_saves_on_a_signal_and_returns_0(number: int, ending: str) -> None:
    watched = Watched()
    watched.driver.signal(number, SHELL, "bash")
    rank = watched.ends(finishes)
    assert rank.exit is not None
    assert (rank.exit.ending, rank.verdict.kind) == (ending, "none")


def test_a_launcher_that_ends_the_other_ranks_is_a_watchdog_and_no_failure_of_theirs() -> None:
    driver, pipeline = Driver(), Pipeline()
    driver.begin()
    started = driver.events[0]
    object.__setattr__(started, "launcher_pid", 40)
    object.__setattr__(started, "command", ("torchrun", "train.py"))
    stalls_early(driver)
    killed(driver, TERM, 40, "torchrun")
    rank = played(driver, pipeline).report(moment(driver.now)).runs[0].ranks[0]
    assert rank.exit is not None
    assert (rank.exit.ending, rank.exit.reason) == ("watchdog", "ended by its launcher: signal 15 by torchrun (40)")
    assert verdict(rank) == ("stall", "cpu_bound")


def test_who_was_cut_off_without_any_loss_is_not_called_healthy() -> None:
    driver = Driver()
    driver.begin()
    driver.train(200)
    times_out(driver)
    rank = rank_of(played(driver), driver)
    assert (rank.verdict.kind, rank.lost) == ("none", {})
    assert rank.verdict.summary.startswith("timed out")
    assert rank.verdict.summary.endswith("after 200 steps; until then nothing was lost that is worth a change")


def test_evaluations_that_take_much_of_the_run_have_an_interval_among_the_changes() -> None:
    driver = Driver()
    driver.begin()
    for _ in range(5):
        driver.train(50)
        for _ in range(40):
            driver.fetch(0.002)
            driver.spend(0.03, Leaf.CPU, Region.NO_GRAD)
    driver.train(20)
    driver.exit()
    rank = rank_of(played(driver), driver)
    (change,) = [one for one in rank.changes if one.cause == "evaluation"]
    share = rank.counters.phase_seconds["evaluation"] / rank.wall_seconds
    assert share > 0.25
    assert change.advice[0].startswith("evaluate every ")
    assert "instead of every 50, or on less data" in change.advice[0]


@pytest.mark.parametrize(("code", "ending", "kind"), [(128 + TERM, "killed", "none"), (1, "exception", "end")])
def test_who_takes_his_time_to_end_for_a_signal_says_so_by_his_exit_code(code: int, ending: str, kind: str) -> None:
    """It ends its epoch and saves."""
    watched = Watched()
    watched.driver.signal(TERM, SHELL, "bash")
    watched.driver.train(400)
    rank = watched.ends(lambda driver: raises(driver, code))
    assert rank.exit is not None
    assert (rank.exit.ending, rank.verdict.kind) == (ending, kind)
    assert ("by bash" in rank.exit.reason) == (ending == "killed")
