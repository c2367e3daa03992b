"""The Helm chart, rendered by Helm's own code, against the schemas of Kubernetes and its golden renderings."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".venv-chart/bin/python"

pytestmark = pytest.mark.skipif(
    not PYTHON.exists() and os.environ.get("TRAINPROBE_REQUIRE_KERNEL") != "1", reason="no .venv-chart: make chart"
)


def check(charts: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([PYTHON, charts / "check.py"], capture_output=True, text=True, timeout=120, check=False)


def test_each_dashboard_is_installed() -> None:
    installed = (ROOT / "charts/trainprobe/templates/dashboards.yaml").read_text()
    names = {path.stem.removeprefix("trainprobe-") for path in (ROOT / "grafana/dashboards").glob("*.json")}
    assert names == set(re.findall(r'"(\w+)"', installed.partition("range tuple")[2].partition("}}")[0]))


def test_the_chart_has_no_finding() -> None:
    done = check(ROOT / "charts")
    assert (done.returncode, done.stdout) == (0, "the chart has no finding\n"), done.stderr


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("file", "before", "after", "finding"),
    [
        ("templates/daemonset.yaml", "hostPID:", "hostPid:", "hostPid"),
        ("templates/daemonset.yaml", "drop: [ALL]", "drop: ALL", "'ALL' is not of type 'array'"),
        ("templates/daemonset.yaml", "DAC_READ_SEARCH", "DAC_OVERRIDE", "golden/default.yaml is not what"),
        ("values.schema.json", '"Always"', '"Sometimes"', "not refused"),
    ],
)
def test_a_broken_chart_is_found(tmp_path: Path, file: str, before: str, after: str, finding: str) -> None:
    charts = tmp_path / "charts"
    shutil.copytree(ROOT / "charts", charts)
    broken = charts / "trainprobe" / file
    text = broken.read_text()
    assert before in text
    broken.write_text(text.replace(before, after))
    done = check(charts)
    assert done.returncode == 1
    assert finding in done.stdout
