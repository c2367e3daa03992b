from __future__ import annotations

import pytest

from benchmarks import pace


@pytest.mark.parametrize(("slow", "ok"), [(1.0, False), (2.0, True)])
def test_a_limit_grows_with_what_a_bare_interpreter_takes(
    monkeypatch: pytest.MonkeyPatch, slow: float, ok: bool
) -> None:
    monkeypatch.setattr(pace, "_turn", lambda together, turns: slow * pace.USUAL_SECONDS)
    assert pace.slowness() == slow
    assert pace.within(1.8, 1.5) is ok


def test_no_limit_shrinks_on_a_fast_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "_turn", lambda together, turns: 0.1 * pace.USUAL_SECONDS)
    assert pace.within(1.5, 1.5)
    assert pace.slowness() == 1.0


def test_a_turn_is_work() -> None:
    assert pace._turn(2, 1) > 0.02
