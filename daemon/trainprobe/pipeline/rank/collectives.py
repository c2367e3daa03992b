"""How much of a rank's waits for other ranks is the collective's own transfer: of each step the shortest wait."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import field
from functools import lru_cache

from trainprobe.derive.steps.baseline import Ordinary
from trainprobe.derive.steps.ledger import WaitContext, states_of_cells
from trainprobe.model.cause import State
from trainprobe.model.dataclass import dataclass

KEEP = 4096
"""Steps that wait for the other ranks' rows."""


@dataclass(slots=True)
class Collectives:
    """One rank's waits for others, step by step, until the same step of the other ranks is known. In ns."""

    transfer_ns: float = 0.0  # in `steps` steps
    steps: int = 0
    held_ns: float = 0.0  # of another rank's waits beyond the transfer, in steps in which this one came last
    late: dict[str, float] = field(default_factory=dict)  # waits beyond the transfer, by the rank that came last
    _open: deque[tuple[int, float]] = field(default_factory=lambda: deque(maxlen=KEEP))

    def add(self, number: int, step: Ordinary) -> None:
        """Take in steps, the last of which has this number."""
        ns = sum(step.made_of.cell(place) for place in _places(step.made_of.context)) / step.steps
        self._open.extend((number - later, ns) for later in range(step.steps - 1, -1, -1))


@lru_cache(maxsize=8)
def _places(context: WaitContext) -> tuple[int, ...]:
    states = states_of_cells(context, None, saving=False)
    return tuple(place for place, state in enumerate(states) if state is State.COLLECTIVE)


def match(ranks: Mapping[str, Collectives]) -> None:
    """Take the steps that all of them have told; ranks by their names."""
    while len(ranks) > 1 and all(rank._open for rank in ranks.values()):
        number = max(rank._open[0][0] for rank in ranks.values())
        heads = {name: rank._open.popleft() for name, rank in ranks.items() if rank._open[0][0] <= number}
        if len(heads) < len(ranks) or any(head[0] != number for head in heads.values()):
            continue
        last = min(heads, key=lambda name: heads[name][1])
        least = heads[last][1]
        ranks[last].held_ns += max(head[1] for head in heads.values()) - least
        for name, rank in ranks.items():
            rank.transfer_ns += least
            rank.steps += 1
            if name != last:
                rank.late[last] = rank.late.get(last, 0.0) + heads[name][1] - least
