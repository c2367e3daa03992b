"""Functions that evaluate, by their names and by what calls a model, on Python stacks."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from functools import lru_cache
from typing import TypeVar

from trainprobe.derive.python.stacks import in_backward

Stack = TypeVar("Stack", bound=Sequence[str])

_VALID = r"(?<!in)(?<!is_)valid(?!_?(?:moves?|actions?|masks?|ind))"
_VAL = r"(?<![a-z])(?<!get_)(?<!set_)val(?:_(?:epoch|step|loop|one_epoch|pass|phase))?$|\b(?-i:Val(?=[A-Z]))"
_METRICS = r"(?:comput|calc)\w*metric|metric\w*\.compute"
_EVALUATION = rf"(?<!ri)eval|{_VALID}|{_VAL}|estimate_loss|\btest|_test|{_METRICS}|benchmark"
"""No retrieval, and nothing of metrics that are logged in each step, as MetricLogger.log_every does."""
_NAMED = re.compile(_EVALUATION, re.IGNORECASE)
_NAMES = re.compile(rf"{_EVALUATION}|predict|infer|score|rollout|trajector", re.IGNORECASE)
"""What such functions do with gradients on is the training's: diffusion models predict a noise in each step."""
_MODEL = re.compile(r"(^|\.)(forward|_call_impl|_wrapped_call_impl)$")
_TRAINS = re.compile(r"(?:^|_)(?:train|training|pretrain|finetune|fit|learn)(?:_|$)")
_CALLS = re.compile(r"cross_?val|_log_save_evaluate")
"""Functions that train the model of each fold; the one of transformers that logs and saves, too."""
_HUMPS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_FETCH = ("/dataloader.py:", "DataLoaderIter.")
"""Of a library's loader, by its file or by its class: a user's own file may be called so."""


def shown_by(stack: Sequence[str], loop: Collection[str] = ()) -> bool:
    """Whether a function on the stack is named like an evaluation or a rollout, or is a model's forward pass.
    ``loop``: functions of the training's loop."""
    return any(map(_NAMES.search, _telling(stack, loop))) or any(_MODEL.search(_name(frame)) for frame in stack)


def is_named(stack: Sequence[str], loop: Collection[str] = ()) -> bool:
    """Whether a function on the stack is named like an evaluation, and not only like a rollout."""
    return any(map(_NAMED.search, _telling(stack, loop)))


def _telling(stack: Sequence[str], loop: Collection[str]) -> Iterator[str]:
    """The names of functions that may tell an evaluation. Those inside of a forward pass are a model's, which predicts
    in each step. One that trains does other things as well, whatever its class and itself are called."""
    for frame in stack:
        name = _name(frame)
        if _MODEL.search(name):
            return
        if not (_trains(name) or _function(frame) in loop):
            yield name


@lru_cache(maxsize=1024)
def _trains(name: str) -> bool:
    """``train_and_evaluate`` does, and ``evaluate_on_train`` does not."""
    own = _HUMPS.sub("_", name.rpartition(".")[2]).lower()
    found = _TRAINS.search(own)
    return bool(_CALLS.search(own)) or (found is not None and not _NAMED.search(own[: found.start()]))


def in_batch(stack: Sequence[str]) -> bool:
    """Whether it is in a model's forward pass, or in a fetch."""
    return any(any(part in frame for part in _FETCH) or _MODEL.search(_name(frame)) for frame in stack)


def mostly_beside_model(stacks: list[Stack]) -> list[Stack]:
    """Without stacks of the model's own passes and of fetches, which each step has, where most show something else."""
    beside = [one for one in stacks if not (in_batch(one) or in_backward(one))]
    return beside if 2 * len(beside) > len(stacks) else stacks


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


def is_evaluation(stack: Sequence[str], evaluators: Collection[str], loop: Collection[str] = ()) -> bool:
    """Whether it shows one, by a name or by what called the model earlier."""
    return shown_by(stack, loop) or known_by(stack, evaluators)


def _name(frame: str) -> str:
    return frame.split("(")[0].strip()


def _function(frame: str) -> str:
    return frame.rpartition(":")[0]
