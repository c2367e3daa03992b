"""Nothing depends on what a sentence says: with each replaced by its id, all else comes out the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.replay.pseudo import outcome
from tests.replay.replay import RECORDINGS, name_of

ROOT = Path(__file__).parents[2]
in_english = cache(outcome)


@cache
def in_ids() -> dict[str, Any]:
    """By recording."""
    command = [sys.executable, "-m", "tests.replay.pseudo"]
    same = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}  # the code that is tested here, not what is installed
    return dict(json.loads(subprocess.run(command, cwd=ROOT, env=same, check=True, stdout=subprocess.PIPE).stdout))


def without(value: Any, name: str) -> Any:
    if isinstance(value, dict):
        return {key: without(one, name) for key, one in value.items() if key != name}
    return [without(one, name) for one in value] if isinstance(value, list) else value


def said(value: Any) -> list[tuple[str, str]]:
    """Each sentence with the id of its message."""
    if isinstance(value, dict):
        found = [(value["said"], value["message"]["id"])] if "said" in value else []
        return found + [one for part in value.values() for one in said(part)]
    return [one for part in value for one in said(part)] if isinstance(value, list) else []


@pytest.mark.parametrize("recording", RECORDINGS, ids=name_of)
def test_all_but_the_sentences_is_the_same(recording: Path) -> None:
    assert without(in_ids()[name_of(recording)], "said") == without(in_english(recording), "said")


def test_each_sentence_was_an_id() -> None:
    found = said(in_ids())
    assert len(found) > 1000
    assert all(text == message for text, message in found)


def test_restarts_made_verdicts_of_both_lives() -> None:
    """Where the figures of a verdict are of one life only, nothing was merged, and nothing was tried here."""
    merged = [rank["verdict"] for one in map(in_english, RECORDINGS) for rank in one["merged"]]
    assert {"verdict.stalls", "verdict.healthy", "verdict.ended"} <= {one["message"]["id"] for one in merged}
    for one in merged:
        if one["message"]["id"] in ("verdict.stalls", "verdict.bottleneck"):
            assert one["message"]["params"]["seconds"] == one["seconds"]
