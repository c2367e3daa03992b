"""What a test waits for: as long as a busy machine takes, as short as an idle one does."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Found = TypeVar("Found")


def wait_until(holds: Callable[[], Found], seconds: float = 20) -> Found:
    """What ``holds`` answers, as soon as it is true."""
    end = time.monotonic() + seconds
    while not (found := holds()):
        assert time.monotonic() < end, "it did not come to be"
        time.sleep(0.01)
    return found
