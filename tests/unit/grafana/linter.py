"""The rules of Grafana's published dashboard linter, as far as they concern Prometheus dashboards.

Names of rules are the linter's; what it checks with a PromQL parser is checked on the text here, and parsed for real
by the Prometheus of ``tests/observability``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tests.observability.dashboards import panels

DATASOURCES = {"$datasource", "${datasource}"}
WITH_UNIT = {"stat", "table", "timeseries", "gauge"}
WITH_TARGETS = {"heatmap", "stat", "timeseries", "gauge", "table", "state-timeline", "bargauge"}
# Of Grafana's value formats, those that a dashboard of ours may have.
UNITS = {"none", "string", "short", "percentunit", "bytes", "Bps", "dateTimeAsIso", "watt", "celsius", "hertz"} | {
    "s",
    "h",
    "wps",
    "locale",
}
_COUNTER = re.compile(r"(\w*)\(?\b(\w+_total)\{[^}]*\}(\[)?")
_SELECTOR = re.compile(r"\b([a-z_]\w*)\{([^}]*)\}")
_RATE = re.compile(r"\b(?:i?rate)\(\w+\{[^}]*\}\[([^\]]+)\]")


@dataclass(frozen=True)
class Finding:
    rule: str
    panel: str
    text: str


Rule = Callable[[dict[str, Any]], Iterator[Finding]]


def template_datasource_rule(dashboard: dict[str, Any]) -> Iterator[Finding]:
    found = [v for v in dashboard["templating"]["list"] if v["type"] == "datasource"]
    if [(v["name"], v["label"], v["query"]) for v in found] != [("datasource", "Data source", "prometheus")]:
        yield Finding("template-datasource-rule", "", f"data source variables: {found}")


def template_job_rule(dashboard: dict[str, Any]) -> Iterator[Finding]:
    yield from _template("template-job-rule", dashboard, "job", "Job")


def template_instance_rule(dashboard: dict[str, Any]) -> Iterator[Finding]:
    yield from _template("template-instance-rule", dashboard, "instance", "Instance")


def _template(rule: str, dashboard: dict[str, Any], name: str, label: str) -> Iterator[Finding]:
    variable = next((v for v in dashboard["templating"]["list"] if v["name"] == name), None)
    if variable is None:
        yield Finding(rule, "", f"there is no variable {name}")
        return
    expected = {"type": "query", "label": label, "multi": True, "allValue": ".+"}
    if {key: variable.get(key) for key in expected} != expected or variable["datasource"]["uid"] not in DATASOURCES:
        yield Finding(rule, "", f"variable {name} is {variable}")


def template_label_promql_rule(dashboard: dict[str, Any]) -> Iterator[Finding]:
    for variable in _query_variables(dashboard):
        if not re.fullmatch(r"label_values\(\w+(\{[^{}]*\})?, \w+\)", variable["query"]["query"]):
            yield Finding("template-label-promql-rule", variable["name"], variable["query"]["query"])


def template_on_time_change_reload_rule(dashboard: dict[str, Any]) -> Iterator[Finding]:
    for variable in _query_variables(dashboard):
        if variable["refresh"] != 2:
            yield Finding("template-on-time-change-reload-rule", variable["name"], "does not follow the time range")


def uneditable_dashboard_rule(dashboard: dict[str, Any]) -> Iterator[Finding]:
    if dashboard["editable"]:
        yield Finding("uneditable-dashboard", "", "the dashboard is editable")


def panel_datasource_rule(dashboard: dict[str, Any]) -> Iterator[Finding]:
    for panel in panels(dashboard):
        for asked in (panel, *panel["targets"]):
            if asked["datasource"]["uid"] not in DATASOURCES:
                yield Finding("panel-datasource-rule", panel["title"], str(asked["datasource"]))


def panel_title_description_rule(dashboard: dict[str, Any]) -> Iterator[Finding]:
    for panel in panels(dashboard):
        if not panel.get("title") or not panel.get("description"):
            yield Finding("panel-title-description-rule", panel.get("title", "?"), "title or description is missing")


def panel_units_rule(dashboard: dict[str, Any]) -> Iterator[Finding]:
    for panel in panels(dashboard):
        unit = panel["fieldConfig"]["defaults"].get("unit")
        overrides = [
            p["value"] for o in panel["fieldConfig"]["overrides"] for p in o["properties"] if p["id"] == "unit"
        ]
        if panel["type"] in WITH_UNIT and not {unit, *overrides} <= UNITS:
            yield Finding("panel-units-rule", panel["title"], f"unit {unit}, overrides {overrides}")


def panel_no_targets_rule(dashboard: dict[str, Any]) -> Iterator[Finding]:
    for panel in panels(dashboard):
        if panel["type"] not in WITH_TARGETS or not panel["targets"]:
            yield Finding("panel-no-targets-rule", panel["title"], f"a {panel['type']} without a query")


def target_rate_interval_rule(dashboard: dict[str, Any]) -> Iterator[Finding]:
    for panel, expr in _targets(dashboard):
        for window in _RATE.findall(expr):
            if window != "$__rate_interval":
                yield Finding("target-rate-interval-rule", panel["title"], f"rate over {window}")


def target_job_rule(dashboard: dict[str, Any]) -> Iterator[Finding]:
    yield from _matcher("target-job-rule", dashboard, 'job=~"$job"')


def target_instance_rule(dashboard: dict[str, Any]) -> Iterator[Finding]:
    yield from _matcher("target-instance-rule", dashboard, 'instance=~"$instance"')


def _matcher(rule: str, dashboard: dict[str, Any], matcher: str) -> Iterator[Finding]:
    for panel, expr in _targets(dashboard):
        for metric, matchers in _SELECTOR.findall(expr):
            if matcher not in matchers.split(","):
                yield Finding(rule, panel["title"], f"{metric}{{{matchers}}}")


def target_counter_agg_rule(dashboard: dict[str, Any]) -> Iterator[Finding]:
    for panel, expr in _targets(dashboard):
        for function, metric, window in _COUNTER.findall(expr):
            if function not in ("rate", "irate", "increase") or not window:
                yield Finding("target-counter-agg-rule", panel["title"], f"{metric} is no rate or increase")


def _targets(dashboard: dict[str, Any]) -> Iterator[tuple[dict[str, Any], str]]:
    for panel in panels(dashboard):
        for target in panel["targets"]:
            yield panel, target["expr"]


def _query_variables(dashboard: dict[str, Any]) -> Iterator[dict[str, Any]]:
    return (v for v in dashboard["templating"]["list"] if v["type"] == "query")


RULES: tuple[Rule, ...] = (
    template_datasource_rule,
    template_job_rule,
    template_instance_rule,
    template_label_promql_rule,
    template_on_time_change_reload_rule,
    uneditable_dashboard_rule,
    panel_datasource_rule,
    panel_title_description_rule,
    panel_units_rule,
    panel_no_targets_rule,
    target_rate_interval_rule,
    target_job_rule,
    target_instance_rule,
    target_counter_agg_rule,
)


def findings(dashboard: dict[str, Any]) -> list[Finding]:
    return [finding for rule in RULES for finding in rule(dashboard)]
