"""Shares with their intervals, and the table made of results."""

from __future__ import annotations

import pytest

from benchmarks.latency import percentile
from benchmarks.stalls.table import macro_f1, markdown, median_interval, render, summary, wilson


@pytest.mark.parametrize(
    ("right", "total", "low", "high"),
    [(0, 0, 0.0, 1.0), (10, 10, 0.7225, 1.0), (0, 10, 0.0, 0.2775), (8, 10, 0.4902, 0.9433)],
)
def test_wilson(right: int, total: int, low: float, high: float) -> None:
    assert wilson(right, total) == pytest.approx((low, high), abs=1e-4)


def test_the_interval_of_a_median_is_of_its_order_statistics() -> None:
    assert median_interval([]) is None
    assert median_interval([3.0, 1.0, 2.0]) == (2.0, 1.0, 3.0)
    told = median_interval([float(value) for value in range(101)])
    assert told is not None
    assert told[0] == 50.0
    assert told[1] == pytest.approx(40, abs=1)
    assert told[2] == pytest.approx(61, abs=1)


def row(cause: str, said: str, *, named: bool) -> dict[str, object]:
    match = {
        "cause": cause, "planted": 1.0, "reported": 1.02, "said": [said], "count": 1, "named": named, "close": named,
    }  # fmt: skip
    return {
        "key": f"{cause}/0", "cause": cause, "top": named, "right": named, "matches": [match], "verdict_times": [0.2],
    }  # fmt: skip


def test_precision_counts_what_was_said_of_other_causes() -> None:
    rows = [row("checkpoint", "checkpoint", named=True), row("logging", "checkpoint", named=False)]
    told = {entry["cause"]: entry for entry in summary(rows)}
    assert (told["checkpoint"]["true"], told["checkpoint"]["claimed"]) == (1, 2)
    assert (told["logging"]["found"], told["logging"]["planted"]) == (0, 1)
    assert (told["all"]["top"], told["all"]["runs"]) == (1, 2)
    assert told["checkpoint"]["errors"] == pytest.approx([0.02])


def test_the_table_says_what_was_skipped() -> None:
    told = render([row("checkpoint", "checkpoint", named=True), {"key": "x/0", "cause": "x", "skipped": "no device"}])
    assert "checkpoint  1     1/1 (21-100 %)" in told
    assert told.endswith("skipped x/0: no device")


def told(cause: str, said: str | None, kind: str = "stall") -> dict[str, object]:
    expected = None if kind == "none" else cause
    return {"cause": cause, "kind": kind, "said": [kind, said], "top": said == expected, "style": "plain"}


def test_macro_f1_is_the_mean_over_causes_and_clean_runs() -> None:
    right = [told("checkpoint", "checkpoint"), told("logging", "logging"), told("evaluation", None, "none")]
    assert macro_f1(right) == 1.0
    # checkpoint: 1 right, 1 told of a logging run: 2/3; logging: 1 of 2 found, nothing false: 2/3; clean: 1.
    assert macro_f1([*right, told("logging", "checkpoint")]) == pytest.approx((2 / 3 + 2 / 3 + 1) / 3)
    assert macro_f1([told("two", "checkpoint")]) is None


def test_the_documentation_gets_a_table_of_its_own() -> None:
    rows = [
        row("checkpoint", "checkpoint", named=True)
        | {"style": "plain", "kind": "stall", "said": ["stall", "checkpoint"]},
        row("checkpoint", "checkpoint", named=True)
        | {"style": "gan", "kind": "stall", "said": ["stall", "checkpoint"]},
    ]
    lines = markdown(rows).splitlines()
    assert lines[2] == "| `checkpoint` | 2 | 2 | 2 | 2 | 2 of 2 | 2 of 2 | 20 ms, 20 ms | 0.20 s, 0.20 s |"
    assert lines[3].startswith("| all | 2 | 2 | 2 of 2 (34 to 100 %)")
    assert lines[-1] == "Macro-F1 of the verdict's cause: 1.000."


def test_percentile() -> None:
    values = [float(value) for value in range(1, 101)]
    assert percentile(values, 0.99) == 99.0
    assert percentile(values, 0.5) == 50.0
    assert percentile([4.0], 0.99) == 4.0
