"""One short training of ``benchmarks.frameworks`` that needs nothing beside torch; ``make nightly`` runs them all."""

from __future__ import annotations

import json

import pytest

from benchmarks.frameworks.plans import make
from benchmarks.frameworks.run import carry_out
from benchmarks.stalls import quiet
from benchmarks.stalls.run import alone
from tests.contract.contradictions import contradictions
from tests.training.conftest import LOCK, PATIENCE, kept


@pytest.mark.timeout(240)
def test_two_ranks_of_torchrun_are_told_as_their_own_clock_has_them(
    seed: int, torch_python: str, request: pytest.FixtureRequest
) -> None:
    """Faults that the first rank carries out: it is judged with exact steps, causes, seconds, ending and advice."""
    plan = make("torchrun_ddp", seed)
    with alone(LOCK):
        outcome = carry_out(plan, torch_python, kept(request))
        if outcome.others > quiet.DISTURBED and not (outcome.judged and outcome.judged.right):
            quiet.wait(PATIENCE)
            outcome = carry_out(plan, torch_python, kept(request))
    assert outcome.judged is not None, outcome.error
    wrong = [f"{check.name}: {check.said}" for check in outcome.judged.checks if not check.ok]
    assert not wrong, "\n".join([f"{plan.how}, TRAINPROBE_SEED={seed}, kept in {kept(request)}", *wrong])
    assert contradictions(json.loads((kept(request) / "report.json").read_text())) == []
