"""The only notion of time: what the clocks said when a frame was taken."""

from __future__ import annotations

from dataclasses import dataclass

NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Moment:
    """One instant on two clocks.

    ``monotonic_ns`` is CLOCK_MONOTONIC (what BPF's ``bpf_ktime_get_ns`` reads), ``wall_ns`` is UNIX time.
    Durations come from the first, what people read from the second.
    """

    monotonic_ns: int
    wall_ns: int

    def wall_of(self, monotonic_ns: int) -> float:
        """UNIX seconds of another monotonic instant, by this moment's offset between the clocks."""
        return (self.wall_ns - self.monotonic_ns + monotonic_ns) / NS
