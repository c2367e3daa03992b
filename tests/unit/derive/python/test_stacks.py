"""What several stacks have in common."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from tests.builders.driver import Driver, played
from tests.unit.pipeline.test_pipeline import rank_of
from trainprobe.derive.python.code_lines import PythonLines
from trainprobe.derive.python.stacks import Where, common, innermost, of_worker, shared
from trainprobe.model.cells import Leaf, Region
from trainprobe.model.event import RankSeen, StackSeen
from trainprobe.model.moment import NS
from trainprobe.model.report import Framework
from trainprobe.pipeline import Pipeline


def test_without_a_stack_there_is_no_place() -> None:
    assert common([]) is None
    assert common([()]) is None


def test_one_stack_tells_its_innermost_frame() -> None:
    assert common([("main (a.py:1)", "work (a.py:9)")]) == Where("work (a.py:9)", 1, 1)


def test_what_differs_below_a_function_is_its_own_doing() -> None:
    stacks = [("main (a.py:1)", "search (a.py:9)", f"helper{i} (b.py:{i})") for i in range(5)]
    assert common(stacks) == Where("search (a.py:9)", 5, 5)


def test_one_stray_sample_of_many_does_not_hide_it() -> None:
    stacks = [("main (a.py:1)", "search (a.py:9)")] * 30 + [("main (a.py:1)", "other (a.py:20)")]
    where = common(stacks)
    assert where == Where("search (a.py:9)", 30, 31)
    assert where is not None
    assert str(where.message()) == "search (a.py:9), in 30 of 31 samples"


def test_of_several_stalls_the_line_that_most_share_is_named_however_often_each_was_sampled() -> None:
    slow = [("main (a.py:1)", "search (a.py:9)", "busy (b.py:3)")]
    other = [("main (a.py:1)", "metric (a.py:20)")] * 12
    where = shared([slow, other, slow, []])
    assert where == Where("busy (b.py:3)", 2, 3, stalls=True)
    assert where is not None
    assert str(where.message()) == "busy (b.py:3), in 2 of 3 sampled stalls"
    assert str(where.message(counted=False)) == "busy (b.py:3)"
    assert shared([[], slow]) == Where("busy (b.py:3)", 1, 1)
    assert shared([[]]) is None
    split = shared([slow, other])
    assert split is not None
    assert split.frame == "main (a.py:1)", "neither has most of them"


def test_a_worker_of_any_loader_is_known_by_its_process() -> None:
    assert of_worker(("main (train.py:9)", "BaseProcess._bootstrap (python3.11/process.py:314)", "producer (a.py:3)"))
    assert of_worker(("_worker_loop (torch/worker.py:350)",))
    assert not of_worker(("Thread._bootstrap (python3.11/threading.py:1002)", "main (train.py:9)"))


def test_a_long_stall_counts_for_more_than_two_short_ones() -> None:
    slow = [("main (a.py:1)", "search (a.py:9)", "busy (b.py:3)")]
    others = [[("main (a.py:1)", f"other{number} (a.py:20)")] for number in range(2)]
    assert shared([slow, *others], [2.0, 0.5, 0.5]) == Where("busy (b.py:3)", 1, 3, stalls=True)


def test_an_expression_is_told_by_the_function_that_has_it() -> None:
    busy = ("main (a.py:1)", "busy (b.py:3)")
    inner = (*busy, "busy.<locals>.<genexpr> (b.py:3)", "busy.<locals>.<genexpr>.<listcomp> (b.py:3)")
    assert common([inner]) == Where("busy (b.py:3)", 1, 1)
    assert shared([[inner], [busy], [inner]]) == Where("busy (b.py:3)", 3, 3, stalls=True)
    lazily = ("main (a.py:1)", "consume (library.py:9)", "rows.<locals>.<genexpr> (a.py:4)")
    assert common([lazily]) == Where(lazily[-1], 1, 1), "its function is not on the stack"


def test_the_users_own_function_comes_before_the_innermost_one() -> None:
    stack = (
        "<module> (train.py:90)", "train (transformers/trainer.py:2300)", "on_step_end (train.py:31)",
        "sum (numpy/fromnumeric.py:2300)",
    )  # fmt: skip
    where = common([stack])
    assert where is not None
    assert str(where.message()) == "on_step_end (train.py:31), there in sum (numpy/fromnumeric.py:2300)"
    assert str(innermost(stack[:3])) == "on_step_end (train.py:31)"
    called = stack[:2] + stack[3:]
    assert str(innermost(called)) == "sum (numpy/fromnumeric.py:2300)", "the script only calls the framework"
    nobody = common([("run_code (<frozen runpy>:88)", "wait (python3.11/threading.py:320)")])
    assert nobody is not None
    assert str(nobody.message()) == "wait (python3.11/threading.py:320)", "none of them is the user's"


def test_a_stall_names_the_users_function_and_the_report_the_framework() -> None:
    driver = Driver()
    driver.begin()
    driver.train(40)
    pipeline = played(driver)
    driver.spend(1.2)
    frames = ("<module> (train.py:9)", "run (mmengine/loops.py:290)", "hook (train.py:70)", "svd (numpy/linalg.py:9)")
    driver.events.append(StackSeen(driver.now, driver.pid, driver.tid, frames, versions={"mmengine": "0.10.7"}))
    driver.train(20)
    rank = rank_of(played(driver, pipeline), driver)
    (stall,) = rank.stalls
    assert stall.summary.endswith("s of CPU in hook (train.py:70), there in svd (numpy/linalg.py:9)")
    assert "move hook (train.py:70), there in svd (numpy/linalg.py:9) into a worker" in stall.advice[0]
    assert stall.chain == ["training thread on the CPU in hook (train.py:70), there in svd (numpy/linalg.py:9)"]
    assert rank.framework == Framework("mmengine", "0.10.7")


@pytest.mark.parametrize("in_time", [True, False])
def test_a_save_is_not_shown_where_the_step_was_after_it(in_time: bool) -> None:
    """A save that ends before its step is late: what Python did when it was late says nothing of it."""
    driver = Driver()
    driver.begin()
    driver.train(40)
    pipeline = played(driver)
    began = driver.now
    driver.write("/run/last.pt", 50_000_000, 0.6)
    at = (began + driver.now) // 2 if in_time else driver.now + 10_000_000
    frames = (
        ("main (train.py:9)", "save (train.py:88)") if in_time else ("main (train.py:9)", "backward (_tensor.py:9)")
    )
    driver.spend(0.03)
    driver.events.append(StackSeen(at, driver.pid, driver.tid, frames))
    driver.train(20)
    (stall,) = rank_of(played(driver, pipeline), driver).stalls
    assert stall.cause == "checkpoint"
    assert stall.python_stack == (list(frames) if in_time else None)


def test_a_stall_by_computing_and_more_tells_what_was_computed() -> None:
    driver = Driver()
    driver.begin()
    driver.train(40)
    pipeline = played(driver)
    driver.spend(1.2)
    frames = ("main (train.py:9)", "search (train.py:70)")
    driver.events.append(StackSeen(driver.now, driver.pid, driver.tid, frames, running=True))
    driver.spend(0.4, Leaf.SOCKET)
    driver.train(20)
    (stall,) = rank_of(played(driver, pipeline), driver).stalls
    assert stall.shares["cpu_bound"] == pytest.approx(1.2, abs=0.03)
    assert stall.summary == f"{stall.shares['cpu_bound']:.2f} s of CPU in search (train.py:70)"


def test_a_stack_that_did_not_come_in_time_is_asked_for_again() -> None:
    driver = Driver()
    driver.begin()
    driver.train(40)
    pipeline = played(driver)
    thread = (driver.pid, driver.tid)

    def asked() -> bool:
        driver.spend(0.2)
        played(driver, pipeline, threads=(driver.sample(),))
        return pipeline.wants().stacks == (thread,)

    assert asked()
    driver.events.append(StackSeen(driver.now, *thread, (), "py-spy was stopped", late=True))
    assert asked()
    driver.events.append(StackSeen(driver.now, *thread, ("main (train.py:9)",)))
    assert not asked()


def test_lines_of_ordinary_steps_are_counted_without_the_loop_itself() -> None:
    lines = PythonLines()
    for number in range(10):
        inner = ("clip_grad_norm_ (clip_grad.py:40)",) if number % 5 == 0 else ("backward (_tensor.py:623)",)
        lines.add(("<module> (main.py:90)", f"train (main.py:{50 + number % 2})", *inner))
    assert lines.top()[0] == ("backward (_tensor.py:623)", 8)
    assert ("clip_grad_norm_ (clip_grad.py:40)", 2) in lines.top()
    assert "<module> (main.py:90)" not in dict(lines.top())
    assert PythonLines().top() == []


def test_a_stack_of_an_ordinary_step_is_asked_for_each_half_minute_and_told() -> None:
    driver = Driver()
    driver.begin()
    driver.train(40)
    pipeline = played(driver)
    asked = 0
    for _ in range(130):
        driver.train(20)
        played(driver, pipeline)
        at = driver.now
        if pipeline.wants().stacks:
            asked += 1
            assert pipeline.wants().stacks == ()
            frames = ("train (main.py:51)", "item (main.py:60)") if asked % 2 else ("train (main.py:52)",)
            driver.train(3)  # the answer comes when the step is over
            driver.events.append(StackSeen(at, driver.pid, driver.tid, frames))
    rank = rank_of(played(driver, pipeline), driver)
    assert 4 <= asked <= 6
    assert rank.stalls == []
    told = {line.frame: (line.hits, line.samples) for line in rank.python_lines}
    assert told["item (main.py:60)"] == ((asked + 1) // 2, asked)


def test_where_nothing_marks_steps_a_stack_is_asked_for_after_the_start_up() -> None:
    driver, pipeline, asked = Driver(now=100 * NS), Pipeline(), []
    begun = driver.now
    driver.begin()
    driver.events = [replace(e, marks="no libtorch mapped") if isinstance(e, RankSeen) else e for e in driver.events]
    for _ in range(35):
        driver.spend(1.0)
        played(driver, pipeline, threads=(driver.sample(),))
        if pipeline.wants().stacks:
            asked.append(driver.now - begun)
            frames = ("main (train.py:9)", "cache_miss (jax/pjit.py:200)" if asked[1:] else "batch (train.py:70)")
            driver.events.append(StackSeen(driver.now, driver.pid, driver.tid, frames, versions={"jax": "0.10.2"}))
    assert [at // NS for at in asked] == [10, 20], "until it is known what runs the loop, then each half minute"
    assert rank_of(pipeline, driver).framework == Framework("jax", "0.10.2")


def test_when_there_are_some_stacks_of_ordinary_steps_the_next_ones_have_time() -> None:
    driver = Driver()
    driver.begin()
    driver.train(40)
    pipeline = played(driver)
    (run,) = pipeline.runs.values()
    (rank,) = run.ranks
    rank.ordinary.lines.samples = 6
    asked: list[int] = []
    for _ in range(300):
        driver.train(20)
        played(driver, pipeline)
        if pipeline.wants().stacks:
            asked.append(driver.now)
    pauses = [later - earlier for earlier, later in pairwise(asked)]
    assert pauses
    assert all(120 * NS <= pause < 125 * NS for pause in pauses)


def test_a_worker_that_the_driver_waits_for_is_asked_for_its_stack_in_ordinary_steps() -> None:
    """Six of them soon, then in turn with the driver's: the headline of slow batches names their line."""
    driver, pipeline, asked = Driver(), Pipeline(), []
    driver.begin()
    driver.fork(2000)
    frames = {driver.pid: ("main (train.py:9)",), 2000: ("_worker_loop (worker.py:350)", "decode (data.py:33)")}
    for _ in range(100):
        for _ in range(10):
            driver.spend(0.08, Leaf.POLL, Region.FETCH)
            driver.work(0.1)
            driver.step()
        waits = replace(driver.sample(Leaf.POLL), region=Region.FETCH)
        played(driver, pipeline, threads=(waits,))
        for pid, tid in pipeline.wants().stacks:
            asked.append((pid, driver.now))
            idle = ("_worker_loop (worker.py:340)", "Queue.get (python3.11/queues.py:113)")
            driver.events.append(StackSeen(driver.now, pid, tid, idle if len(asked) % 3 == 0 else frames[pid]))
    assert [pid for pid, _ in asked[:8]] == [driver.pid, *6 * [2000], driver.pid]
    assert (asked[4][1] - asked[0][1]) // NS <= 38
    verdict = rank_of(pipeline, driver).verdict
    assert "of each ordinary step, in decode (data.py:33), in " in verdict.summary


def test_until_the_driver_has_shown_a_stack_it_is_asked_for_one_more_often() -> None:
    driver, asked = Driver(), []
    driver.begin()
    driver.train(40)
    pipeline = played(driver)
    for _ in range(70):
        driver.train(20)
        played(driver, pipeline)
        if pipeline.wants().stacks:
            asked.append(driver.now)
            frames = ("main (train.py:9)",) if asked[2:] else ()
            driver.events.append(StackSeen(driver.now, driver.pid, driver.tid, frames, "" if frames else "late"))
    assert [(later - earlier) // NS for earlier, later in pairwise(asked)] == [10, 10, 30]
