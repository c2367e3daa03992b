"""A training ends while its last step is late: what its interpreter does then is no stall, and what was published of
the training's own code before that is never taken back."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from tests.builders.driver import Driver, moment, ns
from tests.unit.exporters.told import Told, held_now
from tests.unit.pipeline.test_pipeline import adds_up
from trainprobe.model.cells import Leaf, Region
from trainprobe.model.frame import Frame
from trainprobe.model.report import Rank
from trainprobe.pipeline import Pipeline
from trainprobe_exporters.families import SeriesTable

RUN = "train.py-0123abcd"
LOST = ("trainprobe_stall_seconds_total", "trainprobe_stalls_total", "trainprobe_lost_seconds_total")


class Watched:
    """A training of 40 steps, sampled every tenth of a second, with an exporter that reads each report."""

    def __init__(self) -> None:
        self.driver, self.pipeline, self.series = Driver(), Pipeline(), SeriesTable()
        self.ranks: list[Rank] = []
        self.exported: list[Told] = []
        self.driver.begin()
        self.driver.train(40)
        self.pass_on()

    def pass_on(self, leaf: Leaf = Leaf.CPU) -> None:
        driver, at = self.driver, moment(self.driver.now)
        self.pipeline.step(Frame(at, tuple(driver.events), threads=(driver.sample(leaf),)))
        driver.events.clear()
        report = self.pipeline.report(at)
        self.series.fold(report)
        self.exported.append(held_now(self.series, report.generated))
        self.ranks.append(report.runs[0].ranks[0])
        adds_up(self.ranks[-1])

    def spend(self, seconds: float, leaf: Leaf = Leaf.CPU) -> None:
        for _ in range(round(seconds * 10)):
            self.driver.spend(0.1, leaf)
            self.pass_on(leaf)

    def exit(self, code: int = 0) -> Rank:
        self.driver.exit(code, shutdown=0.05)
        self.pass_on()
        return self.ranks[-1]

    def lost(self) -> dict[object, float]:
        """What is exported as lost after the end."""
        return {key: value for key, value in self.exported[-1].items() if key[0] in LOST and value}


def stall_seconds(rank: Rank) -> float:
    return sum(rank.counters.stall_seconds.values())


@pytest.mark.parametrize("leaf", [Leaf.CPU, Leaf.RUNQUEUE, Leaf.COLLECTOR, Leaf.SLEEP])
@pytest.mark.parametrize("seconds", [0.8, 2.5])
def test_the_end_of_an_interpreter_is_counted_nowhere(leaf: Leaf, seconds: float) -> None:
    """0.7 to 0.85 s of CPU on an idle host, several times that where eight ranks end at once."""
    watched = Watched()
    watched.driver.spend(0.02)
    watched.driver.finalize()
    watched.spend(seconds, leaf)
    rank = watched.exit()
    assert all(stall_seconds(one) == 0 and one.stalls == [] for one in watched.ranks)
    assert watched.lost() == {}
    assert rank.counters.phase_seconds["shutdown"] == pytest.approx(seconds + 0.07, abs=0.03)


@pytest.mark.parametrize("code", [0, 1])
def test_what_was_published_of_the_training_itself_stays_counted_when_it_ends(code: int) -> None:
    watched = Watched()
    watched.spend(3.0)
    published = stall_seconds(watched.ranks[-1])
    assert published == pytest.approx(3.0, abs=0.1)
    watched.driver.finalize()
    watched.spend(0.8)
    rank = watched.exit(code)
    assert stall_seconds(rank) == published
    assert [(stall.cause, stall.seconds) for stall in rank.stalls] == [("cpu_bound", published)]
    assert rank.stalls[0].end == pytest.approx(rank.stalls[0].start + published)
    assert rank.counters.phase_seconds["shutdown"] == pytest.approx(0.85, abs=0.05)
    counted = [(stall_seconds(one), one.totals.stalls, sum(one.lost.values())) for one in watched.ranks]
    assert all(before <= after for one in pairwise(counted) for before, after in zip(*one))
    assert watched.exported[-1].of("trainprobe_stall_seconds_total", run=RUN, rank="0", cause="cpu_bound") == published
    assert watched.exported[-1].of("trainprobe_stalls_total", run=RUN, rank="0", cause="cpu_bound") == 1


def test_a_real_stall_is_published_within_a_second_of_its_limit() -> None:
    watched = Watched()
    limit = watched.driver.now  # the last step began 25 ms ago
    while not watched.ranks[-1].stalls:
        watched.spend(0.1)
        assert watched.driver.now - limit < ns(1.0)


def test_an_end_that_hangs_is_a_stall() -> None:
    watched = Watched()
    watched.driver.finalize()
    watched.spend(2.8, Leaf.LOCK)
    assert watched.ranks[-1].stalls == []
    watched.spend(2.0, Leaf.LOCK)
    assert watched.ranks[-1].stalls[-1].seconds == pytest.approx(4.8, abs=0.1)
    watched.spend(5.0, Leaf.LOCK)
    rank = watched.exit()
    assert stall_seconds(rank) == pytest.approx(9.8, abs=0.1)


@pytest.mark.parametrize("leaf", [Leaf.CPU, Leaf.RUNQUEUE, Leaf.COLLECTOR])
def test_what_an_interpreter_computes_behind_such_a_stall_is_not_part_of_it(leaf: Leaf) -> None:
    watched = Watched()
    watched.driver.finalize()
    watched.spend(4.0, Leaf.SOCKET)
    watched.spend(1.0, leaf)
    rank = watched.exit()
    assert stall_seconds(rank) == rank.counters.stall_seconds["network"] == pytest.approx(4.0, abs=0.1)
    assert rank.counters.phase_seconds["shutdown"] == pytest.approx(1.05, abs=0.1)


def test_swapped_pages_that_an_interpreter_reads_to_free_them_are_no_stall() -> None:
    watched = Watched()
    watched.driver.finalize()
    watched.spend(4.0, Leaf.SWAP)
    rank = watched.exit()
    assert (rank.stalls, rank.lost) == ([], {})


@pytest.mark.parametrize("seconds", [0.3, 4.0])
def test_an_evaluation_before_the_last_save_is_no_part_of_it_however_long_the_end_takes(seconds: float) -> None:
    watched = Watched()
    for _ in range(40):
        watched.driver.fetch(0.002)
        watched.driver.spend(0.02, Leaf.CPU, Region.NO_GRAD)
    watched.driver.write("/out/model.pt", 140_000_000, 1.2)
    watched.pass_on()
    watched.driver.finalize()
    watched.spend(seconds)
    rank = watched.exit()
    assert rank.lost["checkpoint"] == pytest.approx(1.2, abs=0.05)
    assert rank.counters.phase_seconds["evaluation"] == pytest.approx(0.88, abs=0.06)
    adds_up(rank)


@pytest.mark.parametrize(("seconds", "stalls"), [(6.0, 0), (40.0, 1)])
def test_a_teardown_that_a_person_asked_for_is_no_stall_unless_it_takes_very_long(seconds: float, stalls: int) -> None:
    """Ctrl-C in the midst of an epoch: torch gives each worker that does not end 5 s, then ends it."""
    watched = Watched()
    watched.driver.spend(0.02)
    watched.driver.signal(2, 7, "kworker/u8:0", by_user=False)
    watched.spend(seconds, Leaf.POLL)
    watched.driver.finalize()
    watched.driver.exit(None, 2, shutdown=0.05)
    watched.pass_on()
    rank = watched.ranks[-1]
    assert len(rank.stalls) == stalls
    if not stalls:
        assert watched.lost() == {}
        assert rank.counters.phase_seconds["shutdown"] == pytest.approx(seconds + 0.05, abs=0.05)


def trained(*workers: int) -> tuple[Driver, Pipeline]:
    """After 40 steps beside these workers."""
    driver, pipeline = Driver(), Pipeline()
    driver.begin()
    for pid in workers:
        driver.fork(pid)
    driver.train(40)
    pipeline.step(Frame(moment(driver.now), tuple(driver.events)))
    driver.events.clear()
    return driver, pipeline


def ended(driver: Driver, pipeline: Pipeline) -> Rank:
    """What is told after the driver's exit."""
    driver.exit(shutdown=0.05)
    pipeline.step(Frame(moment(driver.now), tuple(driver.events)))
    rank = pipeline.report(moment(driver.now)).runs[0].ranks[0]
    adds_up(rank)
    return rank


