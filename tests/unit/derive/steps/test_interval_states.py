from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from trainprobe.derive.files.purpose import FileClass
from trainprobe.derive.steps.interval import Interval, states_of
from trainprobe.derive.steps.ledger import WaitContext, by_state
from trainprobe.model.cells import CELLS, LEAVES
from trainprobe.model.event import StepFile

POOL = [0] * LEAVES
FILES = st.lists(
    st.tuples(
        st.builds(StepFile, st.just(1), st.integers(0, 9), st.integers(0, 10**6), st.integers(0, 10**6), st.just(4096)),
        st.sampled_from(FileClass),
        st.just("/out/file"),
    ),
    max_size=3,
)
STEPS = st.lists(
    st.tuples(
        st.dictionaries(st.integers(0, CELLS - 1), st.integers(1, 10**9), max_size=20),
        st.builds(WaitContext, st.booleans(), st.booleans(), st.booleans()),
        FILES,
        st.booleans(),
    ),
    max_size=6,
)


@given(STEPS, st.integers(0, 1))
def test_states_are_those_of_the_items(
    steps: list[tuple[dict[int, int], WaitContext, list[tuple[StepFile, FileClass, str]], bool]], begin: int
) -> None:
    """The short way and the long one say the same, whatever was done, and whether steps follow one another or not."""
    stretches = []
    before = [begin] * CELLS
    for spent, context, files, gap in steps:
        if gap:
            before = [ns + 5 for ns in before]
        after = [ns + spent.get(place, 0) for place, ns in enumerate(before)]
        stretches.append(Interval(before, after, POOL, POOL, files, context))
        before = after
    assert states_of(stretches) == [by_state(stretch.items()) for stretch in stretches]
