"""Real trainings, one after the other."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.stalls import host
from benchmarks.stalls import torch_python as interpreters
from benchmarks.stalls.faults import ALL
from benchmarks.stalls.plan import Plan
from benchmarks.stalls.quiet import DISTURBED
from benchmarks.stalls.run import Outcome, undisturbed
from benchmarks.stalls.truth import pace_change, stolen_seconds
from tests.contract.contradictions import contradictions

KEPT = Path(__file__).parents[2] / "build" / "training-tests"
PATIENCE = 10.0
"""Seconds that a training waits for a quiet host when others disturbed a run that went wrong …"""
AGAIN = 2
"""… and so often it is carried out again, if the host was not steady then either. The last one counts."""
CHANGED = 1.25
"""From which change of the host's pace on a run that went wrong says little, either …"""
STOLEN = 0.2
"""… and from how many seconds on that a hypervisor took from the training."""
LOCK = Path(tempfile.gettempdir()) / "trainprobe-stalls.lock"

Watched = Callable[[Plan], Outcome]


@pytest.fixture(scope="session")
def styles(torch_python: str) -> tuple[str, ...]:
    """The ways of writing a training that the torch interpreter can run."""
    return interpreters.styles(torch_python, ALL)


@pytest.fixture(scope="session", autouse=True)
def _nothing_left_over() -> None:
    """Slow devices of suites that were killed are given back first."""
    host.sweep()


@pytest.fixture
def watched(torch_python: str, request: pytest.FixtureRequest) -> Watched:
    """Carries a plan out under ``trainprobe run``; recording, report and truth are kept below build/."""

    def carry(plan: Plan) -> Outcome:
        try:
            outcome = undisturbed(plan, torch_python, kept(request), LOCK, 0.0)
            for _ in range(AGAIN):
                if (outcome.score and outcome.score.right) or _is_steady(outcome):
                    break
                outcome = undisturbed(plan, torch_python, kept(request), LOCK, PATIENCE)
        except host.CannotHere as reason:
            pytest.skip(str(reason))
        assert contradictions(outcome.report or {"runs": []}) == []
        return outcome

    return carry


@pytest.fixture
def right(seed: int, watched: Watched, request: pytest.FixtureRequest) -> Watched:
    """The same, and the report says what the training's own truth does."""

    def carry(plan: Plan) -> Outcome:
        outcome = watched(plan)
        what = f"{plan.key} ({plan.style}, {plan.how}) with TRAINPROBE_SEED={seed}, kept in {kept(request)}"
        assert not outcome.error, f"{what}: {outcome.error}\n{outcome.stderr}"
        assert outcome.score is not None
        wrong = outcome.score.wrong()
        assert not wrong, "\n".join([what, *wrong])
        return outcome

    return carry


def _is_steady(outcome: Outcome) -> bool:
    """Whether the host did the same work in the same time from begin to end, as far as the training itself can tell."""
    change = pace_change(outcome.truth) if outcome.truth else 1.0
    stolen = stolen_seconds(outcome.truth) if outcome.truth else 0.0
    return outcome.others <= DISTURBED and 1 / CHANGED <= change <= CHANGED and stolen <= STOLEN


def kept(request: pytest.FixtureRequest) -> Path:
    """Where this test's recording is kept for a look afterwards."""
    return KEPT / request.node.name.replace("/", "-")
