from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from benchmarks import pace


@pytest.mark.parametrize(("slow", "ok"), [(1.0, False), (2.0, True)])
def test_a_limit_grows_with_what_a_bare_interpreter_takes(
    monkeypatch: pytest.MonkeyPatch, slow: float, ok: bool
) -> None:
    monkeypatch.setattr(pace, "_interpret", lambda: slow * pace.USUAL_SECONDS)
    assert pace.slowness() == slow
    assert pace.within(1.8, 1.5) is ok


def test_no_limit_shrinks_on_a_fast_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "_interpret", lambda: 0.1 * pace.USUAL_SECONDS)
    assert pace.within(1.5, 1.5)
    assert pace.slowness() == 1.0


def test_interpreting_is_work() -> None:
    assert pace._interpret() > 0.02


def test_one_slow_compilation_of_three_makes_no_slow_host() -> None:
    usual = pace.USUAL_COMPILING_SECONDS
    assert pace.compiling_slowness([usual, 0.8 * usual, 5 * usual]) == 1.0
    assert pace.compiling_slowness([1.9 * usual, 2 * usual, 5 * usual]) == 2.0


def test_a_compiler_that_fails_is_no_yardstick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    failing = tmp_path / "compilation.py"
    failing.write_text("raise SystemExit('no compiler here')")
    monkeypatch.setattr(pace, "COMPILATION", failing)
    with pytest.raises(subprocess.CalledProcessError) as told:
        pace.compiling_seconds()
    assert "no compiler here" in told.value.stderr
