"""What an ordinary step waits for is lost, whatever it is; the exceptions are the process's own threads, the transfer
of collectives and ready batches."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.builders.driver import Driver, moment, played
from tests.unit.pipeline.test_gpus import reading
from tests.unit.pipeline.test_growing_steps import two_ranks
from tests.unit.pipeline.test_limits import Host
from tests.unit.pipeline.test_pipeline import adds_up, rank_of
from trainprobe.model.cells import Leaf, Region
from trainprobe.model.event import RankSeen
from trainprobe.model.frame import Frame
from trainprobe.model.moment import NS
from trainprobe.model.report import Rank
from trainprobe.model.sample import HostSample, ProcessSample
from trainprobe.pipeline.bottlenecks import HANDOVER_NS

STEP = 0.05
WAITS = (
    *(Leaf.LOCK, Leaf.POLL, Leaf.PIPE_READ, Leaf.SOCKET, Leaf.CHILD, Leaf.DEVICE, Leaf.OTHER, Leaf.STOPPED),
    *(Leaf.RUNQUEUE, Leaf.THROTTLED, Leaf.RECLAIM, Leaf.SWAP, Leaf.FAULT, Leaf.FILE_READ),
)
OWN = ((Leaf.LOCK, Region.BACKWARD), (Leaf.LOCK, Region.OPTIMIZER))
BELOW = 0.05 + 1e-9
"""Of ordinary steps: what no state's limit is above."""


def made_of(
    *parts: tuple[float, Leaf, Region], workers: bool = False, steps: int = 60, pool: float = 0.0, threads: int = 0
) -> Rank:
    """A training whose every step is so long in such calls, beside 50 ms of computing."""
    driver = Driver()
    driver.begin()
    if workers:
        driver.fork(2000)
    for _ in range(steps):
        driver.fetch(0.0002, Leaf.CPU)
        if workers:
            driver.work(pool)
        for seconds, leaf, region in parts:
            driver.spend(seconds, leaf, region)
        driver.step(STEP / 2)
    driver.exit()
    return rank_of(played(driver), driver)


@settings(max_examples=150)
@example(parts=[(0.0234375, Leaf.LOCK, Region.STEP), (0.00390625, Leaf.FILE_READ, Region.STEP),
          (0.00145332, Leaf.POLL, Region.STEP)], workers=False)  # fmt: skip
@given(
    st.lists(
        st.tuples(
            st.floats(0.0, 0.03),
            st.sampled_from(WAITS),
            st.sampled_from((Region.STEP, Region.BACKWARD, Region.OPTIMIZER, Region.NO_GRAD)),
        ),
        max_size=4,
    ),
    st.booleans(),
)
def test_whatever_an_ordinary_step_waits_for_is_lost(parts: list[tuple[float, Leaf, Region]], workers: bool) -> None:
    rank = made_of(*parts, workers=workers)
    adds_up(rank)
    assert rank.ordinary.count
    assert rank.ordinary.seconds
    waits = sum(seconds for seconds, leaf, region in parts if (leaf, region) not in OWN)
    lost = sum(one.seconds for one in rank.bottlenecks)
    own = max((seconds for seconds, leaf, region in parts if (leaf, region) in OWN), default=0.0)
    least = waits - own * 10  # barriers of the compute threads show in forward, too
    if workers:  # idle ones have their batches ready
        least -= HANDOVER_NS / NS * (rank.ordinary.fetches or 0.0)
    noise = BELOW * rank.ordinary.seconds * len({leaf for _, leaf, _ in parts})
    assert lost / rank.ordinary.count >= least - noise
    fetch = rank.ordinary.states["data_wait"]  # of each step, beside the parts
    assert lost / rank.ordinary.count <= waits + fetch + 0.0001
    if rank.verdict.kind == "none":
        assert sum(rank.lost.values()) < 0.02 * rank.wall_seconds
        assert rank.bound.by != "input"


@pytest.mark.parametrize(
    ("seconds", "leaf", "cause"),
    [
        (0.012, Leaf.LOCK, "unknown"),
        (0.012, Leaf.CHILD, "unknown"),
        (0.012, Leaf.STOPPED, "unknown"),
        (0.003, Leaf.SWAP, "swap"),
        (0.003, Leaf.RECLAIM, "memory_pressure"),
        (0.003, Leaf.FAULT, "data_storage"),
        (0.004, Leaf.SOCKET, "network"),
        (0.004, Leaf.RUNQUEUE, "cpu_contention"),
    ],
)
def test_a_wait_in_each_step_has_its_cause(seconds: float, leaf: Leaf, cause: str) -> None:
    rank = made_of((seconds, leaf, Region.STEP))
    assert [one.cause for one in rank.bottlenecks] == [cause]
    assert rank.lost[cause] == pytest.approx(seconds * rank.ordinary.count, rel=0.01)
    assert rank.verdict.cause == cause


