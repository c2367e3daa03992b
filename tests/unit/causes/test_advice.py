"""Advice carries the run's own numbers, and none where none were measured."""

from __future__ import annotations

from dataclasses import replace

import pytest

from trainprobe.advise.loader import Loader
from trainprobe.advise.queue import Ahead
from trainprobe.causes.advice import AdviceInput, better_interval
from trainprobe.causes.registry import SPECS
from trainprobe.causes.stalls.collective_wait import MEANWHILE
from trainprobe.causes.stalls.cpu_bound import LOOKS
from trainprobe.causes.stalls.cpu_contention import AFFINITY_CPUS, OWN_CPUS, OWN_THREADS, RUNNABLE, USES
from trainprobe.causes.stalls.logging import BLOCKED_SECONDS
from trainprobe.causes.stalls.logging import SECONDS as IN_LOGS
from trainprobe.causes.stalls.network import TAKEN
from trainprobe.causes.stalls.worker_hang import SINCE_DEATH
from trainprobe.causes.stalls.worker_startup import PROCESSES_STARTED
from trainprobe.derive.python.stacks import Where
from trainprobe.model.cause import Cause
from trainprobe.model.report import Evidence


def advice(cause: Cause, measured: AdviceInput) -> list[str]:
    return [str(message) for message in SPECS[cause].advice(measured)]


RECURRING = AdviceInput(share=0.12, each=4.1, every=30)


def test_what_recurs_gets_the_interval_at_which_it_takes_one_per_cent() -> None:
    for cause, verb in ((Cause.CPU_BOUND, "do it"), (Cause.NETWORK, "send"), (Cause.LOGGING, "log")):
        assert f"{verb} every 410 steps instead of every 30: 1 % of the run, not 12.0 %" in advice(cause, RECURRING)


@pytest.mark.parametrize(
    ("framework", "share", "rarer"),
    [("stable_baselines3", 0.62, False), ("gymnasium", 0.62, False), ("gymnasium", 0.05, True), (None, 0.62, True)],
)
def test_what_collects_the_batches_is_not_to_be_done_rarer(framework: str | None, share: float, rarer: bool) -> None:
    """Environments that step in the training thread take most of a run with rollouts."""
    line = Where("step (env.py:30)", 9, 9)
    told = advice(Cause.CPU_BOUND, AdviceInput(share=share, each=0.6, every=16, framework=framework, where=line))
    assert any("instead of every 16" in one or "less often" in one for one in told) == rarer
    assert any("let several environments run at once" in one and "step (env.py:30)" in one for one in told) != rarer


def test_logging_in_every_step_is_thinned_by_its_share() -> None:
    (first, *_) = advice(Cause.LOGGING, AdviceInput(share=0.23, apart=1, writes_per_step=3.0))
    assert first == "log every 30 steps instead of every step (3.0 writes per step): 1 % of the run, not 23.0 %"


def test_a_pipe_that_nobody_reads_is_no_matter_of_how_often_it_is_written() -> None:
    blocked = (Evidence.of(IN_LOGS(), 0.24, "s", 1), Evidence.of(BLOCKED_SECONDS(), 0.23, "s", 1))
    told = advice(Cause.LOGGING, AdviceInput(share=0.15, apart=420, longest=2.34, evidence=blocked))
    assert len(told) == 1
    assert told[0].startswith("see why whoever reads the training's output stops reading it")


def test_programs_of_one_name_compete_together_in_each_stall() -> None:
    stalls = [
        Evidence.of(RUNNABLE(), 0.5, "s", 1), *(Evidence.of(USES(name="burn"), 0.4, "CPUs", pid) for pid in (7, 8, 9)),
        Evidence.of(RUNNABLE(), 0.5, "s", 1), Evidence.of(USES(name="burn"), 0.9, "CPUs", 7),
    ]  # fmt: skip
    assert "burn with up to 1.2 CPUs" in advice(Cause.CPU_CONTENTION, AdviceInput(seen=tuple(stalls), cpus=2))[0]


