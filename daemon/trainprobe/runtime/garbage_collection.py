"""Python's garbage collector in a process that makes no cycles of its own, but holds a host's trainings."""

from __future__ import annotations

import gc

THRESHOLDS = (10_000, 10, 10)
"""Objects until the youngest are looked through (Python's own: 700). A report makes thousands that live for a second:
looking among them took a twentieth of what a publication costs."""


def make_rare() -> None:
    """What is there by now stays, and need not be looked through again."""
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
