"""Where panels stand: rows of sections on Grafana's 24 columns, with ids that stay when a neighbour moves in.

The SDK would let a row overflow and gives no ids; both are set here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from grafana_foundation_sdk.builders import dashboard
from grafana_foundation_sdk.models.dashboard import GridPos

COLUMNS = 24
ON_A_LINE = 3
SECTION_IDS = 100  # ids that a section has for its panels: a new panel moves none of another section


class Line:
    """Panels side by side, equally wide unless ``widths`` says otherwise."""

    def __init__(self, height: int, *panels: Any, widths: Sequence[int] = ()) -> None:
        self.height, self.panels = height, panels
        self.widths = widths or [COLUMNS // len(panels)] * len(panels)
        if sum(self.widths) != COLUMNS or len(self.widths) != len(panels):
            raise ValueError(f"{len(panels)} panels of widths {self.widths} do not fill {COLUMNS} columns")


def rows(*panels: Any, height: int = 8) -> list[Line]:
    return [Line(height, *panels[at : at + ON_A_LINE]) for at in range(0, len(panels), ON_A_LINE)]


@dataclass(frozen=True)
class Section:
    """A titled row; a collapsed one asks nothing of Prometheus until it is opened."""

    title: str
    lines: Sequence[Line]
    collapsed: bool = False


def placed(sections: Sequence[Section]) -> list[Any]:
    """The panels of a dashboard, built, each with its id and place."""
    panels: list[Any] = []
    y = 0
    for number, section in enumerate(sections, start=1):
        first = number * SECTION_IDS
        row = dashboard.Row(section.title).collapsed(section.collapsed).id(first)
        row = row.grid_pos(GridPos(h=1, w=COLUMNS, x=0, y=y)).build()
        inside = _placed(section, first + 1, y + 1)
        row.panels = inside if section.collapsed else []
        panels += [row] if section.collapsed else [row, *inside]
        y += 1 + (0 if section.collapsed else sum(line.height for line in section.lines))
    return panels


def _placed(section: Section, first: int, y: int) -> list[Any]:
    panels: list[Any] = []
    for line in section.lines:
        x = 0
        for panel, width in zip(line.panels, line.widths):
            place = GridPos(h=line.height, w=width, x=x, y=y)
            panels.append(panel.id(first + len(panels)).grid_pos(place).build())
            x += width
        y += line.height
    return panels
