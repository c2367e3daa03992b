"""The rule files are what the code builds, every alert of the contract is among them, with its page and its tests."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from grafana.rules import build
from grafana.rules.alerts import ALERTS, CRITICAL, INFO, WARNING
from tests.observability.dashboards import panel_queries
from trainprobe_exporters.catalogue import BY_NAME

NAMES = [
    "TrainingStalled",
    "TrainingStallBudgetBurn",
    "TrainingGoodputBudgetBurn",
    "TrainingNoProgress",
    "TrainingSlowingDown",
    "TrainingCheckpointFailed",
    "TrainingWorkerDied",
    "TrainingOOMKill",
    "TrainingOOMRisk",
    "TrainingSwapIn",
    "TrainingSwapNearlyFull",
    "TrainingMemoryPressure",
    "TrainingCgroupNearLimit",
    "TrainingShmNearlyFull",
    "TrainingFdExhaustionPredicted",
    "TrainingFdNearLimit",
    "TrainingDiskFull",
    "TrainingGpuThrottled",
    "TrainingGpuError",
    "TrainingStragglerRank",
    "TrainprobeDown",
    "TrainprobeDegraded",
    "TrainprobeEventsLost",
]
CONDITIONS = {f"trainprobe_{name}" for name in ("phase_active", "run_gpu_info", "run_wall_seconds_total", "source_up")}
"""What says when an alert may fire, not what it is about."""
EVERY = [alert for alerts in ALERTS.values() for alert in alerts]
RUNBOOKS = build.ROOT / "docs" / "runbooks"
TESTS = [
    case
    for path in sorted((build.DIRECTORY / "tests").glob("*.yml"))
    for case in yaml.load(path.read_text(), yaml.CSafeLoader)["tests"]
]


def test_the_files_are_what_the_code_builds() -> None:
    remedy = "make them anew: python -m grafana.rules.build"
    for name, text in build.built().items():
        assert (build.DIRECTORY / name).read_text() == text, remedy
    assert build.PAGE.read_text() == build.page(), remedy


def test_the_alerts_are_those_of_the_contract() -> None:
    assert {alert.name for alert in EVERY} == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_each_has_a_runbook_that_says_what_to_do(name: str) -> None:
    text = (RUNBOOKS / f"{name}.md").read_text()
    assert text.startswith(f"# {name}\n")
    for heading in ("## What it means", "## Look first", "## What to do", "## When it is no fault"):
        assert heading in text
    assert len(text.splitlines()) < 60


def test_no_runbook_is_left_over() -> None:
    assert {path.stem for path in RUNBOOKS.glob("*.md")} == set(NAMES)


def test_each_has_what_people_need() -> None:
    for alert in EVERY:
        assert alert.severity in (CRITICAL, WARNING, INFO)
        assert "$value" in alert.summary, alert.name
        assert "$labels.instance" in alert.summary, alert.name
        assert len(alert.description) > 60


def test_each_link_chooses_what_its_dashboard_lets_one_choose() -> None:
    for alert in EVERY:
        dashboard = json.loads((build.ROOT / "grafana" / "dashboards" / f"{alert.dashboard}.json").read_text())
        chosen = re.findall(r"var-(\w+)=", build.Links().of(alert)["dashboard_url"])
        assert {*chosen} <= {variable["name"] for variable in dashboard["templating"]["list"]}, alert.name


def test_each_link_leads_to_a_dashboard_that_draws_what_the_alert_is_about() -> None:
    recorded = {rule["record"]: rule["expr"] for group in rules("recording.yml") for rule in group["rules"]}

    def read(text: str) -> set[str]:
        """Metrics, those that recording rules read among them."""
        named = set(re.findall(r"(?<![\w:])(?:[a-z_]+:)?trainprobe_[a-z0-9_]+(?::\w+)?|\bup\b", text))
        of_rules = (read(recorded[name]) for name in named & recorded.keys())
        return {name.removesuffix("_bucket") for name in named - recorded.keys()}.union(*of_rules)

    for alert in EVERY:
        drawn = " ".join(asked.expr for asked in panel_queries() if asked.dashboard == alert.dashboard)
        about = read(alert.expr) - CONDITIONS or read(alert.expr)
        assert about & read(drawn), alert.name


@pytest.mark.parametrize("name", NAMES)
def test_each_is_tested_silent_firing_and_silent_on_a_look_alike(name: str) -> None:
    """promtool runs the cases (tests/observability); this counts them."""
    silent = sum(name == test["alertname"] for case in TESTS for test in case.get("alert_rule_test", ()))
    firing = [
        test
        for case in TESTS
        for test in case.get("promql_expr_test", ())
        if f'alertname="{name}"' in test["expr"] and test["exp_samples"]
    ]
    alike = [
        case
        for case in TESTS
        if any(name == test["alertname"] for test in case.get("alert_rule_test", ()))
        and not any(f'"{name}"' in test["expr"] for test in case.get("promql_expr_test", ()))
    ]
    assert silent >= 3
    assert firing
    assert alike, "a case in which it never fires"


def test_the_rules_read_only_metrics_that_there_are() -> None:
    known = set(BY_NAME) | {rule["record"] for group in rules("recording.yml") for rule in group["rules"]}
    known |= {f"{name}_bucket" for name in BY_NAME}
    for group in (*rules("recording.yml"), *rules("alerts.yml")):
        for rule in group["rules"]:
            for name in re.findall(r"(?<![\w:\"])[a-z_]*:?trainprobe_[a-z0-9_:]+", rule["expr"]):
                assert name in known, (name, rule)


def test_severities_and_inhibitions_name_alerts_that_there_are() -> None:
    example = yaml.safe_load((build.DIRECTORY / "alertmanager.yml").read_text())
    for rule in example["inhibit_rules"]:
        for matchers in (rule["source_matchers"], rule["target_matchers"]):
            for name in re.findall(r"Train\w+", " ".join(matchers)):
                assert name in NAMES


def test_links_lead_where_one_says(tmp_path: Path) -> None:
    text = build.built(build.Links("https://grafana.example", "https://docs.example"))["alerts.yml"]
    assert "https://grafana.example/d/trainprobe-stalls?" in text
    assert "https://docs.example/TrainingStalled.md" in text
    assert "localhost" not in text


def rules(name: str) -> list[dict[str, list[dict[str, str]]]]:
    groups: list[dict[str, list[dict[str, str]]]] = yaml.safe_load((build.DIRECTORY / name).read_text())["groups"]
    return groups
