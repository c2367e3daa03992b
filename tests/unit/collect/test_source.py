from __future__ import annotations

import time

from trainprobe.collect.source import Failed, Sources, Unavailable
from trainprobe.model.moment import NS
from trainprobe.model.sample import SourceState, SourceStatus


def test_a_value_comes_through_and_the_source_is_up() -> None:
    sources = Sources()
    assert sources.read("psi", lambda: 7, 0) == 7
    assert sources.states() == (SourceState("psi", SourceStatus.UP),)


def test_a_falsy_value_is_a_value() -> None:
    assert Sources().read("n", lambda: 0, 0) == 0


def test_unavailable_says_why_and_is_asked_again_a_minute_later() -> None:
    sources, asked = Sources(), []

    def read() -> int | Unavailable:
        asked.append(1)
        return Unavailable("no PSI", "boot with psi=1")

    for second in (0, 30, 59):
        assert sources.read("psi", read, second * NS) is None
    assert len(asked) == 1
    assert sources.states() == (SourceState("psi", SourceStatus.UNAVAILABLE, "no PSI", "boot with psi=1"),)
    sources.read("psi", read, 60 * NS)
    assert len(asked) == 2


def test_what_raises_is_an_error_and_ends_nothing() -> None:
    sources = Sources()

    def read() -> int:
        raise RuntimeError("broken")

    assert sources.read("nvml", read, 0) is None
    assert sources.states()[0] == SourceState("nvml", SourceStatus.ERROR, "RuntimeError: broken", errors=1)


def test_errors_are_retried_ever_more_rarely_and_recovery_is_immediate() -> None:
    sources, asked = Sources(), []

    def fail() -> Failed:
        asked.append(1)
        return Failed("no")

    for second in range(20):
        sources.read("x", fail, second * NS)
    assert len(asked) == 5  # 0, 1, 3, 7, 15
    assert sources.read("x", lambda: 5, 31 * NS) == 5
    assert sources.states() == (SourceState("x", SourceStatus.UP, errors=5),)
    sources.read("x", fail, 32 * NS)
    assert sources.read("x", lambda: 6, 33 * NS) == 6


def test_outcomes_of_what_is_read_elsewhere_can_be_noted() -> None:
    sources = Sources()
    sources.record("bpf", Failed("lost"), 0)
    assert sources.states()[0].state is SourceStatus.ERROR
    sources.record("bpf", True, NS)
    assert sources.states()[0].state is SourceStatus.UP


def test_how_long_a_reading_took_is_told_once_a_minute() -> None:
    sources = Sources()
    sources.read("psi", lambda: 7, 0)
    (before,) = sources.states()
    assert before.seconds is None
    sources.read("psi", lambda: time.sleep(0.01), 60 * NS)
    (slow,) = sources.states()
    assert slow.seconds is not None
    assert 0.01 <= slow.seconds < 10
    sources.read("psi", lambda: 7, 119 * NS)
    assert sources.states() == (slow,)
    sources.read("psi", lambda: 7, 120 * NS)
    assert sources.states() != (slow,)


def test_states_are_the_same_object_until_one_changes() -> None:
    sources = Sources()
    sources.record("a", True, 0)
    before = sources.states()
    sources.read("a", lambda: 1, 1)
    assert sources.states() is before
    sources.record("b", True, 2)
    assert [state.name for state in sources.states()] == ["a", "b"]
    sources.record("b", Failed("gone"), 3)
    assert [state.reason for state in sources.states()] == ["", "gone"]