def test_a_training_that_uses_a_part_of_the_cpus_is_not_told_to_use_fewer_threads() -> None:
    own = (
        Evidence.of(RUNNABLE(), 0.5, "s", 1),
        Evidence.of(OWN_THREADS(), 2, ""),
        Evidence.of(OWN_CPUS(), 0.8, "CPUs"),
    )
    (nobody,) = advice(Cause.CPU_CONTENTION, AdviceInput(seen=own, cpus=2))
    assert nobody.startswith("other programs take the CPUs, each too shortly to be named, the training itself uses up")
    named = (*own, Evidence.of(USES(name="burn"), 0.9, "CPUs", 7))
    (move,) = advice(Cause.CPU_CONTENTION, AdviceInput(seen=named, cpus=2))
    assert "burn with up to 0.9 CPUs" in move
    pinned = (*named, Evidence.of(AFFINITY_CPUS(), 1, "", 1))
    told = advice(Cause.CPU_CONTENTION, AdviceInput(seen=pinned, evidence=pinned, cpus=2))
    assert any("fewer threads" in one for one in told)
    wide = (*own[:2], Evidence.of(OWN_CPUS(), 1.9, "CPUs"))
    assert "fewer threads" in advice(Cause.CPU_CONTENTION, AdviceInput(seen=wide, cpus=2))[0]


def test_workers_that_have_no_room_beside_others_are_not_said_to_be_useless_too() -> None:
    """A batch of 75 ms, a step of 32, two CPUs of which others use 0.6."""
    load = Loader(1, own=0.032, wait=0.045, fetches=1, cpu=0.075, blocked=0, driver_cpu=0.032, cpus=2, others=0.6)
    (crowded,) = advice(Cause.DATA_CPU, AdviceInput(loader=load, fetching=True))
    assert "then add workers" in crowded
    (alone,) = advice(Cause.DATA_CPU, AdviceInput(loader=replace(load, workers=2, cpu=0.3, others=0), fetching=True))
    assert "more workers would share the same 2 CPUs" in alone


@pytest.mark.parametrize("cause", [Cause.SWAP, Cause.MEMORY_PRESSURE, Cause.CPU_CONTENTION])
def test_fewer_workers_are_advised_only_where_there_are_some(cause: Cause) -> None:
    assert "workers" in " ".join(advice(cause, AdviceInput(workers=1)))
    assert "worker" not in " ".join(advice(cause, AdviceInput()))


def test_the_collector_is_a_candidate_only_where_no_line_was_seen() -> None:
    looked = (Evidence.of(LOOKS(), 3, "", 1),)
    assert any("candidate" in line for line in advice(Cause.CPU_BOUND, AdviceInput(evidence=looked)))
    assert "watch longer" in " ".join(advice(Cause.CPU_BOUND, AdviceInput()))
    assert not any(
        "candidate" in line for line in advice(Cause.CPU_BOUND, AdviceInput(where=Where("search (main.py:9)", 1, 1)))
    )


def test_what_is_most_of_a_run_is_not_advised_to_come_more_rarely() -> None:
    """Rollouts of environments that the training thread steps."""
    rollouts = AdviceInput(share=0.76, each=2.0, every=40, where=Where("collect (ppo.py:50)", 3, 3))
    assert advice(Cause.CPU_BOUND, rollouts) == [
        "move collect (ppo.py:50) into a worker or another process, vectorise it, or do it less often"
    ]


def test_nothing_is_advised_to_come_more_often() -> None:
    rare = AdviceInput(share=0.001, each=0.4, every=5_000)
    assert not any("every" in line for line in advice(Cause.NETWORK, rare))


def test_a_hang_of_a_worker_names_the_loader_only_where_there_is_one() -> None:
    """A pool of processes has no DataLoader whose timeout= could be set."""
    assert "DataLoader" in advice(Cause.WORKER_HANG, AdviceInput(fetching=True))[0]
    assert "DataLoader" not in advice(Cause.WORKER_HANG, AdviceInput())[0]
    assert "timeout=" in advice(Cause.WORKER_HANG, AdviceInput())[0]


def test_a_worker_that_comes_back_needs_no_time_limit() -> None:
    once = advice(Cause.WORKER_HANG, AdviceInput(each=40.0, longest=40.0, fetching=True))
    again = advice(Cause.WORKER_HANG, AdviceInput(each=1.4, every=94, fetching=True))
    assert "timeout=" in once[0]
    assert "goes on by itself after 1.40 s" in again[0]


def test_a_loaders_workers_are_kept_by_its_setting_whatever_else_the_step_did() -> None:
    """Of a step that mostly saved, the evidence is the save's."""
    assert advice(Cause.WORKER_STARTUP, AdviceInput(fetching=True))[0].startswith("persistent_workers=True")
    processes = [Evidence.of(PROCESSES_STARTED(), 1, "")]
    assert "a pool" in advice(Cause.WORKER_STARTUP, AdviceInput(fetching=True, evidence=processes))[0]


