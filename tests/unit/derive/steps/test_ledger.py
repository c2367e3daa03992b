"""Cells become states; nothing is lost on the way."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from trainprobe.derive.files.purpose import FileClass
from trainprobe.derive.steps.ledger import WaitContext, by_state, flatten
from trainprobe.model.cause import State
from trainprobe.model.cells import CELLS, Leaf, Region, cell
from trainprobe.model.event import StepFile

CLASSES = st.sampled_from(list(FileClass))
FILES = st.lists(
    st.tuples(
        st.builds(StepFile, st.just(1), st.integers(1, 9), st.integers(0, 10**9), st.integers(0, 10**9), st.just(1)),
        CLASSES,
    ),
    max_size=4,
)
USED = [cell(region, leaf) for region in Region for leaf in Leaf]


@given(
    st.dictionaries(st.sampled_from(USED), st.integers(1, 10**12), max_size=20),
    FILES,
    st.builds(WaitContext, st.booleans(), st.booleans(), st.booleans()),
)
def test_states_add_up_to_the_cells(
    values: dict[int, int], files: list[tuple[StepFile, FileClass]], context: WaitContext
) -> None:
    cells = [values.get(i, 0) for i in range(CELLS)]
    assert sum(by_state(flatten(cells, files, context)).values()) == sum(cells)


def _one(
    region: Region, leaf: Leaf, files: list[tuple[StepFile, FileClass]], context: WaitContext | None = None
) -> dict[State, float]:
    cells = [0] * CELLS
    cells[cell(region, leaf)] = 1000
    return by_state(flatten(cells, files, context or WaitContext()))


def test_write_calls_follow_the_class_of_their_file() -> None:
    files = [(StepFile(1, 1, 750, 0, 1), FileClass.CHECKPOINT), (StepFile(1, 2, 250, 0, 1), FileClass.LOG)]
    assert _one(Region.STEP, Leaf.FILE_WRITE, files) == {State.CHECKPOINT: 750, State.LOGGING: 250}


def test_the_gap_between_two_log_lines_is_the_programs_own_work() -> None:
    files = [(StepFile(1, 2, 10, 500, 1), FileClass.LOG)]
    assert _one(Region.STEP, Leaf.FILE_GAP, files) == {State.COMPUTE: 1000}


def test_a_fetch_is_waiting_with_workers_and_loading_without() -> None:
    assert _one(Region.FETCH, Leaf.POLL, []) == {State.DATA_WAIT: 1000}
    assert _one(Region.FETCH, Leaf.CPU, [], WaitContext(inline=True)) == {State.DATA_INLINE: 1000}


def test_runqueue_and_faults_win_over_the_region() -> None:
    assert _one(Region.FETCH, Leaf.RUNQUEUE, []) == {State.RUNQUEUE: 1000}
    assert _one(Region.BACKWARD, Leaf.SWAP, []) == {State.MEMORY: 1000}


def test_a_pipe_read_outside_of_a_fetch_is_data_only_with_workers() -> None:
    assert _one(Region.STEP, Leaf.PIPE_READ, [], WaitContext(workers=True)) == {State.DATA_WAIT: 1000}
    assert _one(Region.STEP, Leaf.PIPE_READ, []) == {State.OTHER: 1000}


def test_what_a_loader_without_workers_writes_is_loading() -> None:
    """A data set's cache, whatever its name."""
    files = [(StepFile(1, 1, 750, 250, 1), FileClass.CHECKPOINT)]
    for leaf in (Leaf.FILE_WRITE, Leaf.FILE_GAP):
        assert _one(Region.FETCH, leaf, files, WaitContext(inline=True)) == {State.DATA_INLINE: 1000}
        assert _one(Region.STEP, leaf, files, WaitContext(inline=True)) == {State.CHECKPOINT: 1000}


def test_where_a_loaders_batches_are_fetched_a_pipe_is_somebody_elses() -> None:
    context = WaitContext(workers=True, fetched=True)
    assert _one(Region.STEP, Leaf.PIPE_READ, [], context) == {State.OTHER: 1000}
    assert _one(Region.FETCH, Leaf.PIPE_READ, [], context) == {State.DATA_WAIT: 1000}
