"""Events that came between two sampling passes and can wait for the next: rows of steps within their limits."""

from __future__ import annotations

from collections.abc import Sequence

from trainprobe.model.cells import RowKind
from trainprobe.model.event import Event, HostStoodStill, MarkRow
from trainprobe.model.step_deadline import Armed

_STEPS = frozenset({RowKind.OPTIMIZER, RowKind.BACKWARD, RowKind.GPU, RowKind.RHYTHM})


class DeferredEvents:
    """Holds events, and looks at each new row as the kernel does: how long was it since the thread's last one?"""

    def __init__(self) -> None:
        self._events: list[Event] = []
        self._limits: dict[int, int] = {}  # ns, by thread
        self._rows: dict[int, int] = {}  # when the last row came, by thread

    def expect(self, armed: Sequence[Armed]) -> None:
        """A look was made: how long each driver's step may take from now on."""
        self._limits = {one.tid: one.limit_ns - one.began_ns for one in armed}
        self._rows = {one.tid: one.began_ns for one in armed}

    def defer(self, events: Sequence[Event], now_ns: int) -> bool:
        """Keep them; whether they and the steps that go on can wait for the next look."""
        self._events += events
        wait = all(map(self._ordinary, events))
        return wait and all(now_ns - at < self._limits[tid] for tid, at in self._rows.items())

    def drain(self) -> list[Event]:
        """Everything held, in the order in which it came."""
        events, self._events = self._events, []
        return events

    def _ordinary(self, event: Event) -> bool:
        if isinstance(event, HostStoodStill):
            return True
        if not isinstance(event, MarkRow) or event.kind not in _STEPS or event.tid not in self._limits:
            return False
        before, self._rows[event.tid] = self._rows[event.tid], event.at_ns
        later = event.lengths[1:]
        return max(event.at_ns - before - sum(later), *later, 0) < self._limits[event.tid]
