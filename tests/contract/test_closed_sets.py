"""Causes, states and phases are labels, lanes and keys that others build on: closed sets that only grow."""

from __future__ import annotations

from pathlib import Path

from trainprobe.model.cause import KINDS, LOST, Cause, Phase, State

STATES = (
    "compute gpu_wait data_wait data_inline checkpoint logging memory fault_io collective network runqueue stopped "
    "lock sleep other"
)
PHASES = "startup compile evaluation idle attaching shutdown train"
PINNED = (Path(__file__).parent / "causes.txt").read_text()
"""``make generated`` adds what is new; no line is ever removed, and none loses a kind."""
EXPECTED = {key: set(kinds.split()) for key, _, kinds in (line.partition(": ") for line in PINNED.splitlines())}


def test_states() -> None:
    assert {str(state) for state in State} == set(STATES.split())


def test_phases() -> None:
    assert {str(phase) for phase in Phase} == set(PHASES.split())


def test_causes_and_where_each_may_appear() -> None:
    assert {str(cause): {str(kind) for kind in KINDS[cause]} for cause in Cause} == EXPECTED


def test_what_may_own_lost_seconds_is_a_stall_or_a_bottleneck() -> None:
    assert {str(cause) for cause in LOST} == {c for c, kinds in EXPECTED.items() if kinds & {"stall", "bottleneck"}}
