from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from trainprobe.derive.files import FileClass
from trainprobe.derive.ledger import Setting, by_state
from trainprobe.derive.stretch import Stretch
from trainprobe.model.cells import CELLS, LEAVES
from trainprobe.model.event import StepFile

SAVED = (StepFile(1, 7, 10_000, 500, 4096), FileClass.CHECKPOINT, "/out/model.pth")


@given(
    st.dictionaries(st.integers(0, CELLS - 1), st.integers(1, 10**9), max_size=20),
    st.builds(Setting, st.booleans(), st.booleans(), st.booleans()),
    st.booleans(),
)
def test_states_are_those_of_the_items(spent: dict[int, int], setting: Setting, saved: bool) -> None:
    """The short way and the long one say the same, whatever was done."""
    before = [7] * CELLS
    after = [7 + spent.get(index, 0) for index in range(CELLS)]
    stretch = Stretch(before, after, [0] * LEAVES, [0] * LEAVES, [SAVED] if saved else [], setting)
    assert stretch.states() == by_state(stretch.items())
