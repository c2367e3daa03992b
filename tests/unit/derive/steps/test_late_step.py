"""What is seen of a step while it is late."""

from __future__ import annotations

import pytest

from trainprobe.derive.steps.late_step import LateStepObservations, Transfer
from trainprobe.model.cells import CELLS, Leaf, Level, Region, ThreadState
from trainprobe.model.event import ThreadSample
from trainprobe.model.moment import NS
from trainprobe.model.sample import SentBytes


def worker(pid: int, run: ThreadState, since_ns: int) -> ThreadSample:
    leaf = Leaf.CPU if run == ThreadState.ON else Leaf.POLL
    return ThreadSample(pid, pid, Level.COARSE, run, Region.STEP, leaf, since_ns, 0, -1, -1, 0, 0, "", [0] * CELLS)


@pytest.mark.parametrize(
    ("busy_ns", "told"), [(3 * NS, 6_000_000), (3 * NS + NS // 10, 6_000_000), (4 * NS, 1_000_000)]
)
def test_what_a_connection_sent_before_the_step_is_left_out(busy_ns: int, told: int) -> None:
    """But not all of it where it began just before the step."""
    transfer = Transfer()
    transfer.add_look("10.0.0.7:443", SentBytes(5_000_000, busy_ns, 13 * NS))
    transfer.add_look("10.0.0.7:443", SentBytes(6_000_000, busy_ns + NS // 2, 13 * NS + NS // 2))
    assert transfer.bytes(since_ns=10 * NS) == told


def test_the_stack_of_a_busy_worker_explains_where_none_is_blocked() -> None:
    late = LateStepObservations()
    samples = [worker(7, ThreadState.ON, 2 * NS), worker(8, ThreadState.ON, NS), worker(9, ThreadState.BLOCKED, 0)]
    late.see_workers(samples, 0, 3 * NS)
    assert late.busy == 8, "it has been busy longest"
    assert late.stack_of_worker() == ()
    late.worker_stacks[8] = ("_worker_loop (worker.py:1)", "slow (data.py:3)")
    assert late.stack_of_worker()[-1] == "slow (data.py:3)"
