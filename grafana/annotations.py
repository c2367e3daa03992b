"""Causes as regions over every time panel: drawn from counters, so that no stall falls between two scrapes.

A point is positive where the counter grew since one interval ago; Grafana joins neighbouring points to a region.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from grafana_foundation_sdk.builders import dashboard, prometheus
from grafana_foundation_sdk.models.common import DataSourceRef

from grafana.causes import PHASES_COLOUR, STARTS_COLOUR, TOGGLES
from grafana.queries import Queries
from grafana.variables import DATASOURCE

# Grafana before 12 steps by `step` (the scrape interval of the example); later ones by the data source's own interval.
LEGACY_STEP = "15s"
DATASOURCE_INTERVAL = "$__interval"


ALL_NAMES = (*(toggle.name for toggle in TOGGLES), "Phases")
GRAFANA = DataSourceRef(type_val="grafana", uid="-- Grafana --")
PUSHED_LIMIT = 1000
# The tags that exporters give; a name with a comma in it comes with ";" there.
PUSHED_TAG, PUSHED_RUN_TAG = "trainprobe", "run:$run"


def toggles(queries: Queries, on: Collection[str]) -> list[Any]:
    """One toggle for each group of causes and one for phases, a hidden one for exact starts, and Grafana's own.

    ``on``: the names of those that are on when the dashboard opens. The last one is off: the regions that exporters
    push to Grafana, where they are told to.
    """
    regions = [
        _toggle(toggle.name, toggle.colour, queries.stall_regions(toggle.regex), "{{cause}}", "{{run}}", "cause,run")
        for toggle in TOGGLES
    ]
    phases = _toggle("Phases", PHASES_COLOUR, queries.phase_regions, "{{phase}}", "{{run}}", "phase,run")
    starts = _toggle(
        "Exact starts", STARTS_COLOUR, queries.stall_starts, "{{cause}}", "rank {{rank}} of {{run}}", "cause,rank,run"
    )
    for name, toggle in zip(ALL_NAMES, (*regions, phases), strict=True):
        toggle.enable(name in on)
    starts = starts.use_value_for_time(True).enable(False).hide(True)
    return [of_grafana(), *regions, phases, starts, _pushed(queries)]


def _toggle(name: str, colour: str, expr: str, title: str, text: str, tags: str) -> Any:
    target = prometheus.Dataquery().expr(expr).interval(DATASOURCE_INTERVAL).range().ref_id("Anno")
    return (
        dashboard.AnnotationQuery()
        .name(name)
        .datasource(DATASOURCE)
        .hide(False)
        .icon_color(colour)
        .target(target)
        .expr(expr)  # where Grafana before 12 reads it
        .step(LEGACY_STEP)
        .title_format(title)
        .text_format(text)
        .tag_keys(tags)  # split at "," without trimming
    )


def of_grafana() -> Any:
    """What people, and pushed annotations, write into Grafana itself."""
    return (
        dashboard.AnnotationQuery()
        .name("Annotations & Alerts")
        .datasource(GRAFANA)
        .enable(True)
        .hide(True)
        .icon_color("rgba(0, 211, 255, 1)")
        .type("dashboard")
        .built_in(1)
    )


def _pushed(queries: Queries) -> Any:
    """Exact to the millisecond; several runs cannot be asked for by tags, so where there are several it is all."""
    tags = [PUSHED_TAG, PUSHED_RUN_TAG] if queries.scope.one_run else [PUSHED_TAG]
    return (
        dashboard.AnnotationQuery()
        .name("Exact regions (pushed)")
        .datasource(GRAFANA)
        .enable(False)
        .hide(False)
        .icon_color(STARTS_COLOUR)
        .target(dashboard.AnnotationTarget().limit(PUSHED_LIMIT).match_any(False).tags(tags).type("tags"))
    )
