"""Other values of a setting that an advice is held against."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.advice.cases import Case, Settings, applied, grid
from benchmarks.advice.outcome import Outcome, markdown

HAS: Settings = {"workers": 1, "save_every": 10, "steps": 90}


def proposed(name: str, value: str) -> list[dict[str, str]]:
    return [{"name": name, "proposed": value}]


@pytest.mark.parametrize(
    ("name", "value", "others"),
    [
        ("num_workers", "3", ["workers=2", "workers=4", "workers=6"]),
        ("checkpoint interval", "100", ["save_every=20", "save_every=40"]),
        ("persistent_workers", "True", []),
        ("set_detect_anomaly", "False", []),
    ],
)
def test_the_grid_is_neither_what_it_has_nor_what_is_proposed(name: str, value: str, others: list[str]) -> None:
    assert [label for label, _ in grid(Case(HAS), name, applied(HAS, proposed(name, value)))] == others


def test_an_advice_holds_where_no_other_value_gains_much_more() -> None:
    held = Outcome("case", 1, HAS, {"num_workers": "3"}, 21.0, [20.0, 20.2], [14.0, 14.2], predicted_gain=7.0)
    assert held.holds
    held.grid = {"workers=8": [11.5, 11.7], "workers=4": [12.0, 12.0]}
    assert held.holds
    assert "| case | num_workers 3 | 7.00 s | 6.00 of 20.1 s | workers=8: 8.50 s |" in markdown([held])
    held.grid = {"workers=8": [11.0, 11.2]}
    assert not held.holds, "6.0 s are less than 70 % of it"


def test_where_memory_is_short_no_more_workers_are_tried() -> None:
    changed = applied(HAS | {"workers": 4}, proposed("num_workers", "1"))
    assert [label for label, _ in grid(Case(HAS | {"workers": 4}, limit=1), "num_workers", changed)] == ["workers=2"]


def test_of_several_results_of_a_case_the_latest_counts(tmp_path: Path) -> None:
    for after in (15.0, 14.0):
        Outcome("case", 1, HAS, {"num_workers": "3"}, 21.0, [20.0], [after]).append_to(tmp_path / "results")
    assert [one.after for one in Outcome.read(tmp_path / "results")] == [[14.0]]
