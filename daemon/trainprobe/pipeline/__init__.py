"""step(frame): the one way from what was seen to what is reported; live, attached and replayed runs take it alike."""

from __future__ import annotations

from trainprobe.pipeline.pipeline import ENDED, SETTLED_NS, Pipeline
from trainprobe.pipeline.run.wants import Wants

__all__ = ["ENDED", "SETTLED_NS", "Pipeline", "Wants"]
