"""Ordinary steps beside which another thread of the driver's process saved: what they wait at locks beyond the others.

A thread that serialises, or writes from Python, holds the interpreter's lock for much of that time."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import field

from trainprobe.derive.files.save import Save
from trainprobe.derive.files.save_spans import LEAST
from trainprobe.derive.steps.ledger import Item
from trainprobe.model.cells import Leaf, Region
from trainprobe.model.dataclass import dataclass

BESIDE = 0.5
"""Of a step: for so much of it at least the other thread saved."""
MORE = 0.25
"""Of what they wait at a lock: less beyond the other steps' waits is no more than these scatter."""
_KEEP = 64
_REGIONS = (Region.STEP, Region.NO_GRAD)
"""Where Python runs. The backward pass and the optimiser wait for compute threads, a fetch for a batch."""


@dataclass(frozen=True, slots=True)
class WaitsBesideSaves:
    """Of all such steps, in ns, beyond the other steps; and the saves, the latest first."""

    items: Mapping[Item, float]
    saves: Sequence[Save]


@dataclass(slots=True)
class StepsBesideSaves:
    count: int = 0
    items: dict[Item, float] = field(default_factory=dict)  # of these steps, at locks
    saves: deque[Save] = field(default_factory=deque)
    _gone_ns: int = 0  # how long saves took that are kept no longer

    def add_steps(self, saves: Sequence[Save], count: int, items: Mapping[Item, int]) -> None:
        """Take in ordinary steps, and the other threads' saves beside them."""
        self.count += count
        for item, ns in items.items():
            if item[1] in _REGIONS and item[2] == Leaf.LOCK:
                self.items[item] = self.items.get(item, 0.0) + ns
        for save in saves:
            if not any(save is one for one in self.saves):
                self.saves.append(save)
        while len(self.saves) > _KEEP:
            self._gone_ns += _written_for_ns(self.saves.popleft())

    def beyond(self, ordinary: Mapping[Item, float], count: int) -> WaitsBesideSaves | None:
        """None where too few of all ordinary steps (``count``, which have ``ordinary``) had no save beside them. The
        waits are no longer than the saves took."""
        others = count - self.count
        if not self.count or others < LEAST:
            return None
        part = self.count / others
        more = {item: (1 + part) * ns - part * ordinary.get(item, 0.0) for item, ns in self.items.items()}
        more = {item: ns for item, ns in more.items() if ns >= MORE * self.items[item]}
        most, total = self._gone_ns + sum(map(_written_for_ns, self.saves)), sum(more.values())
        if not total:
            return None
        part = min(1.0, most / total)
        return WaitsBesideSaves({item: part * ns for item, ns in more.items()}, list(reversed(self.saves)))


def _written_for_ns(save: Save) -> int:
    """From its open to the last that is known of it."""
    return max(save.start_ns, save.grown_ns if save.end_ns is None else save.end_ns) - save.start_ns