def test_a_pause_in_each_step_is_not_lost_and_no_computing() -> None:
    rank = made_of((0.012, Leaf.SLEEP, Region.STEP))
    assert rank.lost == {}
    assert (rank.bound.by, rank.bound.why) == ("unknown", "the training thread sleeps for 19.0 % of a step")
    assert made_of((0.002, Leaf.SLEEP, Region.STEP)).bound.by == "compute"


def test_who_reads_files_in_its_steps_is_not_called_compute_bound_or_healthy() -> None:
    """Archives that the training thread inflates: the reads are short, the decoding is computing like any other."""
    rank = made_of((0.0001, Leaf.READ_CPU, Region.STEP))
    assert rank.lost == {}
    assert rank.bound.by == "compute", "a loader fetches, too"
    driver = Driver()
    driver.begin()
    for _ in range(60):
        driver.spend(0.0001, Leaf.READ_CPU)
        driver.spend(0.024)
        driver.backward()
        driver.optimizer()
    driver.exit()
    rank = rank_of(played(driver), driver)
    assert (rank.bound.by, rank.verdict.kind) == ("unknown", "none")
    assert "reads files in its steps" in rank.verdict.summary


def test_a_wait_that_nobody_explains_is_no_computing() -> None:
    """As a loader's own thread that sleeps: who waits for it at a queue is not bound by computing."""
    rank = made_of((0.012, Leaf.LOCK, Region.STEP))
    assert rank.bound.by == "unknown"
    assert rank.bound.why == "for 19.0 % of its training time no cause is known"
    assert made_of((0.002, Leaf.LOCK, Region.STEP)).bound.by == "compute"


def test_a_pool_that_answers_through_a_thread_is_waited_for_at_a_lock() -> None:
    """As batchgenerators' queue: the workers make batches, the driver waits for its own thread that hands them over."""
    driver = Driver()
    driver.begin()
    driver.fork(2000)
    for _ in range(60):
        driver.work(0.05)
        driver.spend(0.012, Leaf.LOCK, Region.STEP)
        driver.spend(0.024)
        driver.backward()
        driver.optimizer()
    driver.exit()
    rank = rank_of(played(driver), driver)
    assert [one.cause for one in rank.bottlenecks] == ["data_cpu"]
    assert rank.bottlenecks[0].share == pytest.approx(0.012 / 0.061, rel=0.01)


def test_ready_batches_are_taken_over_for_nothing_also_where_late_ones_stall() -> None:
    driver = Driver()
    driver.begin()
    driver.fork(2000)
    for number in range(200):
        driver.work(0.01)
        if number % 40 == 39:
            driver.work(1.0)
            driver.spend(1.0, Leaf.POLL, Region.FETCH)
        driver.spend(0.001, Leaf.SOCKET, Region.FETCH)
        driver.fetch(0.0015)
        driver.spend(0.024)
        driver.backward()
        driver.optimizer()
    driver.exit()
    rank = rank_of(played(driver), driver)
    assert {stall.cause for stall in rank.stalls} == {"data_cpu"}
    assert rank.bottlenecks == []


def test_waits_for_the_own_compute_threads_are_not_lost() -> None:
    """Four OpenMP threads on two processors: barriers in forward, backward and the optimiser alike."""
    rank = made_of(
        (0.014, Leaf.LOCK, Region.STEP), (0.012, Leaf.LOCK, Region.BACKWARD), (0.002, Leaf.LOCK, Region.OPTIMIZER)
    )
    assert rank.lost == {}
    assert rank.verdict.kind == "none"


def beside(others: float) -> Rank:
    """A training whose driver is runnable and has no processor for a fifth of each step, on two processors of which
    other programs use such a part."""
    driver = Driver()
    driver.begin()
    pipeline, idle, own = played(driver), 0, 0
    for step in range(400):
        driver.spend(0.012, Leaf.RUNQUEUE, Region.STEP)
        driver.step()
        if step % 50 == 0:
            own = int(driver.now * (2 - others))
            sample = ProcessSample(driver.pid, 1, "driver", 0, cpu_ns=own)
            played(driver, pipeline, processes=(sample,), host=HostSample(cpus=2, idle_ns=idle))
    driver.exit()
    return rank_of(played(driver, pipeline), driver)


