"""The advised settings: what is proposed, what it gains by the arithmetic, and when nothing is."""

from __future__ import annotations

import pytest

from trainprobe.advise.facts import ProposedSetting
from trainprobe.advise.settings import advice
from trainprobe.causes.stalls.logging import BLOCKED_SECONDS
from trainprobe.model.report import (
    Bottleneck,
    Counters,
    Evidence,
    Framework,
    Gpu,
    LogFile,
    Memory,
    OrdinaryStep,
    Period,
    PhaseSpan,
    PythonLine,
    Rank,
    Run,
    Stall,
    Steps,
    Workers,
)

STEP, COUNT = 0.1, 1000
MB = 1_000_000


def a_rank(workers: int = 2, wait: float = 0.0, cpu: float = 0.0, storage: float = 0.0, driver: float = 0.02) -> Rank:
    """1000 steps of 100 ms of the training's own, each with a wait for data."""
    states = {"compute": STEP, ("data_wait" if workers else "data_inline"): wait}
    rank = Rank(
        0, 1, 7, wall_seconds=COUNT * (STEP + wait) + 10, steps=Steps(COUNT, "autograd", per_second=1 / (STEP + wait))
    )
    rank.ordinary = OrdinaryStep(
        COUNT, STEP + wait, states, 1.0, cpu if workers else None, storage if workers else None, driver
    )
    rank.workers = Workers(workers, 0, workers, [], workers)
    rank.counters = Counters(phase_seconds={"startup": 10.0})
    return rank


def settings(rank: Rank, cpus: int = 16) -> dict[str, ProposedSetting]:
    run = Run("train.py-1", [], "ann", "/", 0.0, None, {}, [rank])
    return {setting.name: setting for setting in advice(run, rank, cpus).settings}


def stall(cause: str, seconds: float, step: int, period: int | None = None) -> Stall:
    told = Period(period, period * STEP) if period else None
    return Stall(f"{cause}{step}", 0.0, 1.0, seconds, cause, {cause: seconds}, step, 1, told)


def test_too_few_workers() -> None:
    """A batch costs 300 ms: two workers make one each 150 ms, three each 100 ms, as fast as a step is."""
    told = settings(a_rank(workers=2, wait=0.05, cpu=0.3))["num_workers"]
    assert told.proposed == "3"
    assert told.gain == pytest.approx(0.05 * COUNT)
    assert str(told.reason) == (
        "a batch costs a worker 300 ms, a step without waiting takes 100 ms: with num_workers=2 one comes every 150 ms"
    )


def put_together(workers: int, calls: int) -> Rank:
    """Its loop calls next() for each piece of a batch, of 40 ms in all."""
    rank = a_rank(workers=workers, wait=0.04, cpu=0.001)
    rank.ordinary.fetches = float(calls)
    evidence = [Evidence("fetches per backward", calls, key="fake_batching.fetches")]
    rank.bottlenecks = [Bottleneck("fake_batching", 0.3, 0.04 * COUNT, "", evidence)]
    rank.lost = {"fake_batching": 0.04 * COUNT}
    return rank


def test_a_batch_that_the_loop_puts_together_is_left_to_workers() -> None:
    """Both settings belong together: of what workers bring, 15 calls of half a millisecond need the batch size."""
    told = settings(put_together(workers=0, calls=16))
    assert (told["num_workers"].proposed, told["batch_size"].proposed) == ("1", "x16")
    assert told["batch_size"].gain == pytest.approx(15 * 0.0005 * COUNT)
    assert told["num_workers"].gain + told["batch_size"].gain == pytest.approx(0.04 * COUNT)
    assert "batch_size" not in settings(a_rank(workers=0, wait=0.04))


def test_with_workers_that_keep_up_a_batch_size_gains_what_the_calls_take() -> None:
    told = settings(put_together(workers=2, calls=16))
    assert told["num_workers"].proposed is None
    assert told["batch_size"].gain == pytest.approx(0.04 * COUNT * 15 / 16)


