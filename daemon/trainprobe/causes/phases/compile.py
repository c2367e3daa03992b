"""A compiler ran before the training had found its ordinary step. The pipeline measures it; later it is `recompile`."""

from __future__ import annotations

from trainprobe.causes import groups
from trainprobe.causes.spec import CauseSpec
from trainprobe.model.cause import Kind

SPEC = CauseSpec(
    "compile",
    kinds=frozenset({Kind.PHASE}),
    title="compiling",
    colours=("#78716c", "#a8a29e"),
    group=groups.PHASES,
)
