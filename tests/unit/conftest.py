from __future__ import annotations

import os
import random

import pytest


@pytest.fixture
def rng() -> random.Random:
    """Anew each time; ``TRAINPROBE_SEED`` draws again what failed."""
    seed = os.environ.get("TRAINPROBE_SEED") or str(random.randrange(1 << 30))
    print(f"TRAINPROBE_SEED={seed}")
    return random.Random(seed)
