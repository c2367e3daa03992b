"""The driver reads a checkpoint back while it trains: after a NaN, for the best weights, at a search's end.

It has no cause of its own: `unknown` names it. It is no data, so neither storage nor loading is to be changed.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from trainprobe.causes import waiting
from trainprobe.causes.base import Claim, Items, Window, seconds, take_items
from trainprobe.causes.spec import OrderedRule
from trainprobe.derive.python import serializers
from trainprobe.derive.python.evaluators import in_batch, is_evaluation
from trainprobe.model.cause import Cause, State
from trainprobe.model.cells import Region
from trainprobe.model.message import template
from trainprobe.model.report import Evidence

READS = template("restore.reads", "training thread reads {path}")
A_CHECKPOINT = template("restore.a_checkpoint", "a checkpoint")


def claim(window: Window, left: Items) -> Claim | None:
    """The driver's reads outside of fetches, where one was of a file that the run saved, or of them the part of the
    stacks of waits, but for an evaluation's, that show a function that restores a model."""
    path, stacks = window.restored, [seen for seen in window.late.stacks if seen.frames]
    shows = [seen for seen in stacks if _restores(seen.frames, window.loop)]
    others = [seen for seen in stacks if seen not in shows and not seen.running and not _evaluates(window, seen.frames)]
    part = 1.0 if path else len(shows) / max(1, len(shows) + len(others))
    outside = [region for region in Region if region != Region.FETCH]
    taken = take_items(left, states=[State.DATA_INLINE, State.FAULT_IO], regions=outside, part=part)
    if not taken:
        return None
    spent = seconds(sum(taken.values()))
    return Claim(
        Cause.UNKNOWN,
        taken,
        waiting.RESTORED(path=path or A_CHECKPOINT(), seconds=spent),
        [READS(path=path or A_CHECKPOINT())],
        [Evidence.of(waiting.RESTORING(), spent, "s", window.driver_pid, path or None)],
    )


def _restores(stack: Sequence[str], loop: Collection[str]) -> bool:
    """A function of that name that the training's loop is in (``resume``) does other things as well."""
    inside = [frame for frame in stack if frame.rpartition(":")[0] not in loop]
    return serializers.restored_by(inside) and not in_batch(stack)


def _evaluates(window: Window, stack: Sequence[str]) -> bool:
    return is_evaluation(stack, window.evaluators, window.loop)


RULES = (OrderedRule(claim, stall=125),)
