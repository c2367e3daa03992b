"""A compiler ran under the training: torch.compile, Triton, C++ extensions."""

from __future__ import annotations

from collections.abc import Mapping

from trainprobe.derive.ledger import Item
from trainprobe.detect.base import Claim, Window, seconds, take
from trainprobe.model.cause import Cause
from trainprobe.model.report import Evidence


def claim(window: Window, left: Mapping[Item, float]) -> Claim | None:
    """The whole excess, when compilers ran for at least a third of it."""
    total = sum(left.values())
    if window.compile_ns <= 0 or window.compile_ns < total / 3:
        return None
    return Claim(
        Cause.COMPILE,
        take(left),
        f"compiling for {seconds(window.compile_ns):.1f} s",
        ["driver waits for a compiler"],
        [Evidence("compiler processes ran", seconds(window.compile_ns), "s", window.driver_pid)],
    )
