"""A report as a file: the JSON that is published, and below ``steps`` the rows of its ranks' steps."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from trainprobe.model.report import Report
from trainprobe.model.steprow import RankSteps, StepRow, thinned
from trainprobe.wire import codec
from trainprobe.wire import report as wire
from trainprobe.wire.codec import WireError

ROWS, FEWEST = 20_000, 64
"""Of all ranks together, and of one where there are many: a file stays below some megabytes."""
DIGITS = 6  # microseconds


def encode(report: Report, steps: Sequence[RankSteps] = ()) -> str:
    """JSON text with a row of a rank's steps per line: {"start", "seconds", "count", "min", "max", "states"}."""
    text = wire.encode(report, indent=2)
    most = max(FEWEST, ROWS // max(1, len(steps)))
    ranks = ",\n".join(_rank(one, most) for one in steps)
    return f'{text.removesuffix("}").rstrip()},\n  "steps": [\n{ranks}\n  ]\n}}' if ranks else text


def _rank(steps: RankSteps, most: int) -> str:
    rows = ",\n".join(f"      {codec.dumps(_rounded(row))}" for row in thinned(steps.rows, most))
    head = f'"run": {codec.dumps(steps.run)}, "rank": {codec.dumps(steps.rank)}'
    return f'    {{{head}, "rows": [\n{rows}\n    ]}}'


def _rounded(row: StepRow) -> dict[str, Any]:
    states = {state: round(spent, DIGITS) for state, spent in row.states.items()}
    plain = {name: round(value, DIGITS) for name, value in dataclasses.asdict(row).items() if name != "states"}
    return plain | {"states": states}


def steps_of(text: str | bytes) -> list[RankSteps]:
    """The rows of a report file; none where it has none. Raises WireError."""
    value = codec.loads(text)
    found = value.get("steps", []) if isinstance(value, dict) else []
    if not isinstance(found, list):
        raise WireError("steps is no list")
    return [codec.decode(RankSteps, one) for one in found]