@pytest.mark.parametrize(("dies", "state"), [(True, "data_wait"), (False, "other")])
@pytest.mark.parametrize("finalizes", [True, False])
def test_the_wait_for_workers_that_end_is_counted_as_the_rest_of_what_waits_for_them(
    dies: bool, state: str, finalizes: bool
) -> None:
    """Spawned ones take half a second to end. What waits for a queue of its own does not wait for them."""
    driver, pipeline = trained(2001, 2002)
    seconds = random.uniform(0.2, 0.6)
    driver.spend(seconds, Leaf.POLL)
    for pid in (2001, 2002) if dies else ():
        driver.die(pid)
    if finalizes:
        driver.finalize()
    rank = ended(driver, pipeline)
    assert rank.ledger[state] == pytest.approx(seconds, abs=0.05)
    assert rank.stalls == []


@pytest.mark.parametrize("finalizes", [True, False])
@pytest.mark.parametrize("leaf", [Leaf.POLL, Leaf.PIPE_READ])
def test_what_is_waited_for_once_the_workers_have_ended_are_not_they(leaf: Leaf, finalizes: bool) -> None:
    """Workers end with the last epoch; then the training waits for an upload, or for a program that it has started."""
    driver, pipeline = trained(2001)
    ending, upload = random.uniform(0.2, 0.6), random.uniform(20, 60)
    driver.spend(ending, Leaf.POLL)
    driver.die(2001)
    driver.spend(upload, leaf)
    if finalizes:
        driver.finalize()
    rank = ended(driver, pipeline)
    assert rank.ledger["data_wait"] == pytest.approx(ending, abs=0.05)
    assert rank.ledger["other"] == pytest.approx(upload, abs=0.05)


def test_workers_that_end_with_the_interpreter_were_not_waited_for_before() -> None:
    """A loader that keeps its workers (``persistent_workers``)."""
    driver, pipeline = trained(2001)
    upload, ending = random.uniform(20, 60), random.uniform(0.2, 0.6)
    driver.spend(upload, Leaf.POLL)
    driver.finalize()
    driver.spend(ending, Leaf.POLL)
    driver.die(2001)
    rank = ended(driver, pipeline)
    assert rank.ledger["data_wait"] == pytest.approx(ending, abs=0.05)
    assert rank.ledger["other"] == pytest.approx(upload, abs=0.05)
