"""What several stacks have in common."""

from __future__ import annotations

from trainprobe.derive.stacks import Where, common


def test_without_a_stack_there_is_no_place() -> None:
    assert common([]) is None
    assert common([()]) is None


def test_one_stack_tells_its_innermost_frame() -> None:
    assert common([("main (a.py:1)", "work (a.py:9)")]) == Where("work (a.py:9)", 1, 1)


def test_what_differs_below_a_function_is_its_own_doing() -> None:
    stacks = [("main (a.py:1)", "search (a.py:9)", f"helper{i} (b.py:{i})") for i in range(5)]
    assert common(stacks) == Where("search (a.py:9)", 5, 5)


def test_one_stray_sample_of_many_does_not_hide_it() -> None:
    stacks = [("main (a.py:1)", "search (a.py:9)")] * 30 + [("main (a.py:1)", "other (a.py:20)")]
    where = common(stacks)
    assert where == Where("search (a.py:9)", 30, 31)
    assert where is not None
    assert where.told() == "search (a.py:9), 30 of 31 samples"
