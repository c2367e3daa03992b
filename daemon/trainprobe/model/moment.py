"""The only notion of time: both clocks when a frame was taken."""

from __future__ import annotations

from trainprobe.model.dataclass import dataclass

NS = 1_000_000_000
SLACK_NS = 1_000_000  # a smaller change of the clocks' offset is none
KEPT = 64  # shifts


@dataclass(frozen=True, slots=True)
class Moment:
    """One instant on two clocks.

    ``monotonic_ns`` is CLOCK_MONOTONIC (what BPF's ``bpf_ktime_get_ns`` reads), ``wall_ns`` is UNIX time.
    Durations come from the first, times for people from the second.
    """

    monotonic_ns: int
    wall_ns: int

    def wall_of(self, monotonic_ns: int) -> float:
        """UNIX seconds of another monotonic instant, by this moment's offset between the clocks."""
        return (self.wall_ns - self.monotonic_ns + monotonic_ns) / NS


@dataclass(frozen=True, slots=True)
class Remembering(Moment):
    """A moment that knows the earlier offsets between the clocks."""

    shifts: tuple[tuple[int, int], ...]  # (since CLOCK_MONOTONIC ns, wall - monotonic from then on), at least one

    def wall_of(self, monotonic_ns: int) -> float:
        """UNIX seconds of another monotonic instant, by the offset at that instant."""
        offset = self.shifts[0][1]
        for since, shifted in self.shifts:
            if since > monotonic_ns:
                break
            offset = shifted
        return (offset + monotonic_ns) / NS


class Offsets:
    """Remembers the offsets between the clocks, so that an instant always has the same UNIX time in reports.

    A suspend, a change of the clock, or the small difference of two clocks that are read one after the other moves
    nothing that was reported.
    """

    def __init__(self) -> None:
        self._shifts: list[tuple[int, int]] = []

    def update(self, at: Moment) -> None:
        offset = at.wall_ns - at.monotonic_ns
        if not self._shifts or abs(offset - self._shifts[-1][1]) > SLACK_NS:
            self._shifts.append((at.monotonic_ns, offset))
            del self._shifts[:-KEPT]

    def known(self, at: Moment) -> Moment:
        return Remembering(at.monotonic_ns, at.wall_ns, tuple(self._shifts)) if self._shifts else at
