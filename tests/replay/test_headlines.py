"""The headline of recordings of which the planted line is known: it names that line, and what to change first."""

from __future__ import annotations

import pytest

from tests.replay.replay import RECORDINGS, replay

LINES = {
    "hf_trainer_callback": "busy (samples.py:30)",
    "sb3_saves": "busy (samples.py:30)",
    "sentence_interrupt": "busy (samples.py:30)",
    "ultralytics_epochs": "busy (samples.py:30)",
    "worker_hang": "SampleFaults._rare_fault (samples.py:124)",
}


@pytest.mark.parametrize("name", LINES)
def test_the_headline_names_the_planted_line(name: str) -> None:
    recording = next(path for path in RECORDINGS if path.name == f"{name}.jsonl.gz")
    (rank,) = (rank for run in replay(recording)[1].runs for rank in run.ranks)
    assert LINES[name] in rank.verdict.summary
    assert "; change first: " in rank.verdict.summary
    assert "hangs" not in rank.verdict.summary, "each ended by itself within 5 s"
