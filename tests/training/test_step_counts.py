"""Six hundred fast steps of every style, look-alikes included: counted exactly."""

from __future__ import annotations

import pytest

from benchmarks.stalls import faults
from benchmarks.stalls.run import carry_out
from benchmarks.stalls.score import find_rank
from tests.contract.contradictions import contradictions
from tests.training.conftest import kept


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    "number", range(len(faults.LOOKALIKES)), ids=["-".join(filter(None, names)) for names in faults.LOOKALIKES]
)
def test_every_step_is_counted(
    number: int, seed: int, styles: tuple[str, ...], torch_python: str, request: pytest.FixtureRequest
) -> None:
    """A step is what the optimiser took, however many backwards, batches and optimisers went into it, and whatever else
    the host does: its stalls are not asked."""
    plan = faults.make("lookalike", number, seed, styles)
    if plan.style not in styles:
        pytest.skip(f"the Python with torch lacks what {plan.style} needs")
    outcome = carry_out(plan, torch_python, kept(request))
    assert not outcome.error, f"{outcome.error}\n{outcome.stderr}"
    assert outcome.truth is not None
    assert outcome.report is not None
    rank = find_rank(outcome.report, outcome.truth.pid)
    what = f"TRAINPROBE_SEED={seed}, kept in {kept(request)}"
    assert rank["steps"]["source"] == "autograd", rank["steps"]["reason"]
    assert rank["steps"]["count"] == outcome.truth.steps, what
    assert sum(rank["ledger"].values()) == pytest.approx(rank["wall_seconds"], rel=0.01), what
    assert outcome.report["events_lost"] == 0
    assert contradictions(outcome.report) == []
