"""Waits of a driver's calls beside computing, in equal intervals of a run's ordinary steps.

The spread of their means within one run shows which difference from another run is significant. The intervals grow with
the run, so that their number is bounded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from trainprobe.derive.steps.interval import Files
from trainprobe.derive.steps.ledger import STATE_OF_CLASS, Item
from trainprobe.model.cause import State
from trainprobe.model.cells import Leaf
from trainprobe.model.dataclass import dataclass

SHORTEST, MOST = 4, 32
"""Steps of a stretch at first; stretches at most: then two become one."""
CALLS: Mapping[Leaf, str] = {
    Leaf.FILE_READ: "read",
    Leaf.FAULT: "read",
    Leaf.FILE_WRITE: "write",
    Leaf.FILE_SYNC: "write",
    Leaf.FILE_META: "write",
    Leaf.SLEEP: "sleep",
    Leaf.SOCKET: "network",
    Leaf.PIPE_READ: "pipe",
    Leaf.STREAM_OUT: "pipe",
}
"""The kinds of waits. Locks, children, polls and devices are omitted: another thread may compute meanwhile."""
ELSEWHERE = frozenset({State.DATA_WAIT, State.COLLECTIVE, State.GPU_WAIT})
"""Workers, other ranks and a GPU compute while they are waited for."""


@dataclass(slots=True)
class Waited:
    """Of some steps together, by "state/call": ns, and of writing the calls that ended and their bytes."""

    steps: int = 0
    ns: dict[str, float] = field(default_factory=dict)
    calls: dict[str, float] = field(default_factory=dict)
    bytes: dict[str, float] = field(default_factory=dict)

    def add(self, other: Waited) -> None:
        self.steps += other.steps
        for mine, more in ((self.ns, other.ns), (self.calls, other.calls), (self.bytes, other.bytes)):
            for key, value in more.items():
                mine[key] = mine.get(key, 0.0) + value


@dataclass(slots=True)
class Waits:
    """Steps are counted one by one; their waits are added when an interval is ``full``, or before."""

    stretches: list[Waited] = field(default_factory=list)
    length: int = SHORTEST  # steps
    _open: Waited = field(default_factory=Waited)

    def step(self, steps: int) -> None:
        self._open.steps += steps

    @property
    def full(self) -> bool:
        """Whether the parts of the steps are due."""
        return self._open.steps >= self.length

    def add_steps(self, items: Mapping[Item, float], files: Files) -> None:
        """What all steps since the last time were made of, in ns, and the files that they wrote."""
        open_ = self._open
        for (state, _, leaf), ns in items.items():
            call = CALLS.get(leaf)
            if call is not None and state not in ELSEWHERE:
                key = f"{state.value}/{call}"
                open_.ns[key] = open_.ns.get(key, 0.0) + ns
        for use, of, _ in files:
            key = f"{STATE_OF_CLASS[of].value}/write"
            open_.calls[key] = open_.calls.get(key, 0.0) + use.calls
            open_.bytes[key] = open_.bytes.get(key, 0.0) + use.bytes
        if self.full:
            self._close()

    def _close(self) -> None:
        self.stretches.append(self._open)
        self._open = Waited()
        if len(self.stretches) < MOST:
            return
        self.length *= 2
        for one, next_ in zip(self.stretches[::2], self.stretches[1::2]):
            one.add(next_)
        del self.stretches[1::2]

    def per_step(self) -> dict[str, list[float]]:
        """Seconds a step, by "state/call", in each of the stretches."""
        return _means([(one.steps, one.ns) for one in self.stretches], 1e9)

    def calls(self) -> dict[str, list[float]]:
        """Calls a step that ended, of those that write."""
        return _means([(one.steps, one.calls) for one in self.stretches])

    def bytes(self) -> dict[str, list[float]]:
        """Bytes a step that such calls wrote."""
        return _means([(one.steps, one.bytes) for one in self.stretches])


def _means(sums: list[tuple[int, dict[str, float]]], unit: float = 1.0) -> dict[str, list[float]]:
    keys = {key: None for _, values in sums for key, value in values.items() if value}
    return {key: [values.get(key, 0.0) / steps / unit for steps, values in sums] for key in keys}
