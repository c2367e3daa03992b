"""What the benchmark of instructions calls too much."""

from __future__ import annotations

from benchmarks.instructions.__main__ import exceeded, table
from benchmarks.instructions.limits import BARE, IDLE, KERNELS, KINDS, LIMITS, WAYS


def at_the_limits() -> dict[str, dict[str, float]]:
    bare = dict.fromkeys(KINDS, 1000.0)
    return {BARE: bare} | {way: {kind: bare[kind] + LIMITS["6.1"][way][kind] for kind in KINDS} for way in WAYS}


def test_every_kind_has_a_limit_in_every_way() -> None:
    assert {kernel: {way: set(kinds) for way, kinds in ways.items()} for kernel, ways in LIMITS.items()} == {
        kernel: {way: set(KINDS) for way in WAYS} for kernel in KERNELS
    }


def test_what_is_at_its_limit_is_within() -> None:
    assert list(exceeded("6.1", at_the_limits())) == []


def test_an_idle_host_pays_nothing() -> None:
    figures = at_the_limits()
    figures[IDLE]["write null"] += 2
    (line,) = exceeded("6.1", figures)
    assert "write null beside an idle daemon: +2" in line


def test_the_table_tells_what_each_way_adds() -> None:
    assert "| getppid | 1 000 | +0 | +153 | +153 |" in table({"6.1": at_the_limits()})