def test_no_more_workers_than_the_cpus_can_feed() -> None:
    """Four CPUs, 800 ms of worker CPU a batch: 220 ms a step, with four workers that use 93 % of them."""
    told = settings(a_rank(workers=2, wait=0.3, cpu=0.8, driver=0.02), cpus=4)["num_workers"]
    assert told.proposed == "4"
    assert told.gain == pytest.approx((0.4 - 0.82 / (4 * 0.93)) * COUNT)


def test_workers_share_the_cpus_with_the_training_itself() -> None:
    told = settings(a_rank(workers=2, wait=0.05, cpu=0.1, driver=0.2), cpus=2)["num_workers"]
    assert told.proposed is None
    assert "keep up but for single batches" in str(told.reason)
    slow = settings(a_rank(workers=2, wait=0.05, cpu=0.3, driver=0.0), cpus=2)["num_workers"]
    assert slow.proposed is None
    assert "share the same 2 CPUs; make the samples cheaper" in str(slow.reason)


def test_what_other_programs_use_is_not_there_for_more_workers() -> None:
    """Two CPUs; a batch costs 90 ms, the driver's step 30. Another program uses a fifth of a CPU."""
    rank = a_rank(workers=1, wait=0.0, cpu=0.09, driver=0.03)
    rank.ordinary.states = {"compute": 0.03, "data_wait": 0.07}
    alone = settings(rank, cpus=2)["num_workers"]
    assert alone.gain == pytest.approx(COUNT * (0.09 - 0.12 / 1.86), rel=0.01)
    assert alone.gain_at_most == pytest.approx(COUNT * (0.1 - 0.06), rel=0.01)
    rank.ordinary.busy_cpus = (0.03 + 0.09) / 0.1 + 0.2
    beside = settings(rank, cpus=2)["num_workers"]
    assert beside.gain == pytest.approx(COUNT * (0.09 - 0.12 / 1.66), rel=0.01)


def test_where_other_programs_leave_nothing_for_more_workers_the_advice_says_so() -> None:
    """A batch of 75 ms, a step of 32, two CPUs: a second worker gains 18 ms, but not beside 0.6 CPUs of others."""
    rank = a_rank(workers=1, cpu=0.075, driver=0.032)
    rank.ordinary.states = {"compute": 0.032, "data_wait": 0.045}
    rank.ordinary.seconds, rank.ordinary.busy_cpus = 0.077, 2.0
    told = settings(rank, cpus=2)["num_workers"]
    assert told.proposed is None
    assert str(told.reason) == (
        "a batch costs a worker 75 ms, and other programs use 0.6 of the 2 CPUs: more workers would gain nothing "
        "beside them"
    )
    rank.ordinary.busy_cpus = 0.107 / 0.077
    assert settings(rank, cpus=2)["num_workers"].proposed == "2"


def test_workers_that_wait_for_storage_may_be_more_than_the_cpus() -> None:
    told = settings(a_rank(workers=2, wait=0.3, cpu=0.01, storage=0.79), cpus=2)["num_workers"]
    assert told.proposed == "8"


def test_ranks_of_one_host_share_its_cpus() -> None:
    rank = a_rank(workers=2, wait=0.3, cpu=0.8)
    run = Run("train.py-1", [], "ann", "/", 0.0, None, {}, [rank, a_rank()])
    told = {setting.name: setting for setting in advice(run, rank, 8).settings}
    assert told["num_workers"].proposed == "4"


def test_what_gains_most_is_first() -> None:
    """Whatever the order in which settings are looked at: what is left as it is comes last."""
    rank = a_rank(workers=2, wait=0.05, cpu=0.3)
    rank.counters.saves, rank.counters.save_every_steps = 100, 10
    for lost in (20.0, 90.0):
        rank.lost = {"checkpoint": lost}
        told = advice(Run("train.py-1", [], "ann", "/", 0.0, None, {}, [rank]), rank, 16)
        gains = [one.gain for one in told.proposals]
        assert len(gains) == 2
        assert gains == sorted(gains, reverse=True)
        assert [one.proposed is None for one in told.settings] == [False] * 2 + [True] * 5


def test_loading_by_the_driver_itself() -> None:
    told = settings(a_rank(workers=0, wait=0.04, driver=0.14))["num_workers"]
    assert (told.proposed, told.gain) == ("1", pytest.approx(0.04 * COUNT))
    assert "the training thread loads by itself for 40 ms of each step" in str(told.reason)


