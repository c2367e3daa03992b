"""What is seen of a step while it is late."""

from __future__ import annotations

from trainprobe.derive.steps.late_step import LateStepObservations
from trainprobe.model.cells import CELLS, Leaf, Level, Region, ThreadState
from trainprobe.model.event import ThreadSample
from trainprobe.model.moment import NS


def worker(pid: int, run: ThreadState, since_ns: int) -> ThreadSample:
    leaf = Leaf.CPU if run == ThreadState.ON else Leaf.POLL
    return ThreadSample(pid, pid, Level.COARSE, run, Region.STEP, leaf, since_ns, 0, -1, -1, 0, 0, "", [0] * CELLS)


def test_the_stack_of_a_busy_worker_explains_where_none_is_blocked() -> None:
    late = LateStepObservations()
    samples = [worker(7, ThreadState.ON, 2 * NS), worker(8, ThreadState.ON, NS), worker(9, ThreadState.BLOCKED, 0)]
    late.see_workers(samples, 0, 3 * NS)
    assert late.busy == 8, "it has been busy longest"
    assert late.stack_of_worker() == ()
    late.worker_stacks[8] = ("_worker_loop (worker.py:1)", "slow (data.py:3)")
    assert late.stack_of_worker()[-1] == "slow (data.py:3)"
