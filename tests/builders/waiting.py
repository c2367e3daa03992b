"""What a test waits for: as long as a busy machine takes, as short as an idle one does."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Found = TypeVar("Found")


def wait_until(holds: Callable[[], Found], seconds: float = 20) -> Found:
    """What ``holds`` answers, as soon as it is true."""
    end, pause = time.monotonic() + seconds, 0.0002
    while not (found := holds()):
        assert time.monotonic() < end, "it did not come to be"
        time.sleep(pause)
        pause = min(2 * pause, 0.02)
    return found