def test_no_workers_for_a_compute_bound_run() -> None:
    told = settings(a_rank(workers=2, wait=0.001, cpu=0.01))["num_workers"]
    assert told.proposed is None
    assert str(told.reason) == "a step waits 1.0 ms of 101 ms for data: that is little"


@pytest.mark.parametrize(
    ("limit", "proposed", "memory"), [(20_000, "4", 7200), (7000, "3", 6100), (5700, None, None), (4000, "1", 3900)]
)
def test_workers_of_an_evaluation_keep_their_memory(limit: int, proposed: str | None, memory: int | None) -> None:
    """Two of the training's, beside two that live on and are idle; a worker takes 1 GB, and 50 MB of batches."""
    rank = a_rank(workers=2, wait=0.1, cpu=0.4)
    rank.ordinary.workers, rank.workers.peak = 2, 4
    rank.memory = Memory(limit_bytes=limit * MB, limit_scope="cgroup", shm_peak_bytes=400 * MB)
    rank.memory.worker_private_bytes, rank.memory.taken_peak_bytes = 1000 * MB, 5000 * MB
    told = settings(rank)["num_workers"]
    assert (told.proposed, told.memory) == (proposed, memory * MB if memory else None)


def test_what_fits_the_memory_is_the_limit_and_what_others_hold_is_not_ours() -> None:
    rank = a_rank(workers=2, wait=0.1, cpu=0.4)
    rank.memory = Memory(3000 * MB, 3000 * MB, 0, 200 * MB, None, 8000 * MB, "cgroup", 200 * MB, 1000 * MB)
    rank.memory.worker_private_bytes, rank.memory.taken_peak_bytes = 1000 * MB, 3000 * MB
    rank.memory.others_bytes = 2000 * MB
    told = settings(rank)["num_workers"]
    assert told.proposed == "4"  # 8 GB - 2 GB of others = 6 GB; 3 GB + 2 x 1.1 GB fits into 90 % of it
    assert told.memory == pytest.approx(3000 * MB + 2 * 1000 * MB + 200 * MB)
    assert told.verdict == "tight"
    rank.memory.others_bytes = 3400 * MB
    less = settings(rank)["num_workers"]
    assert less.proposed == "3"
    assert str(less.limit) == "memory: 3 workers fit"


def test_too_many_workers_for_the_memory_are_made_fewer() -> None:
    rank = a_rank(workers=8, cpu=0.15)
    rank.memory = Memory(8400 * MB, 8400 * MB, 0, 400 * MB, None, 8000 * MB, "cgroup", 400 * MB, 900 * MB)
    rank.memory.worker_private_bytes, rank.memory.taken_peak_bytes = 900 * MB, 8400 * MB
    rank.lost = {"swap": 30.0, "memory_pressure": 5.0}
    told = settings(rank)["num_workers"]
    assert told.proposed == "2"  # two keep up with the step; six would fit
    assert told.gain == pytest.approx(35.0)
    assert told.memory == 8400 * MB - 6 * 900 * MB - 300 * MB
    assert told.verdict == "safe"


def test_fewer_workers_give_back_the_cpus_that_swapping_used() -> None:
    """The driver never faults itself: the workers' swapping keeps it waiting for data and for a CPU."""
    rank = a_rank(workers=6, wait=0.08, cpu=0.05)
    rank.memory = Memory(8400 * MB, 8400 * MB, 0, 400 * MB, None, 8000 * MB, "cgroup", 400 * MB, 900 * MB)
    rank.memory.worker_private_bytes, rank.memory.taken_peak_bytes = 900 * MB, 8400 * MB
    rank.ordinary.states = {"compute": 0.07, "runqueue": 0.03, "data_wait": 0.08}
    rank.ordinary.worker_memory_seconds_per_batch = 0.2
    told = settings(rank)["num_workers"]
    assert told.gain == pytest.approx(COUNT * (0.08 + 0.03)), "16 CPUs: nobody queues then"
    assert "0 ms of the run and 3 min 20 s of the workers' time" in str(told.reason)
    rank.ordinary.worker_memory_seconds_per_batch = 0.0
    assert settings(rank)["num_workers"].gain == 0