def test_the_frameworks_setting_stands_behind_what_recurs() -> None:
    recurring = replace(RECURRING, framework="mmengine")
    assert advice(Cause.CHECKPOINT, recurring)[0].startswith(
        "save every 410 steps instead of every 30 "
        "(mmengine: default_hooks.checkpoint.interval=410 with by_epoch=False): saving then"
    )
    assert "(mmengine: default_hooks.logger.interval=410)" in advice(Cause.LOGGING, recurring)[0]
    often = AdviceInput(share=0.23, apart=1, framework="transformers")
    assert "every step (transformers: logging_steps=30):" in advice(Cause.LOGGING, often)[0]
    assert "(" not in advice(Cause.CHECKPOINT, RECURRING)[0], "the loop is the user's"


def test_the_loaders_settings_have_the_frameworks_names() -> None:
    assert advice(Cause.DATA_INLINE, AdviceInput(framework="mmcv", fetching=True))[0].startswith(
        "data.workers_per_gpu=1 in"
    )
    noted = advice(Cause.DATA_INLINE, AdviceInput(framework="ultralytics", fetching=True))[0]
    assert noted.startswith("workers=1 in the DataLoader (ultralytics: workers=1; it takes 0 where there is no GPU): ")
    ahead = AdviceInput(fetching=True, ahead=Ahead(6, 0.9))
    assert advice(Cause.DATA_CPU, ahead)[0].startswith("prefetch_factor=6: batches made ahead save 90.0 %")


def test_nothing_is_advised_that_the_framework_lets_nobody_set() -> None:
    fixed = AdviceInput(fetching=True, ahead=Ahead(6, 0.9), framework="ultralytics", each=2.0)
    assert not any("prefetch" in line for line in advice(Cause.DATA_CPU, fixed))
    assert not any("persistent_workers" in line for line in advice(Cause.WORKER_STARTUP, fixed))
    assert any("persistent_workers" in line for line in advice(Cause.WORKER_STARTUP, replace(fixed, framework="timm")))


def test_a_late_rank_is_called_named_only_where_it_is() -> None:
    named = AdviceInput(evidence=[Evidence.of(MEANWHILE(rank=1, cause="data_cpu"), 1.0, "s")])
    assert "make the late rank faster" in advice(Cause.COLLECTIVE_WAIT, named)[0]
    assert advice(Cause.COLLECTIVE_WAIT, AdviceInput())[0].startswith("find the rank that is late")


@pytest.mark.parametrize(
    ("evaluated", "late", "line"), [(3.0, 1.0, "let each rank evaluate"), (1.0, 3.0, "make the late rank faster")]
)
def test_ranks_that_mostly_wait_for_an_evaluation_are_to_share_it(evaluated: float, late: float, line: str) -> None:
    causes = {"evaluation": evaluated, "checkpoint": late}
    seen = [Evidence.of(MEANWHILE(rank=0, cause=cause), spent, "s") for cause, spent in causes.items()]
    assert advice(Cause.COLLECTIVE_WAIT, AdviceInput(seen=seen))[0].startswith(line)


def test_a_batch_of_a_dead_worker_is_not_waited_for() -> None:
    """Nothing that a dead worker waited for can be found."""
    dead = AdviceInput(fetching=True, evidence=[Evidence.of(SINCE_DEATH(), 19.0, "s", 7)])
    for measured in (dead, replace(dead, fetching=False)):
        (line,) = advice(Cause.WORKER_HANG, measured)
        assert line.startswith("start the training again: a dead worker's batch never comes")
    assert advice(Cause.WORKER_HANG, AdviceInput(fetching=True))[0].startswith("see why the worker waits")


def test_a_librarys_own_code_is_not_to_be_moved_into_a_worker() -> None:
    """Unless a function of the user's calls it: that one can be moved."""
    there = Where("Tanh.forward (torch/activation.py:432)", 2, 2)
    inside = replace(there, own="policy (train.py:9)")
    library, own = AdviceInput(where=there), AdviceInput(where=inside)
    assert advice(Cause.CPU_BOUND, library)[0].startswith("Tanh.forward (torch/activation.py:432) is a library's own")
    assert advice(Cause.CPU_BOUND, own)[0].startswith("move policy (train.py:9), there in Tanh.forward")


def test_answers_that_take_a_fifth_of_the_run_are_asked_for_ahead() -> None:
    server = AdviceInput(share=0.63, every=4, apart=4.0, each=6.0, steps=400)
    assert advice(Cause.NETWORK, server)[0].startswith("where its answers are the training's work")
    for tracker in (replace(server, share=0.15), replace(server, each=0.05)):
        assert advice(Cause.NETWORK, tracker)[0].startswith("send every")