def test_a_processor_that_the_own_threads_have_is_not_lost() -> None:
    assert beside(0.02).lost == {}
    assert beside(1.0).verdict.cause == "cpu_contention"


def ranks_beside(others: float, threads: float, cpus: int = 2) -> list[Rank]:
    """Two ranks that compute for half of each step and wait for a processor for a fifth of it. ``threads``: CPU time of
    each process in parts of its driver's; other programs use the part ``others`` of all processors."""
    first, second, pipeline = two_ranks()
    launcher = RankSeen("train.py-0123abcd", first.now, 999, None, first.now)  # torchrun maps libtorch, too
    pipeline.step(Frame(moment(first.now), (launcher,)))
    start, own = first.now, 0.5 * threads
    for step in range(400):
        for driver in (first, second):
            driver.spend(0.012, Leaf.RUNQUEUE, Region.STEP)
            driver.spend(0.018, Leaf.SLEEP, Region.STEP)
            driver.step(0.015)
        if step % 50 == 0:
            spent = first.now - start
            host = HostSample(cpus=cpus, idle_ns=int(spent * (cpus * (1 - others) - 2 * own)))
            used = tuple(ProcessSample(d.pid, 1, "driver", 0, cpu_ns=int(spent * own)) for d in (first, second))
            events = sorted((*first.events, *second.events), key=lambda event: event.at_ns)
            pipeline.step(Frame(moment(first.now), tuple(events), processes=used, host=host))
            first.events.clear()
            second.events.clear()
    return list(pipeline.report(moment(first.now)).runs[0].ranks)


def test_ranks_that_have_a_processor_each_lose_nothing_to_the_threads_of_their_collectives() -> None:
    assert [rank.lost for rank in ranks_beside(0.02, threads=1.48)] == [{}, {}]


@pytest.mark.parametrize(
    ("others", "threads", "cpus"),
    [(0.3, 1.2, 2), (0.02, 1.8, 2), (0.02, 1.2, 4)],
    ids=["beside others", "too many threads", "kept to a part of the host"],
)
def test_ranks_that_lack_processors_lose_what_they_wait_for_one(others: float, threads: float, cpus: int) -> None:
    for rank in ranks_beside(others, threads, cpus):
        assert [one.cause for one in rank.bottlenecks] == ["cpu_contention"]


@pytest.mark.parametrize("queued", [0.0, 0.01])
def test_batches_that_are_handed_over_late_beside_contention_are_contention(queued: float) -> None:
    """The worker's thread that sends a batch lacks a processor as the driver does: for no longer than that."""
    parts = ((queued, Leaf.RUNQUEUE, Region.FETCH), (0.008, Leaf.SOCKET, Region.FETCH))
    rank = made_of(*parts, workers=True, pool=0.001)
    assert [one.cause for one in rank.bottlenecks] == (["cpu_contention"] if queued else ["unknown"])
    lost = 0.008 - 2 * HANDOVER_NS / NS + queued  # two batches a step
    assert rank.bottlenecks[0].seconds == pytest.approx(rank.ordinary.count * lost, rel=0.1)


def test_the_descriptors_of_a_batchs_tensors_are_not_lost_where_its_worker_is_idle() -> None:
    """Each is a round trip between driver and worker, in which both compute: as a batch of PyTorch Geometric."""
    taken = (0.0037, Leaf.CPU, Region.FETCH), (0.0055, Leaf.SOCKET, Region.FETCH)
    assert made_of(*taken, workers=True, pool=0.001).lost == {}
    longer = made_of(taken[0], (0.03, Leaf.SOCKET, Region.FETCH), workers=True, pool=0.001)
    assert [one.cause for one in longer.bottlenecks] == ["unknown"]


def test_what_is_lost_in_no_stall_is_not_looked_for_in_the_stacks_of_stalls() -> None:
    rank = made_of((0.008, Leaf.SOCKET, Region.FETCH), workers=True, pool=0.001)
    (change,), stalls = rank.changes, rank.stalls
    assert (change.cause, stalls) == ("unknown", [])
    assert "stalls" not in " ".join(change.advice)


