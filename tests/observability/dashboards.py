"""The committed dashboards, as Grafana would ask Prometheus for them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DIRECTORY = Path(__file__).parents[2] / "grafana" / "dashboards"
OF_SUMS = "trainprobe-goodput"
"""Of days, of no host and of no moment: without regions, with variables of its own."""


@dataclass(frozen=True)
class Asked:
    """A query of a dashboard: of a panel, an annotation or a variable."""

    dashboard: str
    of: str
    expr: str
    instant: bool = False
    interval: str = ""  # the least between two points, as "5m"

    def __str__(self) -> str:
        return f"{self.dashboard}: {self.of}"


def dashboards() -> dict[str, dict[str, Any]]:
    """Each dashboard by its uid."""
    return {path.stem: json.loads(path.read_text()) for path in sorted(DIRECTORY.glob("*.json"))}


def panels(dashboard: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The panels that ask Prometheus, those in collapsed rows too; not the rows, and not lists of alerts."""
    for panel in dashboard["panels"]:
        yield from (one for one in panel.get("panels", [panel]) if one["type"] != "alertlist")


def panel_queries() -> Iterator[Asked]:
    for uid, dashboard in dashboards().items():
        for panel in panels(dashboard):
            for target in panel["targets"]:
                how = target.get("instant", False), target.get("interval", "")
                yield Asked(uid, f"{panel['title']} ({target['refId']})", target["expr"], *how)


def is_asked_of_prometheus(annotation: Mapping[str, Any]) -> bool:
    """The others are kept in Grafana itself."""
    return bool(annotation["datasource"]["type"] == "prometheus")


def annotation_queries() -> Iterator[Asked]:
    for uid, dashboard in dashboards().items():
        for annotation in dashboard["annotations"]["list"]:
            if is_asked_of_prometheus(annotation):
                assert annotation["expr"] == annotation["target"]["expr"]
                yield Asked(uid, f"annotation {annotation['name']}", annotation["expr"])


def with_values(expr: str, values: Mapping[str, str]) -> str:
    """The query with its variables replaced, longest names first (``$__range`` before ``$__r``)."""
    for name in sorted(values, key=len, reverse=True):
        expr = expr.replace(f"${name}", values[name])
    assert "$" not in expr, expr
    return expr