def test_workers_that_no_longer_swap_no_longer_queue_for_the_cpus() -> None:
    """Two CPUs, five workers: 700 of the 770 ms that a batch costs one of them it only waits for a CPU."""
    rank = a_rank(workers=5, wait=0.02, cpu=0.77)
    rank.memory = Memory(limit_bytes=450 * MB, worker_private_bytes=130 * MB, taken_peak_bytes=930 * MB)
    rank.ordinary.states = {"compute": 0.06, "runqueue": 0.04, "data_wait": 0.02}
    rank.ordinary.worker_memory_seconds_per_batch, rank.ordinary.worker_queue_seconds_per_batch = 0.28, 0.7
    told = settings(rank, cpus=2)["num_workers"]
    assert told.proposed == "1"
    assert told.gain == pytest.approx(COUNT * (0.12 - 0.07)), "a batch then costs 70 ms, a step without waiting 68 ms"
    assert "of the workers' time" in str(told.reason)
    rank.counters.stall_seconds = {"cpu_contention": 100.0, "swap": 5.0}
    assert settings(rank, cpus=2)["num_workers"].gain == pytest.approx(COUNT * 0.05 + 5.0 + 100.0 * 0.28 / 0.35), (
        "late steps too"
    )


def test_what_workers_share_goes_with_none_of_them() -> None:
    """Of 900 MB that each worker holds, 700 MB are the dataset's pages, copied by nobody; 400 MB wait in queues."""
    rank = a_rank(workers=8, cpu=0.15)
    rank.memory = Memory(
        8000 * MB, 8400 * MB, 0, 400 * MB, None, 8000 * MB, "cgroup", 400 * MB, 900 * MB, 200 * MB, 8600 * MB
    )
    rank.lost = {"swap": 30.0}
    told = settings(rank)["num_workers"]
    assert told.proposed == "2"
    assert told.memory == 8600 * MB - 6 * 200 * MB - 300 * MB


def test_prefetch_covers_a_dear_batch_where_workers_keep_up_otherwise() -> None:
    rank = a_rank(workers=4, cpu=0.1)
    rank.stalls = [stall("data_cpu", 1.2, n) for n in (100, 400, 700)]
    rank.counters.stall_seconds = {"data_cpu": 3.6}
    told = settings(rank)["prefetch_factor"]
    assert told.proposed == "6"  # 2 + 1.2 s / (4 x 0.1 s), and a smaller one that is tried covers less
    assert told.gain == pytest.approx(3.6)
    rank.memory = Memory(limit_bytes=450 * MB, worker_private_bytes=30 * MB, taken_peak_bytes=430 * MB)
    rank.memory.shm_bytes_per_batch, rank.memory.shm_peak_bytes = 3.0 * MB, 27 * MB
    full = settings(rank)["prefetch_factor"]
    assert full.proposed is None
    assert str(full.reason) == "6 would cover late batches, and take 478 MB: more than there is"
    rank.ordinary.worker_cpu_seconds_per_batch = 0.5
    slow = settings(rank)["prefetch_factor"]
    assert slow.proposed is None
    assert "see num_workers" in str(slow.reason)


def test_persistent_workers() -> None:
    rank = a_rank(cpu=0.05)
    rank.counters.stall_seconds, rank.counters.stalls = {"worker_startup": 9.0}, {"worker_startup": 4}
    told = settings(rank)["persistent_workers"]
    assert (told.proposed, told.gain) == ("True", pytest.approx(9.0))  # first batches are no part of it


def test_workers_that_start_again_in_each_step_are_kept() -> None:
    rank = a_rank(cpu=0.05)
    evidence = [Evidence("time lost at the edge of the epoch", 0.2, "s", key="worker_startup.epoch_seconds")]
    rank.bottlenecks = [Bottleneck("worker_startup", 0.5, 100.0, "", evidence)]
    told = settings(rank)["persistent_workers"]
    assert (told.proposed, told.gain) == ("True", pytest.approx(100.0))
    assert str(told.reason) == "workers were started again 500 times, 200 ms each"


