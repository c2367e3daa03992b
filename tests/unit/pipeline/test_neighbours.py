"""Who takes the processors, what the quota did, and what the last minute was like before a stall."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.builders.driver import Driver, moment, played
from tests.unit.pipeline.test_growing_steps import two_ranks
from tests.unit.pipeline.test_late_steps import started
from tests.unit.pipeline.test_pipeline import adds_up, rank_of
from trainprobe.derive.host.quota import Quota
from trainprobe.derive.steps.black_box import SECONDS, BlackBoxRing
from trainprobe.model.cells import Leaf, ThreadState
from trainprobe.model.frame import Frame
from trainprobe.model.moment import NS
from trainprobe.model.sample import HostSample, ProcessSample, QuotaSample, RivalSample

RUN = "train.py-0123abcd"


def test_contention_names_its_rivals_its_own_and_what_the_hypervisor_took() -> None:
    driver, pipeline = started()
    pipeline.step(Frame(moment(driver.now), host=HostSample(cpus=4, steal_ns=0)))
    driver.spend(1.0, Leaf.RUNQUEUE)
    queued = replace(driver.sample(Leaf.RUNQUEUE), run=ThreadState.RUNNABLE)
    pipeline.step(Frame(moment(driver.now), threads=(queued,), host=HostSample(cpus=4, steal_ns=200_000_000)))
    assert pipeline.wants().rivals
    rivals = (RivalSample(77, "stress", 1.9, 1), RivalSample(2000, "python", 0.9, 8), RivalSample(5, "idle", 0.06, 1))
    driver.spend(0.5, Leaf.RUNQUEUE)
    played(driver, pipeline, rivals=rivals)
    driver.train(20)
    stall = rank_of(played(driver, pipeline), driver).stalls[-1]
    assert stall.cause == "cpu_contention"
    assert stall.summary == "runnable without a CPU for 1.50 s beside stress (77), which is not this training's"
    assert stall.chain[1:] == [
        "others use 1.9 CPUs: stress (77) 1.9",
        "the training itself uses 0.9 CPUs in 1 process of 8 threads",
        "the hypervisor took 5.0 % of the processors",
    ]


def test_programs_of_one_name_are_all_counted() -> None:
    driver, pipeline = started()
    driver.spend(1.0, Leaf.RUNQUEUE)
    played(driver, pipeline, rivals=tuple(RivalSample(pid, "burn", 0.3, 1) for pid in (71, 72, 73, 74)))
    driver.train(20)
    stall = rank_of(played(driver, pipeline), driver).stalls[-1]
    assert "burn with up to 1.2 CPUs" in stall.advice[0]


@pytest.mark.parametrize(
    ("stalls", "told"),
    [
        (1, "in 1 stall: runnable without a CPU for 300 ms, in the longest of its 3 steps"),
        (2, "in 2 stalls; the longest lasted 900 ms in 3 steps, one of them: runnable without a CPU for 300 ms"),
    ],
)
def test_the_headline_gives_no_steps_seconds_as_those_of_a_stall_of_several(stalls: int, told: str) -> None:
    driver, pipeline = started()
    for _ in range(stalls):
        for _ in range(3):
            driver.spend(0.3, Leaf.RUNQUEUE)
            driver.train(1)
        driver.train(20)
    rank = rank_of(played(driver, pipeline), driver)
    assert [stall.steps for stall in rank.stalls] == [3] * stalls
    assert told in rank.verdict.summary


def test_the_trainings_own_threads_are_held_against_its_quota() -> None:
    driver, pipeline = started()
    played(driver, pipeline, quotas=(QuotaSample(RUN, 10, 0, 0, quota_cpus=1.5),))
    driver.spend(1.0, Leaf.RUNQUEUE)
    quota = QuotaSample(RUN, 30, 0, 0, quota_cpus=1.5)
    played(driver, pipeline, rivals=(RivalSample(2000, "python", 0.9, 8),), quotas=(quota,))
    driver.train(20)
    stall = rank_of(played(driver, pipeline), driver).stalls[-1]
    assert stall.cause == "cpu_contention"
    assert stall.chain[-1].endswith("0.9 CPUs in 1 process of 8 threads; its quota is 1.5 CPUs")


def test_the_other_ranks_of_the_run_are_no_others() -> None:
    first, second, pipeline = two_ranks()
    for driver in (first, second):
        driver.spend(1.0, Leaf.RUNQUEUE)
    rivals = (RivalSample(second.pid, "python", 0.9, 4), RivalSample(77, "stress", 0.7, 1))
    used = (ProcessSample(first.pid, 1, "driver", 0), ProcessSample(second.pid, 1, "driver", 0))
    played(first, pipeline, rivals=rivals, processes=used)
    first.train(20)
    ranks = played(first, pipeline).report(moment(first.now)).runs[0].ranks
    [stall] = next(rank for rank in ranks if rank.pid == first.pid).stalls
    assert stall.chain[1:] == [
        "others use 0.7 CPUs: stress (77) 0.7",
        "the training itself uses 0.9 CPUs in 1 process of 4 threads",
    ]


def test_nobody_is_asked_for_while_the_driver_runs() -> None:
    driver, pipeline = started()
    for _ in range(3):
        driver.train(20)
        played(driver, pipeline, threads=(driver.sample(),))
    assert not pipeline.wants().rivals


def test_of_all_steps_who_competed_most_is_named_and_no_worker_that_has_ended_since() -> None:
    driver, pipeline = started()
    driver.fork(2000)
    looks = ((RivalSample(2000, "python", 0.9, 1), RivalSample(77, "burn", 0.5, 1)), (RivalSample(78, "cat", 0.25, 1),))
    for rivals in looks:
        for _ in range(30):
            driver.spend(0.02, Leaf.RUNQUEUE)
            driver.train(1)
        played(driver, pipeline, rivals=rivals)
        driver.die(2000)
    (bottleneck,) = rank_of(played(driver, pipeline), driver).bottlenecks
    assert bottleneck.cause == "cpu_contention"
    assert bottleneck.summary.endswith(" beside burn (77), which is not this training's")


def test_rivals_of_another_time_are_not_blamed() -> None:
    driver, pipeline = started()
    played(driver, pipeline, rivals=(RivalSample(77, "stress", 1.9, 1),))
    driver.train(20)
    driver.spend(1.0, Leaf.RUNQUEUE)
    driver.train(20)
    stall = rank_of(played(driver, pipeline), driver).stalls[-1]
    assert "stress" not in stall.summary


def quota(periods: int, throttled: int, ns: int) -> QuotaSample:
    return QuotaSample(RUN, periods, throttled, ns, 0.5, "/docker/abc")


def test_throttling_is_told_with_the_quota_and_its_periods() -> None:
    driver, pipeline = started()
    played(driver, pipeline, quotas=(quota(100, 3, 0),))
    driver.spend(1.2, Leaf.THROTTLED)
    played(driver, pipeline, quotas=(quota(112, 14, 2 * NS),))
    driver.train(20)
    stall = rank_of(played(driver, pipeline), driver).stalls[-1]
    assert stall.cause == "cpu_throttled"
    assert "quota of 0.5 CPUs" in stall.summary
    assert stall.chain[1] == "cgroup /docker/abc: quota used up in 11 of 12 periods"


@pytest.mark.parametrize(
    ("after", "told"),
    [
        ([Leaf.THROTTLED], 1.235),
        ([Leaf.THROTTLED, Leaf.THROTTLED], 1.235),
        ([Leaf.RUNQUEUE], 1.2),
        ([None, Leaf.THROTTLED], 1.2),
    ],
)
def test_a_quota_that_is_enough_again_in_the_midst_of_a_step_took_its_begin_too(
    after: list[Leaf | None], told: float
) -> None:
    driver, pipeline = started()
    driver.spend(1.2, Leaf.THROTTLED)
    driver.train(1)
    for leaf in after:
        if leaf is not None:
            driver.spend(0.035, leaf)
        driver.train(1)
    driver.train(20)
    rank = rank_of(played(driver, pipeline), driver)
    (stall,) = rank.stalls
    assert stall.seconds == pytest.approx(told, abs=0.004)
    assert stall.steps == (2 if told > 1.2 else 1)
    assert rank.lost == {"cpu_throttled": pytest.approx(told, abs=0.004)}
    adds_up(rank)


def test_a_quota_is_compared_within_its_cgroup_only() -> None:
    book = Quota()
    assert book.over(0, 10) is None
    book.add_sample(quota(100, 3, 0), 1)
    assert book.over(0, 10) is None
    book.add_sample(replace(quota(5, 1, 0), cgroup="/other"), 2)
    assert book.over(0, 10) is None
    book.add_sample(replace(quota(8, 2, 7), cgroup="/other"), 3)
    bitten = book.over(0, 10)
    assert bitten is not None
    assert (bitten.periods, bitten.throttled_periods, bitten.throttled_ns) == (3, 1, 7)


def test_a_long_stall_keeps_the_minute_before_it() -> None:
    driver = Driver()
    driver.begin()
    pipeline = played(driver)
    for second in range(80):
        driver.train(20)
        host = HostSample(cpus=2, available_bytes=1000 - second, pressure={"io.some": 0.25 * second})
        sample = ProcessSample(driver.pid, 1, "driver", 0, pss_bytes=100 + second)
        played(driver, pipeline, host=host, processes=(sample,))
    begin = driver.now
    driver.spend(2.5, Leaf.SOCKET)
    sample_now = (driver.sample(Leaf.SOCKET),)
    opened = rank_of(played(driver, pipeline, threads=sample_now), driver).stalls[-1].black_box
    driver.train(20)
    stall = rank_of(played(driver, pipeline), driver).stalls[-1]
    box = stall.black_box
    assert box is not None
    assert opened is not None
    assert opened.start[-1] <= box.start[-1]
    assert 58 <= len(box.start) <= SECONDS
    assert moment(begin).wall_ns / NS - 62 < box.start[0] < box.start[-1] < stall.start
    assert set(box.steps[1:-1]) == {20}
    assert box.longest_seconds[5] == pytest.approx(0.05)
    assert box.available_bytes[-1] is not None
    assert box.io_pressure[10] == pytest.approx(0.25, abs=0.01)
    assert box.cpu_pressure[10] is None


def test_only_the_latest_long_stalls_keep_theirs() -> None:
    driver = Driver()
    driver.begin()
    driver.train(40)
    for seconds in (1.2, 1.2, 1.2, 1.2, 1.2, 1.2, 0.3):
        driver.spend(seconds, Leaf.SOCKET)
        driver.train(30)
    stalls = rank_of(played(driver), driver).stalls
    assert [stall.black_box is not None for stall in stalls] == [False, False, True, True, True, True, False]


def test_the_ring_is_bounded() -> None:
    box = BlackBoxRing()
    for second in range(500):
        box.steps(second * NS - 1000, (1000,))
    assert len(box.seconds) == SECONDS
    assert len(box.before(499 * NS)) == SECONDS - 1