def test_nothing_is_to_be_moved_to_another_process_where_the_run_waits_for_a_cpu() -> None:
    busy = AdviceInput(where=Where("busy (train.py:9)", 2, 2), crowded=True)
    assert advice(Cause.CPU_BOUND, busy)[0].startswith("vectorise busy (train.py:9), or do it less often")


def test_an_interval_longer_than_the_run_is_for_a_longer_one() -> None:
    recurring = AdviceInput(share=0.15, every=52, steps=300)
    assert (
        "every 910 steps instead of every 52: 1 % of a longer run, not 15.0 %" in advice(Cause.CPU_BOUND, recurring)[-1]
    )
    assert ": 1 % of the run, not" in advice(Cause.CPU_BOUND, replace(recurring, steps=910))[-1]


EXPLAINS = ("a", "an", "the", "no", "somebody", "something", "it")


def test_what_to_change_first_begins_with_what_to_do() -> None:
    """A headline ends with "change first: …": no explanation stands there."""
    for cause in Cause:
        for line in advice(cause, AdviceInput(each=2.0, longest=9.0))[:1]:
            assert line.split()[0] not in EXPLAINS, line


def test_workers_are_advised_for_own_loading_only_where_they_gain_something() -> None:
    assert "num_workers=1 " in advice(Cause.DATA_INLINE, AdviceInput(fetching=True))[0]
    assert "num_workers=3 " in advice(Cause.DATA_INLINE, AdviceInput(best_workers=3, fetching=True))[0]
    assert "no DataLoader" in advice(Cause.DATA_INLINE, AdviceInput(best_workers=3))[0]
    assert "would gain less than 1 %" in advice(Cause.DATA_INLINE, AdviceInput(best_workers=0, fetching=True))[0]


def test_other_programs_are_looked_for_only_where_they_use_the_cpus() -> None:
    own = (Evidence.of(OWN_CPUS(), 1.1, "CPUs"),)
    load = Loader(2, 0.1, 0.05, 1.0, 0.04, 0.0, 0.1, 2, queued=0.0, queueing=0.0, others=0.1)
    assert "other programs" not in advice(Cause.CPU_CONTENTION, AdviceInput(seen=own, cpus=2, loader=load))[0]
    load = replace(load, others=0.6)
    assert "other programs" in advice(Cause.CPU_CONTENTION, AdviceInput(seen=own, cpus=2, loader=load))[0]


def test_an_interval_follows_from_the_number_of_occurrences_not_from_their_rhythm() -> None:
    # four of 0.9 s in 301 steps of 90 ms, which came every 36 steps once they had begun
    share = 3.6 / (3.6 + 301 * 0.09)
    better = better_interval(AdviceInput(share=share, each=0.9, every=36, apart=301 / 4))
    assert better is not None
    assert 0.9 / (0.9 + better * 0.09) == pytest.approx(0.01, rel=0.1)


@pytest.mark.parametrize(("workers", "best", "first"), [(0, 2, "num_workers=2 in the"), (0, 0, "copy"), (2, 0, "copy")])
def test_who_reads_slow_storage_by_himself_is_advised_workers(workers: int, best: int, first: str) -> None:
    load = Loader(workers, 0.1, 0.05, 1.0, 0.0, 0.05, 0.1, 8)
    measured = AdviceInput(share=0.3, fetching=True, loader=load, best_workers=best)
    told = advice(Cause.DATA_STORAGE, measured)
    assert told[0].startswith(first)
    assert any(one.startswith("copy the data to a local SSD") for one in told)


@pytest.mark.parametrize("after_last", [True, False])
def test_nothing_goes_on_beside_a_save_behind_the_last_step(after_last: bool) -> None:
    told = advice(Cause.CHECKPOINT, AdviceInput(share=0.1, each=4.0, apart=0.0 if after_last else None))
    assert any("so that the steps go on" in one for one in told) != after_last
    assert any("optimizer's state" in one for one in told)


@pytest.mark.parametrize(("size", "ahead"), [(None, True), (300_000, True), (800_000_000, False)])
def test_who_sends_much_asks_nobody(size: int | None, ahead: bool) -> None:
    evidence = [] if size is None else [Evidence.of(TAKEN(), size, "bytes", 7)]
    told = advice(Cause.NETWORK, AdviceInput(share=0.5, each=16.0, every=100, evidence=evidence))
    assert any("ask for the next step's" in one for one in told) == ahead
    assert any(one.startswith("send every ") for one in told) != ahead
