"""A report as a file: the JSON that is published, and below ``steps`` the rows of its ranks' steps."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from trainprobe.model.report import Report
from trainprobe.model.steprow import RankSteps, StepRow, thinned
from trainprobe.wire import codec
from trainprobe.wire.codec import WireError

ROWS, FEWEST = 20_000, 64
"""Of all ranks together, and of one where there are many: a file stays below some megabytes."""
DIGITS = 6  # microseconds


def pieces(report: Report, steps: Sequence[RankSteps] = ()) -> Iterator[str]:
    """JSON text, a rank at a time, because all of it may be a hundred megabytes. A line for each rank, and one for each
    row of its steps: {"start", "seconds", "count", "min", "max", "states"}."""
    yield codec.opened(report, {"runs"}) + ',"runs":['
    for number, run in enumerate(report.runs):
        yield f'{"," if number else ""}\n{codec.opened(run, {"ranks"})},"ranks":['
        for place, rank in enumerate(run.ranks):
            yield f"{',' if place else ''}\n{codec.dumps(rank)}"
        yield "]}"
    yield "]"
    most = max(FEWEST, ROWS // max(1, len(steps)))
    for number, one in enumerate(steps):
        yield ("," if number else ',\n"steps":[') + "\n" + _rank(one, most)
    yield "]}\n" if steps else "}\n"


def _rank(steps: RankSteps, most: int) -> str:
    rows = ",\n".join(codec.dumps(_rounded(row)) for row in thinned(steps.rows, most))
    return f'{{"run":{codec.dumps(steps.run)},"rank":{codec.dumps(steps.rank)},"rows":[\n{rows}]}}'


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
