from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainprobe_exporters.labels import MAX_CHARACTERS, label_value

ANYTHING = st.text(st.characters(codec=None), max_size=400)


@given(ANYTHING)
def test_any_text_becomes_printable_utf8_of_bounded_length(text: str) -> None:
    value = label_value(text)
    assert len(value) <= MAX_CHARACTERS
    assert value.isprintable()
    value.encode()


@given(ANYTHING)
def test_cleaning_twice_changes_nothing(text: str) -> None:
    assert label_value(label_value(text)) == label_value(text)


@pytest.mark.parametrize("text", ["train.py-3f2a91c0", "训练.py-0a1b2c3d", "0.1", 'a "quoted" \\ one'])
def test_ordinary_names_stay_as_they_are(text: str) -> None:
    assert label_value(text) == text


def test_a_long_name_keeps_the_hash_at_its_end() -> None:
    assert label_value("x" * 500 + "-3f2a91c0").endswith("-3f2a91c0")


def test_nothing_is_the_empty_value_and_numbers_are_themselves() -> None:
    assert (label_value(None), label_value(7)) == ("", "7")
