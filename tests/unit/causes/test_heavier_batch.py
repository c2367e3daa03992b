from __future__ import annotations

from types import SimpleNamespace
from typing import cast

from trainprobe.causes.base import Window
from trainprobe.causes.heavier_batch import grew_alike
from trainprobe.model.cause import State
from trainprobe.model.cells import Region


def test_a_forward_alone_grew_like_no_backward() -> None:
    """Of a step that is nothing beside an ordinary one that is nothing."""
    forward = (State.COMPUTE, Region.STEP, "")
    window = SimpleNamespace(excess={forward: 1.0}, items={forward: 2}, baseline_ns=0.0)
    assert not grew_alike(cast("Window", window), Region.STEP)
