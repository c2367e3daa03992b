"""Hypothesis strategies for every dataclass of the model, made from its type hints."""

from __future__ import annotations

import dataclasses
import types
import typing
from enum import Enum
from functools import cache
from typing import Any

from hypothesis import strategies as st

from trainprobe.model.cells import CELLS, LEAVES
from trainprobe.model.message import Message
from trainprobe.wire import codec

# What a file name may hold on Linux: any Unicode, control characters, and bytes that are no Unicode (surrogateescape).
text = st.text(
    st.one_of(st.characters(codec="utf-8"), st.sampled_from('\udc80\udcff\x1b\x00\n"\\')),
    max_size=12,
)
whole = st.integers(-(1 << 63), (1 << 63) - 1)
number = st.floats(-codec.LIMIT, codec.LIMIT).map(lambda value: value if abs(value) >= codec.FINEST else 0.0)
scalar = st.one_of(text, whole, number)


def parts(inner: st.SearchStrategy[Message]) -> st.SearchStrategy[Any]:
    return st.one_of(inner, st.lists(st.one_of(inner, scalar), max_size=2))


message = st.recursive(
    st.builds(Message, text, st.dictionaries(text, st.one_of(scalar, st.none()), max_size=2)),
    lambda inner: st.builds(Message, text, st.dictionaries(text, parts(inner), max_size=2)),
    max_leaves=3,
)


@cache
def of(hint: Any) -> st.SearchStrategy[Any]:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return st.one_of([of(argument) for argument in arguments])
    if origin is list:
        return st.lists(of(arguments[0]), max_size=2)
    if origin is tuple:
        assert arguments[1:] == (...,), f"{hint}: the wire has no form for it"
        return st.lists(of(arguments[0]), max_size=2).map(tuple)
    if origin is dict:
        return st.dictionaries(text, of(arguments[1]), max_size=2)
    if hint is Message:
        return message
    if dataclasses.is_dataclass(hint):
        return of_class(hint)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return st.sampled_from(hint)
    return {int: whole, float: number, str: text, bool: st.booleans(), types.NoneType: st.none(), Any: whole}[hint]


@cache
def of_class(kind: Any) -> st.SearchStrategy[Any]:
    hints = typing.get_type_hints(kind)
    fields = {field.name: st.deferred(lambda hint=hints[field.name]: of(hint)) for field in dataclasses.fields(kind)}
    fields |= {name: cells(size) for name, size in (("cells", CELLS), ("pool", LEAVES)) if name in fields}
    return st.builds(kind, **fields)


def cells(size: int) -> st.SearchStrategy[tuple[int, ...]]:
    sparse = st.dictionaries(st.integers(0, size - 1), st.integers(0, (1 << 63) - 1), max_size=8)
    return sparse.map(lambda used: tuple(used.get(index, 0) for index in range(size)))
