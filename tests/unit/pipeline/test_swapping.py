"""Steps that read swapped memory back, and steps that must free memory for new one: both are in reclaim."""

from __future__ import annotations

import random

import pytest

from tests.builders.driver import PID, Driver, moment
from trainprobe.model.cells import Leaf
from trainprobe.model.frame import Frame
from trainprobe.model.moment import NS
from trainprobe.model.report import Rank
from trainprobe.model.sample import HostSample, ProcessSample
from trainprobe.pipeline import Pipeline

PAGE_SECONDS = 20e-6
WORKER = PID + 1


class Host:
    """A training beside readings of the host, every two seconds."""

    def __init__(self) -> None:
        self.driver = Driver()
        self.driver.begin()
        self.pipeline = Pipeline()
        self.pages = 7_000_000
        self.worker_faults = 0
        self.driver.fork(WORKER)
        self.driver.train(40)

    def read(self) -> None:
        told = tuple(self.driver.events)
        self.driver.events.clear()
        host = HostSample(2, swap_in_pages=self.pages)
        worker = ProcessSample(WORKER, PID, "worker", 1, major_faults=self.worker_faults)
        self.pipeline.step(Frame(moment(self.driver.now), told, host=host, processes=(worker,)))

    def slow_steps(self, count: int, leaf: Leaf, faults: int, pages: int) -> None:
        """A third of a second each, in which so many major faults come and so many pages are read back."""
        self.read()
        for _ in range(count):
            self.driver.spend(0.3, leaf)
            self.driver.major_faults += faults
            self.pages += pages
            self.driver.step()
            self.driver.train(3)
            self.read()
        self.driver.train(2)
        self.read()

    @property
    def rank(self) -> Rank:
        return self.pipeline.report(moment(self.driver.now)).runs[0].ranks[0]

    @property
    def wants_faults(self) -> bool:
        return self.pipeline.wants().faults


def test_reclaim_that_makes_room_for_pages_read_back_is_swapping() -> None:
    host = Host()
    pages = round(0.3 / PAGE_SECONDS * random.uniform(0.8, 1.5))
    host.slow_steps(5, Leaf.RECLAIM, faults=pages, pages=pages)
    assert host.rank.verdict.cause == "swap", host.rank.verdict
    assert host.rank.lost["swap"] == pytest.approx(4 * 0.3, rel=0.05), "all but the one before a reading told of it"
    assert any("major faults" in e.what and e.value == pages for s in host.rank.stalls for e in s.evidence)


def test_swapping_is_told_from_its_first_step_where_the_kernel_tells_faults_on_files_apart() -> None:
    """No reading of the host told of it before; faults on files beside it do not count."""
    host = Host()
    host.driver.swap_faults = 0
    host.driver.train(2)
    host.read()
    faults = round(0.3 / PAGE_SECONDS * random.uniform(0.8, 1.5))
    for _ in range(5):
        host.driver.spend(0.3, Leaf.RECLAIM)
        host.driver.swap_faults += faults
        host.driver.major_faults += faults + 7000
        host.driver.train(4)
        told = tuple(host.driver.events)
        host.driver.events.clear()
        host.pipeline.step(Frame(moment(host.driver.now), told))
        assert host.wants_faults
    assert host.rank.lost["swap"] == pytest.approx(5 * 0.3, rel=0.05)
    assert any("major faults" in e.what and e.value == faults for s in host.rank.stalls for e in s.evidence)


@pytest.mark.parametrize("stalls", [0, 3])
def test_short_waits_for_swapped_pages_count_where_longer_ones_stalled_the_run(stalls: int) -> None:
    host = Host()
    host.driver.swap_faults = 0
    for long in [True] * stalls + [False] * 6:
        host.driver.train(20)
        host.driver.spend(0.2 if long else 0.02, Leaf.SWAP)
        host.driver.swap_faults += 3000
        host.driver.step()
        host.read()
    assert host.rank.lost.get("swap", 0.0) == pytest.approx(0.2 * stalls + 0.02 * 6 * bool(stalls), rel=0.02)


def test_faults_on_files_alone_are_no_swapping_whatever_the_host_reads() -> None:
    host = Host()
    host.driver.swap_faults = 0
    host.slow_steps(5, Leaf.RECLAIM, faults=15_000, pages=15_000)
    assert host.rank.verdict.cause == "memory_pressure", host.rank.verdict


@pytest.mark.parametrize(("faults", "pages"), [(0, 0), (8, 8), (15_000, 0)], ids=["none", "few", "of files"])
def test_reclaim_for_new_memory_is_pressure(faults: int, pages: int) -> None:
    host = Host()
    host.slow_steps(5, Leaf.RECLAIM, faults=faults, pages=pages)
    assert host.rank.verdict.cause == "memory_pressure", host.rank.verdict
    assert "swap" not in host.rank.lost


def test_page_faults_are_traced_while_the_driver_reads_swapped_memory() -> None:
    host = Host()
    assert not host.wants_faults
    host.slow_steps(2, Leaf.CPU, faults=0, pages=5000)
    assert not host.wants_faults, "somebody else swaps"
    host.slow_steps(2, Leaf.CPU, faults=5000, pages=0)
    assert not host.wants_faults, "they are about files"
    host.slow_steps(2, Leaf.CPU, faults=5000, pages=5000)
    assert host.wants_faults
    host.driver.spend(8)
    host.read()
    host.driver.now += 10 * NS
    host.read()
    assert not host.wants_faults, "it is over"


def test_page_faults_are_traced_while_workers_read_swapped_memory() -> None:
    """The driver never faults: it waits for what its workers make."""
    host = Host()
    for faults, pages, wanted in ((5000, 0, False), (0, 5000, False), (5000, 5000, True)):
        host.driver.train(20)
        host.worker_faults += faults
        host.pages += pages
        host.read()
        assert host.wants_faults == wanted


def test_page_faults_are_traced_from_the_first_look_at_a_late_step() -> None:
    """A stall may be over before the host is read again."""
    host = Host()
    host.read()
    host.driver.spend(0.1)
    host.driver.major_faults += 30
    sample = host.driver.sample()
    host.pipeline.step(Frame(moment(host.driver.now), (), threads=(sample,)))
    assert host.wants_faults
    host.driver.step()
    host.driver.now += 10 * NS
    host.read()
    assert not host.wants_faults, "it is over"
