# SPDX-License-Identifier: Apache-2.0
"""Compiled programs as data."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainprobe.bpf.compile import image
from trainprobe.bpf.compile.image import Code, Image, MapShape, Spoiled

EXIT = struct.pack("<BBhi", 0x95, 0, 0, 0)
CALL = 0x85


def load_of_map(register: int, descriptor: int) -> bytes:
    """BPF_LD_MAP_FD, which takes the room of two instructions."""
    return struct.pack("<BBhi", 0x18, 1 << 4 | register, 0, descriptor) + bytes(8)


def constant(value: int) -> bytes:
    """The same instruction for a number that is no map's."""
    return struct.pack("<BBhiBBhi", 0x18, 1, 0, value, 0, 0, 0, 0)


NAMES = st.text(min_size=1, max_size=15)
SHAPES = st.builds(MapShape, *[st.integers(0, 2**32 - 1)] * 5)
CODES = st.builds(
    Code,
    st.binary(max_size=40).map(lambda raw: raw[: len(raw) // 8 * 8]),
    st.lists(st.tuples(st.integers(0, 4), NAMES), max_size=3).map(tuple),
)
IMAGES = st.builds(
    Image,
    st.just("GPL"),
    st.dictionaries(NAMES, SHAPES, max_size=3),
    st.dictionaries(NAMES, CODES, max_size=3),
    st.lists(st.tuples(NAMES, st.integers(0, 2**40), st.integers(0, 2**62)), max_size=3).map(tuple),
)


@given(st.integers(3, 2**31 - 1), st.integers(3, 2**31 - 1), st.integers(-(2**31), 2**31 - 1))
def test_other_descriptors_go_where_the_maps_were(first: int, other: int, number: int) -> None:
    loadable = constant(number) + load_of_map(1, first) + load_of_map(2, other) + EXIT
    names = {first: "one", other: "two"}
    code = Code.of(loadable, names)
    assert [index for index, _ in code.maps] == [2, 4]
    installed = code.with_maps({"one": 70, "two": 80})
    assert installed == constant(number) + load_of_map(1, 70 if first != other else 80) + load_of_map(2, 80) + EXIT
    assert code == Code.of(installed, {70: "one", 80: "two"}) or first == other


def value_of_map(place: int) -> bytes:
    """BPF_PSEUDO_MAP_VALUE: the address of a map's only value."""
    return struct.pack("<BBhi", 0x18, 2 << 4 | 1, 0, place) + bytes(8)


def test_the_address_of_a_value_is_one_of_its_map() -> None:
    code = Code.of(value_of_map(image.VALUES.index("calling")) + EXIT, {1: "another"})
    assert code.maps == ((0, "calling"),)
    assert code.with_maps({"calling": 70}) == value_of_map(70) + EXIT
    with pytest.raises(Spoiled):
        Code.of(value_of_map(len(image.VALUES)) + EXIT, {})


@given(st.integers(1, 2**31 - 1), st.integers(0, 2**31 - 1))
def test_a_call_with_a_negative_number_is_one_of_the_kernels_own_functions(function: int, helper: int) -> None:
    compiled = struct.pack("<BBhi", CALL, 0, 0, -function) + struct.pack("<BBhi", CALL, 0, 0, helper) + EXIT
    own = struct.pack("<BBhi", CALL, 2 << 4, 0, function)  # BPF_PSEUDO_KFUNC_CALL, as the source register
    assert Code.of(compiled, {}).instructions == own + compiled[8:]


def test_a_map_without_a_name_is_refused() -> None:
    with pytest.raises(Spoiled, match="instruction 1 loads an unknown map"):
        Code.of(EXIT + load_of_map(1, 7), {8: "ring"})


@given(IMAGES, st.text(max_size=8))
def test_it_is_read_as_it_was_written(made: Image, key: str) -> None:
    assert image.decode(image.encode(made, key), key) == made


@given(IMAGES)
def test_what_is_for_something_else_is_none(made: Image) -> None:
    assert image.decode(image.encode(made, "that kernel"), "this kernel") is None


@given(IMAGES, st.data())
def test_a_file_that_was_cut_or_changed_is_refused(made: Image, data: st.DataObject) -> None:
    whole = image.encode(made, "key")
    with pytest.raises(Spoiled):
        image.decode(whole[: data.draw(st.integers(0, len(whole) - 1))], "key")
    place = data.draw(st.integers(0, len(whole) - 1))
    changed = bytearray(whole)
    changed[place] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(Spoiled):
        image.decode(bytes(changed), "key")


@given(st.binary(max_size=200))
def test_nothing_else_is_taken_even_with_a_good_sum(body: bytes) -> None:
    whole = image.MAGIC + image._DIGEST(body).digest() + body
    with pytest.raises(Spoiled, match="malformed"):
        image.decode(whole, "key")
