"""The line of a job's goodput."""

from __future__ import annotations

from trainprobe.cli.goodput import account
from trainprobe.cli.style import Style
from trainprobe.model.goodput import Goodput
from trainprobe.model.report import Run

BADPUT = {"startup": 3.0, "wasted_progress": 8.0, "recovery": 4.0, "other": 0.1}


def lines(goodput: Goodput) -> list[str]:
    return list(account(Run("train.py-1", [], "ann", "/", 0.0, goodput=goodput), Style(width=200)))


def test_the_share_comes_first_and_what_hardly_counts_is_left_out() -> None:
    told = lines(Goodput(24.9, BADPUT, 8.0, attempt=2))
    assert told == ["  62.2 % of 40.0 s in 2 attempts: wasted progress 8.00 s, recovery 4.00 s, startup 3.00 s"]
    assert lines(Goodput(30.0, {}, 0.0, attempt=2)) == ["  100 % of 30.0 s in 2 attempts"]


def test_a_first_attempt_is_told_where_progress_was_lost_only() -> None:
    assert lines(Goodput(30.0, {"other": 3.0}, 0.0)) == []
    assert lines(Goodput(30.0, {"wasted_progress": 3.0}, 3.0)) == ["  90.9 % of 33.0 s: wasted progress 3.00 s"]


def test_a_resumed_checkpoint_that_is_not_known_is_said() -> None:
    assert "not known" in lines(Goodput(25.0, {"startup": 3.0}, None, attempt=2))[1]


def test_a_report_without_an_account_has_no_line() -> None:
    assert lines(Goodput()) == []