def test_workers_that_start_again_beside_a_longer_save_are_counted() -> None:
    rank = a_rank(cpu=0.05)
    rank.stalls = [stall("checkpoint", 3.0, n) for n in (100, 200)]
    for one in rank.stalls:
        one.shares = {"checkpoint": 2.0, "worker_startup": 1.0}
    rank.counters.stall_seconds = {"checkpoint": 4.0, "worker_startup": 2.0}
    told = settings(rank)["persistent_workers"]
    assert (told.proposed, told.gain) == ("True", pytest.approx(2.0))


def test_workers_whose_batches_were_not_measured_are_not_denied() -> None:
    rank = a_rank(workers=4)
    rank.ordinary.worker_cpu_seconds_per_batch = None
    assert "was not measured" in str(settings(rank)["prefetch_factor"].reason)


def test_workers_that_were_started_again_at_no_cost_are_not_denied() -> None:
    rank = a_rank()
    assert "no workers were started again" in str(settings(rank)["persistent_workers"].reason)
    rank.workers = Workers(started=10, ended=10, live=0, exits=[], peak=2)
    told = settings(rank)["persistent_workers"]
    assert told.proposed is None
    assert str(told.reason) == "10 workers were started, 2 at most at once: no step was late for one that was new"


def test_where_nothing_is_saved_that_is_no_setting_to_be_left() -> None:
    told = settings(a_rank())["checkpoint interval"]
    assert told.proposed is None
    assert str(told.reason) == "no save was seen: what ends the run early takes all of its work"


def test_checkpoints_take_one_per_cent_then() -> None:
    rank = a_rank()
    rank.stalls = [stall("checkpoint", 6.0, n * 100, 100) for n in range(1, 6)]
    rank.lost, rank.counters.stalls = {"checkpoint": 30.0}, {"checkpoint": 5}
    told = settings(rank)["checkpoint interval"]
    assert told.proposed is not None
    assert told.gain == pytest.approx(30.0 - 30.0 * 100 / int(told.proposed))
    step = (rank.wall_seconds - 10.0 - 30.0) / rank.steps.count  # of a longer run; its start comes once
    assert 0.0095 <= 6.0 / (6.0 + int(told.proposed) * step) <= 0.01, "recomputed from the run's own figures"
    rank.lost = {"checkpoint": 0.5}
    assert settings(rank)["checkpoint interval"].proposed is None


def test_bursts_that_other_programs_hold_up_are_bursts_all_the_same() -> None:
    """A million lines at once, and most of each late step waits for a CPU: the interval is that of the bursts."""
    rank = a_rank()
    rank.lost, rank.logs = {"logging": 8.0}, [LogFile("/runs/train.log", 10, 1_000_000, 8.0)]
    rank.stalls = [stall("cpu_contention", 5.0, n, 250) for n in (250, 500, 750, 1000)]
    for one in rank.stalls:
        one.shares = {"logging": 2.0, "cpu_contention": 3.0}
    rank.counters.stall_seconds = {"logging": 8.0, "cpu_contention": 12.0}
    told = settings(rank)["log interval"]
    assert str(told.now) == "every 250 steps"
    assert told.proposed is not None
    assert int(told.proposed) > 250


def test_a_log_line_in_each_step_and_a_burst_now_and_then_are_different_things() -> None:
    rank = a_rank()
    rank.lost, rank.logs = {"logging": 20.0}, [LogFile("/runs/train.log", 10, 1000, 20.0)]
    told = settings(rank)["log interval"]
    assert (told.proposed, str(told.now)) == ("25", "every step")
    after = 20.0 / 25
    assert told.gain == pytest.approx(20.0 - after, rel=1e-4)
    assert 0.0095 <= after / (rank.wall_seconds - 10.0 - 20.0 + after) <= 0.01, "of a longer run: its start comes once"
    rank.stalls = [stall("logging", 5.0, n, 250) for n in (250, 500, 750, 1000)]
    rank.counters.stall_seconds = {"logging": 20.0}
    burst = settings(rank)["log interval"]
    assert (burst.proposed, str(burst.now)) == ("6200", "every 250 steps")
    rank.logs = [LogFile("/runs/train.log", 10, 1000, 60.0)]
    unseen = settings(rank)["log interval"]
    assert (unseen.proposed, str(unseen.now)) == (None, "1000 writes in all"), "two of three bursts made no step late"
    rank.logs, rank.stalls = [LogFile("/runs/train.log", 10, 1000, 20.0)], [stall("logging", 20.0, 250, 250)]
    assert settings(rank)["log interval"].proposed is None, "one burst is no rhythm"