def ranks_that_wait(first_waits: float, second_waits: float, *, in_turn: bool = False) -> tuple[Rank, Rank]:
    """Two ranks of even steps, which wait so long for each other in each; ``in_turn``: the other way round in every
    second one."""
    first, second, pipeline = two_ranks()
    for number in range(60):
        both = (second_waits, first_waits) if in_turn and number % 2 else (first_waits, second_waits)
        for driver, waits in zip((first, second), both):
            driver.fetch()
            driver.spend(0.05 - waits)
            driver.spend(waits, Leaf.POLL, Region.BACKWARD)
            driver.backward()
            driver.optimizer()
        events = sorted((*first.events, *second.events), key=lambda event: event.at_ns)
        pipeline.step(Frame(moment(first.now), tuple(events)))
        first.events.clear()
        second.events.clear()
    ranks = {rank.pid: rank for rank in pipeline.report(moment(first.now)).runs[0].ranks}
    return ranks[first.pid], ranks[second.pid]


def test_a_collectives_own_transfer_is_not_lost_and_the_wait_for_a_late_rank_is() -> None:
    even = ranks_that_wait(0.02, 0.02)
    assert [rank.lost for rank in even] == [{}, {}]
    scattered = ranks_that_wait(0.02, 0.016)  # as they do on any host
    assert [rank.lost for rank in scattered] == [{}, {}]
    in_turn = ranks_that_wait(0.02, 0.005, in_turn=True)  # nobody makes the other late
    assert [rank.lost for rank in in_turn] == [{}, {}]
    waiting, late = ranks_that_wait(0.02, 0.005)
    assert late.lost == {}
    assert [one.cause for one in waiting.bottlenecks] == ["collective_wait"]
    assert waiting.bottlenecks[0].summary.endswith("most of it for rank 1")
    assert waiting.bottlenecks[0].advice[0].startswith("make the late rank faster")
    assert waiting.verdict.summary.partition("change first: ")[2].startswith("make the late rank faster")
    assert waiting.bottlenecks[0].seconds == pytest.approx(0.015 * 60, rel=0.1)


@pytest.mark.parametrize(("seconds", "first"), [(1.5, "where its answers are"), (0.02, "send from another thread")])
def test_a_server_that_each_step_waits_for_is_asked_ahead_where_its_answers_are_the_work(
    seconds: float, first: str
) -> None:
    """It generates for the training; a tracker's answer is brief."""
    driver = Driver()
    driver.begin()
    for _ in range(80):
        driver.spend(seconds, Leaf.SOCKET)
        driver.step()
    rank = rank_of(played(driver), driver)
    (found,) = rank.bottlenecks
    assert (found.cause, rank.stalls) == ("network", [])
    assert found.advice[0].startswith(first)
    assert rank.verdict.summary.partition("change first: ")[2].startswith(first)
    assert rank.bound.by == ("unknown" if seconds > 1 else "compute")


@pytest.mark.parametrize(("transfer", "by"), [(0.035, "unknown"), (0.01, "compute")])
def test_who_waits_for_what_ranks_send_in_each_step_is_not_bound_by_computing(transfer: float, by: str) -> None:
    for rank in ranks_that_wait(transfer, transfer):
        assert (rank.lost, rank.bound.by) == ({}, by)
        assert ("waits for other ranks" in rank.bound.why) == (by == "unknown")


def test_waits_for_ranks_that_nobody_sees_are_not_claimed() -> None:
    driver = Driver()
    driver.begin()
    seen = driver.events[-1]
    driver.events[-1] = type(seen)(seen.run, seen.at_ns, seen.pid, None, seen.started_ns, rank=0, world_size=8)  # type: ignore[union-attr,call-arg,arg-type]
    driver.train(40)
    for _ in range(60):
        driver.spend(0.015, Leaf.POLL, Region.BACKWARD)
        driver.step()
    driver.exit()
    rank = rank_of(played(driver), driver)
    assert rank.ledger["collective"] > 0.8
    assert rank.lost == {}


@pytest.mark.parametrize(("utilization", "lost"), [(0.95, False), (0.3, True)])
def test_what_a_busy_gpu_does_not_feel_is_not_lost(utilization: float, lost: bool) -> None:
    host = Host()
    for _ in range(20):
        for _ in range(15):
            host.driver.spend(0.015, Leaf.CHILD, Region.STEP)
            host.driver.step()
        host.second(gpus=(reading(host, utilization=utilization),))
    assert ("unknown" in host.rank.lost) == lost
    adds_up(host.rank)
