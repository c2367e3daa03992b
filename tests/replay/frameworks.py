"""Recordings of trainings that public frameworks run: what the program says of them, beside what was planted.

``recordings/frameworks.json`` has, for each: ``planted`` and ``true`` (what happened, by the training's own clock;
times in UNIX seconds), ``told`` (what the program reports) and ``wrong`` (where both differ).
``python -m tests.replay.frameworks`` writes ``told`` anew.
"""

from __future__ import annotations

import json
from typing import Any

from tests.replay.replay import FOLDER, replay_named
from trainprobe.model.report import Rank

EXPECTED = FOLDER / "frameworks.json"


def expected() -> dict[str, Any]:
    entries: dict[str, Any] = json.loads(EXPECTED.read_text())
    return entries


def replayed(name: str, pid: int) -> Rank:
    return next(rank for run in replay_named(name).runs for rank in run.ranks if rank.pid == pid)


def told(rank: Rank) -> dict[str, Any]:
    """What a report says of a rank, in short; seconds to the millisecond."""
    phases = {phase: round(seconds, 3) for phase, seconds in sorted(rank.counters.phase_seconds.items()) if seconds}
    return {
        "verdict": [rank.verdict.kind, rank.verdict.cause],
        "steps": [rank.steps.source, rank.steps.count],
        "wall": round(rank.wall_seconds, 3),
        "productive": round(rank.productive_seconds, 3),
        "lost": {cause: round(seconds, 3) for cause, seconds in sorted(rank.lost.items())},
        "phases": phases,
        "stalls": [[stall.cause, stall.first_step, round(stall.seconds, 3)] for stall in rank.stalls],
        "bottlenecks": [bottleneck.cause for bottleneck in rank.bottlenecks],
        "warnings": [warning.cause for warning in rank.warnings],
        "checkpoints": len(rank.checkpoints),
        "saves": rank.totals.saves,
        "exit": [rank.exit.code, rank.exit.signal, rank.exit.reason],
    }


def main() -> None:
    entries = expected()
    for name, entry in entries.items():
        entry["told"] = told(replayed(name, entry["pid"]))
    EXPECTED.write_text(json.dumps(entries, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
