"""Functions that evaluate, by their names and by what calls a model, on Python stacks."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

_EVALUATION = r"eval|valid|estimate_loss|\btest|_test|predict|metric|benchmark"
_NAMED = re.compile(_EVALUATION, re.IGNORECASE)
_NAMES = re.compile(rf"{_EVALUATION}|infer|score|rollout|trajector", re.IGNORECASE)
_MODEL = re.compile(r"(^|\.)(forward|_call_impl|_wrapped_call_impl)$")
_FETCH = "dataloader.py"


def shown_by(stack: Sequence[str]) -> bool:
    """Whether a function on the stack is named like an evaluation or a rollout, or is a model's forward pass."""
    return any(_NAMES.search(name) or _MODEL.search(name) for name in map(_name, stack))


def is_named(stack: Sequence[str]) -> bool:
    """Whether a function on the stack is named like an evaluation, and not only like a rollout."""
    return any(_NAMED.search(name) for name in map(_name, stack))


def in_batch(stack: Sequence[str]) -> bool:
    """Whether it is in a model's forward pass, or in a fetch."""
    return any(_FETCH in frame or _MODEL.search(_name(frame)) for frame in stack)


def generates(stack: Sequence[str]) -> bool:
    """Whether a model generates, as functions of that name do: between its forward passes, too."""
    return any(_name(frame).rpartition(".")[2] == "generate" for frame in stack)


def caller_of_model(stack: Sequence[str]) -> str:
    """The function that calls the model's forward pass, as ``name (file``; "" where none does, or only the script's
    outermost function, which may be the training's loop."""
    names = list(map(_name, stack))
    place = next((place for place, name in enumerate(names) if _MODEL.search(name)), 0)
    return _function(stack[place - 1]) if place >= 2 and names[place - 2] != "<module>" else ""


def known_by(stack: Sequence[str], evaluators: Collection[str]) -> bool:
    """Whether one of these functions, which called the model in earlier evaluations, is on the stack."""
    return bool(evaluators) and any(_function(frame) in evaluators for frame in stack)


def is_evaluation(stack: Sequence[str], evaluators: Collection[str]) -> bool:
    """Whether it shows one, by a name or by what called the model earlier."""
    return shown_by(stack) or known_by(stack, evaluators)


def _name(frame: str) -> str:
    return frame.split("(")[0].strip()


def _function(frame: str) -> str:
    return frame.rpartition(":")[0]
