"""The dashboards are of the types that Grafana itself is compiled with. Needs npm, and its registry."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.observability.dashboards import dashboards

TYPES = Path(__file__).parent / "grafana_schema" / "dashboard.ts"
PACKAGES = ("@grafana/schema@12.3.3", "typescript@5.9.2")  # the release whose types the dashboards are held to
OPTIONS = ("--noEmit", "--strict", "--skipLibCheck", "--module", "esnext", "--moduleResolution", "bundler")

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("no npm on PATH")
    directory = tmp_path_factory.mktemp("schema")
    (directory / "package.json").write_text('{"private": true}')
    command = [npm, "install", "--ignore-scripts", "--no-audit", "--no-fund", *PACKAGES]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    shutil.copy(TYPES, directory)
    return directory


def compiled(project: Path, name: str, dashboard: dict[str, Any]) -> list[str]:
    """What the compiler has against a dashboard."""
    source = project / f"{name}.ts"
    value = json.dumps(dashboard, indent=1)
    source.write_text(f"import type {{ OurDashboard }} from './dashboard';\nexport const it: OurDashboard = {value};\n")
    command = [str(project / "node_modules/.bin/tsc"), *OPTIONS, source.name]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, timeout=120, check=False)
    return done.stdout.splitlines() if done.returncode else []


@pytest.mark.parametrize("uid", dashboards())
def test_each_dashboard_is_of_the_type_dashboard(project: Path, uid: str) -> None:
    assert compiled(project, uid, dashboards()[uid]) == []


def _panel(dashboard: dict[str, Any], kind: str) -> Any:
    return next(panel for panel in dashboard["panels"] if panel["type"] == kind)


@pytest.mark.parametrize(
    "break_it",
    [
        lambda d: d.update(refreshes="30s"),
        lambda d: d["annotations"]["list"][1].pop("iconColor"),
        lambda d: d["annotations"]["list"][1].pop("tagKeys"),
        lambda d: d["annotations"]["list"][-1]["target"].pop("tags"),
        lambda d: d["templating"]["list"][1].update(refresh=9),
        lambda d: _panel(d, "timeseries")["options"]["legend"].update(displayMode="tables"),
        lambda d: _panel(d, "timeseries")["fieldConfig"]["defaults"]["custom"].update(showPoints="often"),
        lambda d: _panel(d, "stat")["options"].pop("textMode"),
        lambda d: _panel(d, "stat")["targets"][0].pop("expr"),
        lambda d: _panel(d, "row").pop("collapsed"),
    ],
)
def test_the_compiler_sees_what_is_wrong(project: Path, break_it: Callable[[dict[str, Any]], object]) -> None:
    dashboard = dashboards()["trainprobe-stalls"]
    break_it(dashboard)
    assert compiled(project, "broken", dashboard)
