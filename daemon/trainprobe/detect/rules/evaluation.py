"""The training evaluates: batches without backwards, or forward passes without gradients."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from trainprobe.derive.ledger import Item
from trainprobe.detect.base import Claim, Window, seconds, take
from trainprobe.model.cause import Cause, State
from trainprobe.model.cells import Region
from trainprobe.model.report import Evidence

_NAMES = re.compile(r"eval|valid|\btest|_test|infer|predict|score|metric|benchmark", re.IGNORECASE)
_MODEL = re.compile(r"(^|\.)(forward|_call_impl|_wrapped_call_impl)$")
_KEEP = (State.CHECKPOINT, State.LOGGING, State.STOPPED)


def shown_by(stack: Sequence[str]) -> bool:
    """Whether a function on the stack is named like an evaluation, or is a model's forward pass."""
    names = [frame.split("(")[0].strip() for frame in stack]
    return any(_NAMES.search(name) or _MODEL.search(name) for name in names)


def claim(window: Window, left: Mapping[Item, float]) -> Claim | None:
    """All that is no save, log or stop, when more was fetched than trained on or gradients were off for most of it."""
    taken = take(left, states=[s for s in State if s not in _KEEP])
    total = sum(taken.values())
    if total <= 0:
        return None
    quiet = sum(ns for (_, region, _), ns in taken.items() if region == Region.NO_GRAD)
    fetched = window.extra_fetches >= window.policy.evaluation_fetches
    by_grad = quiet > 0.5 * total and (not window.stack or shown_by(window.stack))
    if not fetched and not by_grad:
        return None
    evidence = [Evidence("seconds beyond an ordinary step", seconds(total), "s", window.driver_pid)]
    if fetched:
        evidence.append(
            Evidence("batches fetched without a backward", round(window.extra_fetches), "", window.driver_pid)
        )
    if quiet > 0:
        evidence.append(Evidence("seconds with gradients off", seconds(quiet), "s", window.driver_pid))
    return Claim(Cause.EVALUATION, taken, f"evaluation for {seconds(total):.1f} s", ["driver evaluates"], evidence)
