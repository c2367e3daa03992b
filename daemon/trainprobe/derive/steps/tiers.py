"""Steps -> rows of every tier: single steps, ten seconds, five minutes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field
from itertools import groupby

from trainprobe.model.dataclass import dataclass
from trainprobe.model.steprow import TIERS, StepRow, joined


@dataclass(slots=True)
class TierRows:
    """Merges the rows of one rank. The wall clock may be set back: a new row then begins, and no step is lost."""

    _open: list[StepRow | None] = field(default_factory=lambda: [None] * len(TIERS))

    def add(self, rows: Iterable[StepRow]) -> list[list[StepRow]]:
        """The rows of each tier that no later step can join. Rows of the finest tier are returned at once."""
        done: list[list[StepRow]] = [[] for _ in TIERS]
        parts = list(rows)
        for place, tier in enumerate(TIERS):  # each tier is made of the parts of the finer one
            parts = [joined(group) for _, group in groupby(parts, lambda row: row.start // tier.width)]  # noqa: B023
            for part in parts:
                before = self._open[place]
                if before is not None and before.start // tier.width == part.start // tier.width:
                    self._open[place] = joined((before, part))
                else:
                    if before is not None:
                        done[place].append(before)
                    self._open[place] = part
        finest, self._open[0] = self._open[0], None
        if finest is not None:
            done[0].append(finest)
        return done

    def open(self) -> list[StepRow | None]:
        """The unfinished row of each tier."""
        return list(self._open)

    def go_on(self, place: int, row: StepRow) -> None:
        """An earlier process began the row of tier number ``place``."""
        self._open[place] = row
