"""Python's garbage collector over a heap as large trainings have it: millions of small objects that stay."""

from __future__ import annotations

import gc
import time
from typing import Any

_HEAPS = {
    "lists": lambda number: [number],
    "dictionaries": lambda number: {"sample": number},
    "cycles": lambda number: _tied(number),
}


def _tied(number: int) -> list[Any]:
    """An object that only the collector could free."""
    one: list[Any] = [number]
    one.append(one)
    return one


class Heap:
    """Made once, as an index of samples is; a full collection walks all of it."""

    def __init__(self, how: str, objects: int = 600_000) -> None:
        gc.disable()
        self._kept = [_HEAPS[how](number) for number in range(objects)]
        gc.enable()

    def collect(self, seconds: float) -> None:
        """Full collections, one after the other, until the time is up."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            gc.collect()
