"""A person's session waits for its next input: the prompt of an interpreter, a notebook between two cells."""

from __future__ import annotations

from collections.abc import Sequence

from trainprobe.causes import groups
from trainprobe.causes.base import Claim, Items, Window, seconds, take_items
from trainprobe.causes.spec import CauseSpec, OrderedRule
from trainprobe.derive.python.frameworks import is_own, library
from trainprobe.model.cause import Cause, Kind
from trainprobe.model.cells import Leaf, Region
from trainprobe.model.message import template
from trainprobe.model.report import Evidence

SUMMARY = template("idle.summary", "waiting for a person's input for {seconds:seconds}")
WAITS = template("idle.waits", "training thread waits for input")
AT_TERMINAL = template("idle.at_terminal", "seconds of waiting for input at a terminal")
BETWEEN_CELLS = template("idle.between_cells", "seconds of waiting between two cells of a notebook")
_KERNELS = frozenset({"ipykernel", "ipykernel_launcher"})
_LEAVES = (Leaf.POLL, Leaf.DEVICE, Leaf.PIPE_READ, Leaf.OTHER)


def claim(window: Window, left: Items) -> Claim | None:
    """Waits outside of the training's own calls, where a pass found the driver at a terminal's input, or a stack shows
    a notebook's kernel and nothing that it runs."""
    late = window.late
    if not late.terminal and not any(_between_cells(seen.frames) for seen in late.stacks):
        return None
    taken = take_items(left, leaves=_LEAVES, regions=[Region.STEP, Region.NO_GRAD])
    if not taken:
        return None
    spent = seconds(sum(taken.values()))
    what, path = (AT_TERMINAL(), late.terminal) if late.terminal else (BETWEEN_CELLS(), None)
    evidence = [Evidence.of(what, spent, "s", window.driver_pid, path)]
    return Claim(Cause.IDLE, taken, SUMMARY(seconds=spent), [WAITS()], evidence)


def _between_cells(stack: Sequence[str]) -> bool:
    return any(library(frame)[0] in _KERNELS for frame in stack) and not any(map(is_own, stack))


SPEC = CauseSpec(
    "idle",
    kinds=frozenset({Kind.PHASE}),
    title="waiting for input",
    colours=("#57534e", "#d6d3d1"),
    group=groups.PHASES,
    rules=(OrderedRule(claim, stall=5),),
)
