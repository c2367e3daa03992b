"""promtool and amtool on the rule files; and that the rules' own tests notice when an alert is broken."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from grafana.rules.alerts import ALERTS
from grafana.rules.build import DIRECTORY

RULES = ("recording.yml", "alerts.yml")
TESTS = sorted((DIRECTORY / "tests").glob("*.yml"))
NAMES = sorted({alert.name for alerts in ALERTS.values() for alert in alerts})


def promtool(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["promtool", *map(str, arguments)], capture_output=True, text=True, timeout=60, check=False)


def test_the_rules_have_no_finding() -> None:
    result = promtool("check", "rules", *(DIRECTORY / name for name in RULES))
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize("path", TESTS, ids=lambda path: path.stem)
def test_every_alert_is_silent_before_and_fires_after(path: Path) -> None:
    result = promtool("test", "rules", path)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "broken",
    ["vector(0) > 1", "vector(1)", 'label_replace(vector(1), "run", "r", "", "")'],
    ids=["never", "always", "r"],
)
def test_the_tests_notice_an_alert_that_is_broken(tmp_path: Path, name: str, broken: str) -> None:
    """With an expression that never holds, or always does, the tests of this alert fail."""
    rules = yaml.safe_load((DIRECTORY / "alerts.yml").read_text())
    for group in rules["groups"]:
        for rule in group["rules"]:
            if rule["alert"] == name:
                rule["expr"] = broken
    (tmp_path / "tests").mkdir()
    shutil.copy(DIRECTORY / "recording.yml", tmp_path)
    (tmp_path / "alerts.yml").write_text(yaml.safe_dump(rules))
    ours = [(path, cases) for path in TESTS if (cases := cases_of(path, name))]
    assert ours, "each alert has tests"
    for path, cases in ours:
        copy = tmp_path / "tests" / path.name
        copy.write_text(yaml.safe_dump(cases))
        assert promtool("test", "rules", copy).returncode != 0


def cases_of(path: Path, name: str) -> dict[str, Any] | None:
    """The file with the cases that expect something of one alert; None: it has none."""
    tests: dict[str, Any] = yaml.safe_load(path.read_text())
    cases = [case for case in tests["tests"] if expects(case, name)]
    return tests | {"tests": cases} if cases else None


def expects(case: dict[str, Any], name: str) -> bool:
    told = any(one["alertname"] == name for one in case.get("alert_rule_test", ()))
    return told or any(f'alertname="{name}"' in one["expr"] for one in case.get("promql_expr_test", ()))


@pytest.mark.parametrize("name", NAMES)
def test_texts_carry_numbers_and_links(tmp_path: Path, name: str) -> None:
    """What people are told, as Prometheus renders it: promtool shows it when nothing was expected."""
    for told in rendered(tmp_path, name):
        assert re.search(r"[0-9]", told["summary"]), told["summary"]
        assert "<" not in told["summary"] + told["description"], "no value, or an error of the template"
        assert "%!" not in told["summary"]
        assert len(told["summary"]) <= 160
        assert told["runbook_url"].endswith(f"/{name}.md")
        assert re.search(r"/d/trainprobe-(stalls|fleet|goodput|memory|hosts)\?", told["dashboard_url"])


def rendered(directory: Path, name: str) -> Iterator[dict[str, str]]:
    cases = [(order, case) for path in TESTS for order, case in firing_cases(path, name)]
    assert cases, "each alert fires in some test"
    for order, case in cases:
        at = next(t["eval_time"] for t in case["promql_expr_test"] if f'alertname="{name}"' in t["expr"])
        case = {key: case[key] for key in ("interval", "input_series")} | {
            "alert_rule_test": [{"alertname": name, "eval_time": at}]
        }
        document = {"rule_files": [str(DIRECTORY / rule) for rule in RULES], "evaluation_interval": "1m"}
        document |= {"group_eval_order": order}
        path = directory / "texts.yml"
        path.write_text(yaml.safe_dump(document | {"tests": [case]}))
        output = promtool("test", "rules", path).stderr
        found = re.findall(r"Annotations:\{(.*)\}", output)
        assert found, output
        for texts in found:
            yield {key: value.replace('\\"', '"') for key, value in re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', texts)}


def firing_cases(path: Path, name: str) -> Iterator[tuple[list[str], dict[str, Any]]]:
    """With the order of groups: without one promtool draws it anew each time, and an alert may see what a rule that it
    rests on recorded a minute ago."""
    tests = yaml.safe_load(path.read_text())
    for case in tests["tests"]:
        if any(f'alertname="{name}"' in test["expr"] for test in case.get("promql_expr_test", ())):
            yield tests["group_eval_order"], case


def test_alertmanager_takes_the_example() -> None:
    if shutil.which("amtool") is None:
        pytest.skip("no amtool on PATH (make test unpacks prometheus-alertmanager)")
    result = subprocess.run(
        ["amtool", "check-config", str(DIRECTORY / "alertmanager.yml")], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
