"""What a driver did between two rows, kept as the rows have it: states are made of it only when somebody asks.

A training makes tens of steps a second and hardly one of them is ever looked at; their sums are. Stretches that follow
one another are one long stretch, whose cells are the difference of its ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import compress, count
from operator import sub

from trainprobe.derive.files import FileClass
from trainprobe.derive.ledger import Item, Setting, by_state, flatten, states_of_cells
from trainprobe.model.cause import State
from trainprobe.model.cells import LEAVES
from trainprobe.model.event import StepFile

MOST_FILES = 64
"""So many entries of files are carried along before a stretch is looked at."""
Files = Sequence[tuple[StepFile, FileClass, str]]
"""Written files with their classes and paths."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Cells and the workers' pool as they stood at both ends (cumulative, ns), and the files written in between."""

    cells_before: Sequence[int]
    cells_after: Sequence[int]
    pool_before: Sequence[int]
    pool_after: Sequence[int]
    files: Files
    setting: Setting

    def items(self) -> dict[Item, int]:
        """ns by item."""
        delta = [after - before for after, before in zip(self.cells_after, self.cells_before)]
        return flatten(delta, [(use, of) for use, of, _ in self.files], self.setting)

    def states(self) -> dict[State, float]:
        """ns by state: what ``by_state(items())`` says, at a third of its price where no file was written."""
        delta = list(map(sub, self.cells_after, self.cells_before))
        states = states_of_cells(self.setting)
        out: dict[State, float] = {}
        for index in compress(count(), delta):
            state = states[index] if index < len(states) else None
            if state is None:
                return by_state(self.items())
            out[state] = out.get(state, 0) + delta[index]
        return out

    def pool(self) -> list[int]:
        """ns of all worker processes together, by leaf."""
        return [after - before for after, before in zip(self.pool_after, self.pool_before)]

    def then(self, later: Stretch) -> Stretch | None:
        """Both as one, where ``later`` begins at this very end and waits are named alike; else None."""
        if later.cells_before is not self.cells_after or later.setting != self.setting:
            return None
        if len(self.files) + len(later.files) > MOST_FILES:
            return None
        files = [*self.files, *later.files] if self.files and later.files else self.files or later.files
        return Stretch(self.cells_before, later.cells_after, self.pool_before, later.pool_after, files, self.setting)


def joined(stretches: Iterable[Stretch]) -> list[Stretch]:
    """The same time in as few stretches as possible; given in time order."""
    out: list[Stretch] = []
    for stretch in stretches:
        both = out[-1].then(stretch) if out else None
        if both is None:
            out.append(stretch)
        else:
            out[-1] = both
    return out


def items_of(stretches: Iterable[Stretch]) -> dict[Item, int]:
    """Sums of ns by item."""
    out: dict[Item, int] = {}
    for stretch in joined(stretches):
        for item, ns in stretch.items().items():
            out[item] = out.get(item, 0) + ns
    return out


def pool_of(stretches: Iterable[Stretch]) -> list[int]:
    """Sums of ns by the workers' leaf."""
    out = [0] * LEAVES
    for stretch in joined(stretches):
        out = [total + ns for total, ns in zip(out, stretch.pool())]
    return out
