"""What all dashboards have in common: variables, regions, links among them, time, refresh; and their addresses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from grafana_foundation_sdk.builders import dashboard
from grafana_foundation_sdk.models.dashboard import DashboardCursorSync, DashboardLinkType

from grafana.annotations import toggles
from grafana.layout import Section, placed
from grafana.queries import Queries
from grafana.variables import variables

# Public: links, alerts and bookmarks use them.
STALLS_UID = "trainprobe-stalls"
FLEET_UID = "trainprobe-fleet"
MEMORY_UID = "trainprobe-memory"
TAG = "trainprobe"

_KEEP = "${datasource:queryparam}&${job:queryparam}&${__url_time_range}"


def link_to_run(uid: str) -> str:
    """The dashboard of the run in this row of a table."""
    return f"/d/{uid}?{_KEEP}&var-host=$__all&var-rank=$__all&var-run=${{__data.fields.run}}"


def link_to_host(uid: str) -> str:
    """The dashboard for all runs of the host in this row of a table."""
    return f"/d/{uid}?{_KEEP}&var-host=${{__data.fields.instance}}&var-rank=$__all"


def dashboard_of(
    uid: str, title: str, meaning: str, queries: Queries, sections: Sequence[Section], *, since: str
) -> Any:
    """A dashboard, built: what the SDK encodes to the JSON that Grafana imports."""
    builder = (
        dashboard.Dashboard(f"trainprobe / {title}")
        .uid(uid)
        .description(meaning)
        .tags([TAG])
        .readonly()
        .timezone("browser")
        .time(since, "now")
        .refresh("30s")
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .link(
            dashboard.DashboardLink("Training dashboards")
            .type(DashboardLinkType.DASHBOARDS)
            .tags([TAG])
            .include_vars(True)
            .keep_time(True)
        )
    )
    for variable in variables(one_run=queries.scope.one_run):
        builder = builder.with_variable(variable)
    for annotation in toggles(queries):
        builder = builder.annotation(annotation)
    built = builder.build()
    built.panels = placed(sections)
    # The SDK always writes "in the controls menu"; toggles and links are to be seen at the top.
    for shown in (*built.annotations.list_val, *built.links):
        shown.placement = None
    return built
