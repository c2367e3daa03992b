"""The start-up: from the process's begin until it is known what an ordinary step is. The pipeline measures it."""

from __future__ import annotations

from trainprobe.causes import groups
from trainprobe.causes.spec import CauseSpec
from trainprobe.model.cause import Kind

SPEC = CauseSpec(
    "startup",
    kinds=frozenset({Kind.PHASE}),
    title="start-up",
    colours=("#64748b", "#94a3b8"),
    group=groups.PHASES,
)
