"""Saves as spans of the driver's time."""

from __future__ import annotations

from trainprobe.derive.files.save import Save
from trainprobe.derive.files.save_spans import ConsecutiveSteps, spans, spans_of
from trainprobe.model.moment import NS

MS = NS // 1000


def test_with_another_step_another_save_begins_however_soon() -> None:
    """Two files a save, one behind the other; 30 ms from one save to the next."""
    saves = [
        Save((1, 1, 2 * n + file), f"/out/{n}/{file}", (n * 50 + 10 + file * 5) * MS, 1, (n * 50 + 15 + file * 5) * MS)
        for n in range(3)
        for file in range(2)
    ]
    steps = ConsecutiveSteps(0, 7, [50 * MS] * 3)
    found = [(one.start_ns // MS, one.end_ns // MS) for one in spans_of(steps, saves)]
    assert found == [(10, 20), (60, 70), (110, 120)]
    assert len(spans(saves, 0, 150 * MS)) == 1, "where nothing is known of steps"
    assert spans_of(steps, []) == []
