"""The dashboards have no finding of the published linter but those that are written down here, with their reasons."""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest

from tests.observability.dashboards import OF_SUMS, dashboards, panels
from tests.unit.grafana.linter import findings

ALL = dashboards()
EXCEPTIONS = {
    ("template-instance-rule", ""): "the variable for the label instance is called host, as people call it",
    ("target-instance-rule", ""): "for the same reason it is matched by $host, in every selector (see below)",
    ("target-counter-agg-rule", "Stalls, by rank and cause"): "for the same reason as the next",
    ("target-counter-agg-rule", "Stalls by cause"): "the growth over one step: a rate would smear a stall over four",
    ("target-counter-agg-rule", "Calls that failed for want of a descriptor"): "a first event begins its series",
    ("target-counter-agg-rule", "Calls that failed for want of one"): "for the same reason",
    ("target-counter-agg-rule", "GPU errors"): "for the same reason",
    ("target-counter-agg-rule", "Kernel events lost"): "for the same reason",
    ("target-counter-agg-rule", "Stalls in the time range"): "a first stall begins its series where its zero gave way",
    ("target-counter-agg-rule", "Time in phases"): "a phase begins its series",
}


@pytest.mark.parametrize("uid", ALL)
def test_no_finding_without_a_written_reason(uid: str) -> None:
    left = [f for f in findings(ALL[uid]) if not {(f.rule, ""), (f.rule, f.panel)} & EXCEPTIONS.keys()]
    assert left == []


def test_each_exception_is_still_needed() -> None:
    found = [finding for dashboard in ALL.values() for finding in findings(dashboard)]
    for rule, panel in EXCEPTIONS:
        assert any(f.rule == rule and panel in ("", f.panel) for f in found), rule


@pytest.mark.parametrize("uid", [uid for uid in ALL if uid != OF_SUMS])
def test_each_selector_names_the_host(uid: str) -> None:
    variables = {v["name"]: v for v in ALL[uid]["templating"]["list"]}
    assert {key: variables["host"][key] for key in ("multi", "includeAll", "allValue")} == {
        "multi": True,
        "includeAll": True,
        "allValue": ".+",
    }
    for panel in panels(ALL[uid]):
        for target in panel["targets"]:
            for matchers in re.findall(r"\{([^}]*)\}", target["expr"]):
                assert 'instance=~"$host"' in matchers, (panel["title"], target["expr"])


@pytest.mark.parametrize(
    ("break_it", "rule"),
    [
        (lambda d, p: d["templating"]["list"].pop(0), "template-datasource-rule"),
        (lambda d, p: d["templating"]["list"].pop(1), "template-job-rule"),
        (lambda d, p: d["templating"]["list"][1]["query"].update(query="up{"), "template-label-promql-rule"),
        (lambda d, p: d["templating"]["list"][2].update(refresh=1), "template-on-time-change-reload-rule"),
        (lambda d, p: d.update(editable=True), "uneditable-dashboard"),
        (lambda d, p: p["datasource"].update(uid="prometheus-1"), "panel-datasource-rule"),
        (lambda d, p: p.pop("description"), "panel-title-description-rule"),
        (lambda d, p: p["fieldConfig"]["defaults"].pop("unit"), "panel-units-rule"),
        (lambda d, p: p["targets"].clear(), "panel-no-targets-rule"),
        (lambda d, p: p["targets"][0].update(expr='rate(a_total{job=~"$job"}[5m])'), "target-rate-interval-rule"),
        (lambda d, p: p["targets"][0].update(expr="up{}"), "target-job-rule"),
        (lambda d, p: p["targets"][0].update(expr='sum(a_total{job=~"$job"})'), "target-counter-agg-rule"),
    ],
)
def test_the_linter_finds_what_it_names(break_it: Any, rule: str) -> None:
    dashboard = copy.deepcopy(ALL["trainprobe-stalls"])
    panel = next(p for p in panels(dashboard) if p["type"] == "timeseries")
    before = len([f for f in findings(dashboard) if f.rule == rule])
    break_it(dashboard, panel)
    assert len([f for f in findings(dashboard) if f.rule == rule]) == before + 1
