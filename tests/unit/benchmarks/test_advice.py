"""Other values of a setting that an advice is held against."""

from __future__ import annotations

import pytest

from benchmarks.advice.__main__ import Outcome
from benchmarks.advice.cases import Settings, applied, grid

HAS: Settings = {"workers": 1, "save_every": 10}


def proposed(name: str, value: str) -> list[dict[str, str]]:
    return [{"name": name, "proposed": value}]


@pytest.mark.parametrize(
    ("name", "value", "others"),
    [
        ("num_workers", "3", ["workers=2", "workers=4", "workers=8"]),
        ("checkpoint interval", "100", ["save_every=30", "save_every=1000"]),
        ("persistent_workers", "True", []),
        ("set_detect_anomaly", "False", []),
    ],
)
def test_the_grid_is_neither_what_it_has_nor_what_is_proposed(name: str, value: str, others: list[str]) -> None:
    assert [label for label, _ in grid(HAS, name, applied(HAS, proposed(name, value)))] == others


def test_an_advice_holds_where_no_other_value_gains_much_more() -> None:
    held = Outcome("case", 1, HAS, {"num_workers": "3"}, before=20.0, after=14.0, predicted_gain=7.0)
    assert held.holds
    held.grid = {"workers=8": 8.5}
    assert held.holds
    held.grid = {"workers=8": 9.0}
    assert not held.holds, "6.0 s are less than 70 % of it"
