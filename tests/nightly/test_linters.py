"""What linters say of the Containerfile, the chart and its objects for the Prometheus Operator. Needs registries."""

from __future__ import annotations

import copy
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
CHARTS = ROOT / "charts"
TYPES = "@kubernetes-models/prometheus-operator@6.0.0"
OPERATOR = "monitoring.coreos.com/v1"

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def linters(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the programs."""
    environment = tmp_path_factory.mktemp("linters")
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    install = [environment / "bin/pip", "install", "-qq", "--requirement", ROOT / "requirements/linters.txt"]
    subprocess.run(install, check=True, capture_output=True, timeout=600)
    return environment / "bin"


def test_hadolint_has_nothing_against_the_containerfile(linters: Path) -> None:
    done = subprocess.run([linters / "hadolint", ROOT / "image/Containerfile"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


def failed_checks(linters: Path, *arguments: str | Path) -> set[str]:
    command = [linters / "checkov", "--file", CHARTS / "deploy.yaml", "--output", "json", "--skip-download", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    return {found["check_id"] for found in json.loads(done.stdout)["results"]["failed_checks"]}


def test_checkov_finds_the_committed_exceptions_and_no_other(linters: Path) -> None:
    committed = yaml.safe_load((CHARTS / "checkov.yaml").read_text())["skip-check"]
    assert failed_checks(linters, "--framework", "kubernetes") == set(committed)


@pytest.fixture(scope="module")
def validate(tmp_path_factory: pytest.TempPathFactory) -> Callable[[list[dict[str, Any]]], list[str]]:
    """What the operator's types have against objects."""
    npm, node = shutil.which("npm"), shutil.which("node")
    if npm is None or node is None:
        pytest.skip("no npm on PATH")
    directory = tmp_path_factory.mktemp("operator")
    (directory / "package.json").write_text('{"private": true, "type": "module"}')
    command = [npm, "install", "--ignore-scripts", "--no-audit", "--no-fund", TYPES]
    subprocess.run(command, cwd=directory, capture_output=True, timeout=300, check=True)
    script = shutil.copy(Path(__file__).with_name("prometheus_operator.mjs"), directory)

    def found(objects: list[dict[str, Any]]) -> list[str]:
        text = json.dumps(objects)
        done = subprocess.run([node, script], input=text, cwd=directory, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    return found


def operators_objects() -> list[dict[str, Any]]:
    """PodMonitor, ServiceMonitor and PrometheusRule, the last one with its rules as they are shipped."""
    golden = (CHARTS / "golden" / f"{name}.yaml" for name in ("operator", "service"))
    objects = [one for path in golden for one in yaml.safe_load_all(path.read_text()) if one["apiVersion"] == OPERATOR]
    files = (CHARTS / "trainprobe/files" / f"{name}.yml" for name in ("recording", "alerts"))
    groups = [group for file in files for group in yaml.safe_load(file.read_text())["groups"]]
    for one in objects:
        if one["kind"] == "PrometheusRule":
            one["spec"]["groups"] = groups
    return objects


def test_objects_of_the_operator_are_of_its_types(validate: Callable[[list[dict[str, Any]]], list[str]]) -> None:
    objects = operators_objects()
    assert {one["kind"] for one in objects} == {"PodMonitor", "ServiceMonitor", "PrometheusRule"}
    assert validate(objects) == []


def test_a_wrong_one_is_found(validate: Callable[[list[dict[str, Any]]], list[str]]) -> None:
    broken = copy.deepcopy(operators_objects())
    for one in broken:
        {
            "PodMonitor": lambda spec: spec["podMetricsEndpoints"][0].update(interval=15),
            "ServiceMonitor": lambda spec: spec["endpoints"][0].update(scheme="gopher"),
            "PrometheusRule": lambda spec: spec["groups"][0]["rules"][0].pop("expr"),
        }[one["kind"]](one["spec"])
    assert sorted(line.partition(":")[0] for line in validate(broken) if ":" in line) == sorted(
        one["kind"] for one in broken
    )
