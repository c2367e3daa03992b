"""Every cause, found by its file: one ``SPEC`` a file in stalls, limits, run and phases; further rules in shared."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType
from typing import TypeVar

from trainprobe.causes import limits, phases, run, shared, stalls
from trainprobe.causes.base import Rule
from trainprobe.causes.situation import LimitRule
from trainprobe.causes.spec import CauseSpec, OrderedRule
from trainprobe.causes.waiting import for_blocked_workers
from trainprobe.model.cause import Cause
from trainprobe.model.message import Message

R = TypeVar("R", Rule, LimitRule)


def _modules(*packages: ModuleType) -> Iterator[ModuleType]:
    for package in packages:
        for found in iter_modules(package.__path__, f"{package.__name__}."):
            yield import_module(found.name)


def _discovered() -> Iterator[CauseSpec]:
    for module in _modules(stalls, limits, phases, run):
        spec: CauseSpec = module.SPEC
        if module.__name__.rpartition(".")[2] != spec.key:
            raise ValueError(f"{module.__name__} declares the cause {spec.key}")
        yield spec


DECLARED: Mapping[str, CauseSpec] = {spec.key: spec for spec in _discovered()}
SPECS: Mapping[Cause, CauseSpec] = {cause: DECLARED[cause.value] for cause in Cause if cause.value in DECLARED}
"""In the order of ``Cause``. A test holds that these are all that are declared."""


def _rules() -> Iterator[OrderedRule]:
    for spec in DECLARED.values():
        yield from spec.rules
    for module in _modules(shared):
        yield from module.RULES


def placed(found: Iterable[tuple[int | None, R]]) -> Sequence[R]:
    """The rules by their places. Raises ValueError where two stand at one."""
    by_place: dict[int, R] = {}
    for place, rule in found:
        if place is not None and by_place.setdefault(place, rule) is not rule:
            raise ValueError(f"{rule.__module__} and {by_place[place].__module__} both stand at {place}")
    return tuple(by_place[place] for place in sorted(by_place))


_ALL = tuple(_rules())
STALL_RULES = placed((one.stall, one.claim) for one in _ALL)
"""Rules for late steps, in the order in which they claim."""
ORDINARY_RULES = placed((one.ordinary, one.claim) for one in _ALL)
"""Rules for ordinary steps (bottlenecks)."""
CHECKS = placed((one.place, one.check) for spec in DECLARED.values() for one in spec.checks)
"""Rules about limits, in the order in which their notices are reported."""


def explained_by_worker(cause: Cause, summary: Message | None) -> bool:
    """Whether a worker's Python stack explains a stall that is told so; the driver only waits."""
    return SPECS[cause].worker_stack or for_blocked_workers(summary)
