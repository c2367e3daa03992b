"""What all dashboards have in common: variables, regions, links among them, time, refresh; and their addresses."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from grafana_foundation_sdk.builders import dashboard
from grafana_foundation_sdk.models.dashboard import DashboardCursorSync, DashboardLinkType

from grafana.annotations import of_grafana, toggles
from grafana.causes import SHOWN
from grafana.layout import Section, placed
from grafana.panels import Column
from grafana.queries import Queries
from grafana.variables import variables

# Public: links, alerts and bookmarks use them.
STALLS_UID = "trainprobe-stalls"
FLEET_UID = "trainprobe-fleet"
MEMORY_UID = "trainprobe-memory"
HOSTS_UID = "trainprobe-hosts"
GOODPUT_UID = "trainprobe-goodput"
TAG = "trainprobe"

LIVE_PAGE = "http://${host:raw}/"
LIVE_PAGE_MEANING = (
    "Choose one host first. Its exporter must listen on more than 127.0.0.1 (`listen:` in exporter.yaml) to be reached;"
    " `trainprobe page` there has the token"
)
ALERTS = "/alerting/list?search=Train"
_KEEP = "${datasource:queryparam}&${job:queryparam}&${__url_time_range}"
STALLS_OF_ROW = f"/d/{STALLS_UID}?{_KEEP}&var-host=$__all&var-rank=$__all&var-run=${{__data.fields.run}}"
"""The dashboard of the run in this row of a table."""
RUN_COLUMN = Column("run", link=("Training stalls of this run", STALLS_OF_ROW))
HOST_COLUMN = Column(
    "instance",
    link=("Memory and limits", f"/d/{MEMORY_UID}?{_KEEP}&var-host=${{__data.fields.instance}}&var-rank=$__all"),
    also=("Live page, if its exporter listens beyond 127.0.0.1", "http://${__data.fields.instance}/"),
)


def dashboard_of(
    uid: str,
    title: str,
    meaning: str,
    queries: Queries,
    sections: Sequence[Section],
    *,
    since: str,
    toggles_on: Collection[str],
) -> Any:
    """A dashboard, built: what the SDK encodes to the JSON that Grafana imports.

    ``toggles_on``: regions that are drawn from the start. A dashboard of all runs would be covered with those of all
    causes, and would ask for the series of a whole fleet at each refresh.
    """
    builder = _plain(uid, title, meaning, since, refresh="30s")
    builder = builder.link(_elsewhere("Live page", LIVE_PAGE, LIVE_PAGE_MEANING))
    builder = builder.link(_elsewhere("Alerts and runbooks", ALERTS, "trainprobe's rules; each has its runbook"))
    return _filled(builder, variables(one_run=queries.scope.one_run), toggles(queries, toggles_on), sections)


def account_of(uid: str, title: str, meaning: str, chosen: Sequence[Any], sections: Sequence[Section]) -> Any:
    """A dashboard of sums over days, built: ``chosen`` are its variables. Its figures are of no host and of no moment,
    so it has neither regions nor a live page."""
    builder = _plain(uid, title, meaning, "now-7d", refresh="5m")
    return _filled(builder, chosen, [of_grafana()], sections)


def _filled(builder: Any, chosen: Sequence[Any], annotations: Sequence[Any], sections: Sequence[Section]) -> Any:
    for variable in chosen:
        builder = builder.with_variable(variable)
    for annotation in annotations:
        builder = builder.annotation(annotation)
    built = builder.build()
    built.panels = placed(sections)
    return without_surplus(built)


def _plain(uid: str, title: str, meaning: str, since: str, *, refresh: str) -> Any:
    return (
        dashboard.Dashboard(f"trainprobe / {title}")
        .uid(uid)
        .description(meaning)
        .tags([TAG])
        .readonly()
        .timezone("browser")
        .time(since, "now")
        .refresh(refresh)
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .link(
            dashboard.DashboardLink("Training dashboards")
            .type(DashboardLinkType.DASHBOARDS)
            .tags([TAG])
            .include_vars(True)
            .keep_time(True)
        )
    )


def _elsewhere(title: str, url: str, meaning: str) -> Any:
    made = dashboard.DashboardLink(title).type(DashboardLinkType.LINK).url(url)
    return made.tooltip(meaning).target_blank(True).icon("external link")


def without_surplus(built: Any) -> Any:
    """The dashboard without what the SDK adds by itself and Grafana's own types lack, or we do not want.

    Links would hide in a menu, and so would the toggles that are asked for most; variables would have the fields of an
    interval, tables a footer of old.
    """
    for link in built.links:
        link.placement = None
    for switch in built.annotations.list_val:
        if switch.name in SHOWN or switch.hide:
            switch.placement = None
    for variable in built.templating.list_val:
        variable.auto = variable.auto_min = variable.auto_count = None
    for panel in (*built.panels, *(inner for row in built.panels for inner in getattr(row, "panels", None) or ())):
        if panel.type_val == "table":
            panel.options.footer = None
    return built
