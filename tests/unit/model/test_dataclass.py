"""The quick ``dataclass`` means what the standard library's does."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from dataclasses import field
from typing import Any

import pytest

from trainprobe.model import dataclass as quick

Decorator = Callable[..., Any]


def made(dataclass: Decorator) -> dict[str, type[Any]]:
    @dataclass(frozen=True, slots=True)
    class Pair:
        first: int
        second: float = 0.0

    @dataclass(slots=True)
    class State:
        values: list[int] = field(default_factory=list)
        seen: int = field(default=0, compare=False)
        hidden: int = field(default=0, repr=False)

    @dataclass(frozen=True)
    class One:
        value: float

    @dataclass
    class Nothing:
        pass

    @dataclass(frozen=True, slots=True)
    class Named(Pair):
        third: str = "x"

        def __repr__(self) -> str:
            return "named"

    @dataclass(frozen=True)
    class Alike:
        value: int

        def __eq__(self, other: object) -> bool:
            return True

        __hash__ = None  # type: ignore[assignment]

    @dataclass(frozen=True, slots=True)
    class Keyed:
        key: str
        values: dict[str, int] = field(hash=False)

    return {one.__name__: one for one in (Pair, State, One, Nothing, Named, Alike, Keyed)}


OURS, THEIRS = made(quick.dataclass), made(dataclasses.dataclass)
MADE = [
    ("Pair", (1,)), ("Pair", (1, 2.0)), ("Pair", (2, 2.0)), ("State", ()), ("State", ([1], 5)), ("State", ([1], 6)),
    ("State", ([1], 6, 7)), ("One", (float("nan"),)), ("One", (1.0,)), ("Nothing", ()), ("Named", (1, 2.0)),
    ("Named", (1, 2.0, "y")), ("Alike", (1,)), ("Alike", (2,)), ("Keyed", ("a", {"b": 1})), ("Keyed", ("a", {"b": 2})),
]  # fmt: skip


def is_hashable(one: object) -> bool:
    try:
        hash(one)
    except TypeError:
        return False
    return True


def test_texts_are_the_same() -> None:
    for name, values in MADE:
        assert repr(OURS[name](*values)) == repr(THEIRS[name](*values))


def test_the_same_ones_are_hashable_and_equal_ones_have_one_hash() -> None:
    for name, values in MADE:
        one, other = OURS[name](*values), OURS[name](*values)
        assert is_hashable(one) == is_hashable(THEIRS[name](*values))
        assert not is_hashable(one) or hash(one) == hash(other)


def test_the_same_ones_are_equal() -> None:
    ours, theirs = ([classes[name](*values) for name, values in MADE] for classes in (OURS, THEIRS))
    for at, one in enumerate(ours):
        assert [one == other for other in ours] == [theirs[at] == other for other in theirs]


def test_the_library_s_functions_take_them() -> None:
    pair = OURS["Pair"](1, 2.0)
    assert dataclasses.replace(pair, second=3.0) == OURS["Pair"](1, 3.0)
    assert dataclasses.asdict(copy.deepcopy(pair)) == {"first": 1, "second": 2.0}
    assert not hasattr(pair, "__dict__")


def test_arguments_that_it_does_not_take_are_refused() -> None:
    with pytest.raises(TypeError):
        quick.dataclass(order=True)(type("Ordered", (), {}))