def test_lines_that_cost_a_processor_and_hardly_a_call_are_written_less_often_too() -> None:
    rank = a_rank()
    rank.lost, rank.logs = {"logging": 20.0}, [LogFile("/runs/train.log", 10, 1000, 2.0)]
    rank.stalls = [stall("logging", 5.0, n, 250) for n in (250, 500, 750, 1000)]
    rank.counters.stall_seconds = {"logging": 20.0}
    assert settings(rank)["log interval"].proposed == "6200"


def test_a_pipe_that_nobody_reads_is_read_faster_not_written_less_often() -> None:
    rank = a_rank()
    rank.lost, rank.logs = {"logging": 20.0}, [LogFile("/runs/train.log", 10, 1000, 2.0)]
    rank.stalls = [stall("logging", 5.0, n, 250) for n in (250, 500, 750, 1000)]
    for one in rank.stalls[1:]:
        one.evidence = [Evidence("blocked in write to a pipe or terminal", 4.0, "s", key=BLOCKED_SECONDS.id)]
    told = settings(rank)["log interval"]
    assert (told.proposed, str(told.reason)) == (None, "most of it waits for whoever reads the output")


def test_what_watching_takes_of_many_small_writes_is_no_gain() -> None:
    rank = a_rank()
    rank.lost, rank.logs = {"logging": 20.0}, [LogFile("/runs/train.log", 10, 10_000_000, 20.0)]
    rank.stalls = [stall("logging", 5.0, n, 250) for n in (250, 500, 750, 1000)]
    rank.counters.stall_seconds = {"logging": 20.0}
    told = settings(rank)["log interval"]
    assert told.gain == pytest.approx(14.0 * (1 - 250 / int(str(told.proposed))))
    assert str(told.reason).endswith("; 6.00 s of it is for being watched")


def test_writes_that_cost_only_for_being_watched_need_no_other_interval() -> None:
    rank = a_rank()
    rank.lost, rank.logs = {"logging": 20.0}, [LogFile("/runs/train.log", 10, 40_000_000, 20.0)]
    told = settings(rank)["log interval"]
    assert (told.proposed, told.gain) == (None, 0.0)


def test_evaluation_takes_five_per_cent_then() -> None:
    rank = a_rank()
    rank.wall_seconds = 140.0
    rank.counters.phase_seconds = {"startup": 10.0, "evaluation": 30.0}
    rank.phases = [PhaseSpan("evaluation", n, n + 3) for n in range(10)]
    told = settings(rank)["evaluation interval"]
    assert told.proposed is not None
    after = 30.0 * 100 / int(told.proposed)
    assert after / (140.0 - 30.0 + after) <= 0.05
    assert told.gain == pytest.approx(30.0 - after)


def test_evaluations_come_as_many_steps_apart_as_they_were_seen() -> None:
    """1000 steps; every 70 from the start on: the mean over all steps would be 111. Two spans are of one evaluation."""
    rank = a_rank()
    rank.counters.phase_seconds = {"startup": 10.0, "evaluation": 30.0}
    steps = [70, 70, 140, 210, 280, 350, 420, 490, 560]
    rank.phases = [PhaseSpan("evaluation", n, n + 1, step) for n, step in enumerate(steps)]
    told = settings(rank)["evaluation interval"]
    assert str(told.now) == "every 70 steps"
    assert str(told.reason).startswith("8 of 3.75 s")


def test_rollouts_are_no_evaluation_to_be_made_rarer() -> None:
    rank = a_rank()
    rank.counters.phase_seconds = {"startup": 10.0, "evaluation": 30.0}
    rank.phases = [PhaseSpan("evaluation", n, n + 1, 32 * n) for n in range(1, 9)]
    assert settings(rank)["evaluation interval"].proposed is not None
    rank.framework = Framework("stable_baselines3", "2.9.2")
    assert settings(rank)["evaluation interval"].proposed is None


def test_an_evaluations_own_workers_are_not_the_trainings() -> None:
    rank = a_rank(workers=1, wait=0.05, cpu=0.15)
    rank.workers.peak, rank.ordinary.workers = 2, 1
    told = settings(rank)["num_workers"]
    assert str(told.now) == "1"
    assert told.proposed == "2"


def test_settings_have_the_names_of_the_framework() -> None:
    rank = a_rank(workers=2, wait=0.05, cpu=0.3)
    rank.framework = Framework("transformers", "5.23.0")
    told = settings(rank)
    assert str(told["num_workers"].setting) == "transformers: dataloader_num_workers=3"
    assert str(told["checkpoint interval"].setting) == "transformers: save_steps", "it is left as it is"
    assert told["pin_memory"].setting is None
    rank.framework = Framework()
    assert all(one.setting is None for one in settings(rank).values())


@pytest.mark.parametrize("in_stall", [False, True])
def test_an_anomaly_detection_that_was_left_on_is_named(in_stall: bool) -> None:
    rank, frame = a_rank(), "format_stack (torch/traceback.py:300)"
    assert "set_detect_anomaly" not in settings(rank)
    if in_stall:
        rank.stalls = [stall("cpu_bound", 1.0, 300)]
        rank.stalls[0].python_stack = ["main (train.py:9)", frame]
    else:
        rank.python_lines = [PythonLine(frame, 2, 10)]
    told = settings(rank)["set_detect_anomaly"]
    assert (str(told.now), told.proposed) == ("True", "False")
    assert told.gain == pytest.approx(0.0 if in_stall else 0.2 * COUNT * STEP)


def test_pinned_memory_is_not_guessed() -> None:
    rank = a_rank()
    assert "no GPU is used" in str(settings(rank)["pin_memory"].reason)
    rank.gpus = [Gpu("GPU-1", 0)]
    told = settings(rank)["pin_memory"]
    assert told.proposed is None
    assert "cannot be told from outside" in str(told.reason)


@pytest.mark.parametrize(("wait", "told"), [(0.002, False), (0.03, True)])
def test_what_taking_ready_batches_over_costs_is_told_where_memory_may_be_pinned(wait: float, told: bool) -> None:
    """As on a GPU with PyTorch Geometric: 5.4 of 16 ms, unpickling and sockets."""
    rank = a_rank(workers=2, wait=wait, cpu=0.01)
    rank.gpus = [Gpu("GPU-1", 0)]
    reason = str(settings(rank)["pin_memory"].reason)
    assert ("taking ready batches over from workers costs the training thread" in reason) == told
    late = a_rank(workers=2, wait=wait, cpu=0.5)
    late.gpus = rank.gpus
    assert "taking ready batches over" not in str(settings(late)["pin_memory"].reason), "they are not ready"


def test_all_together_and_nothing_to_gain() -> None:
    rank = a_rank(workers=2, wait=0.05, cpu=0.3)
    run = Run("train.py-1", [], "ann", "/", 0.0, None, {}, [rank])
    made = advice(run, rank, 16)
    assert made.gain == pytest.approx(50.0)
    assert made.speed == (pytest.approx(1000 / 150), pytest.approx(10.0))
    healthy = a_rank()
    assert advice(run, healthy, 16).gain == 0.0
    assert all(setting.proposed is None for setting in advice(run, healthy, 16).settings)


def test_too_few_steps_are_said() -> None:
    rank = Rank(0, 1, 7)
    made = advice(Run("train.py-1", [], "ann", "/", 0.0, None, {}, [rank]), rank, 16)
    assert made.settings == ()
    assert "too few steps" in str(made.refused)


def test_what_was_not_measured_is_said() -> None:
    rank = a_rank()
    rank.ordinary.worker_cpu_seconds_per_batch = None
    told = settings(rank)["num_workers"]
    assert told.proposed is None
    assert str(told.reason) == "what a batch costs a worker was not measured"
