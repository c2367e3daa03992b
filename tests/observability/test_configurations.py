"""Every Prometheus configuration that is shown to users is one, by promtool."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SHOWN = [
    (page.name, number, block)
    for page in (ROOT / "docs" / "prometheus.md", ROOT / "docs" / "scale.md")
    for number, block in enumerate(re.findall(r"```yaml\n(.*?)```", page.read_text(), re.DOTALL))
    # Debian's Prometheus is built without Kubernetes, so promtool cannot read that one.
    if re.match(r"scrape_configs|remote_write", block) and "kubernetes_sd_configs" not in block
]


def checked(configuration: Path) -> str:
    """What promtool has against it."""
    command = ["promtool", "check", "config", str(configuration)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    return "" if done.returncode == 0 else done.stdout + done.stderr


def test_the_configuration_of_the_example_loads_with_its_rules(tmp_path: Path) -> None:
    shutil.copy(ROOT / "grafana" / "compose" / "prometheus.yml", tmp_path)
    shutil.copytree(ROOT / "grafana" / "rules", tmp_path / "rules")
    assert checked(tmp_path / "prometheus.yml") == ""


@pytest.mark.parametrize(("page", "number", "block"), SHOWN, ids=[f"{page}-{number}" for page, number, _ in SHOWN])
def test_what_a_page_shows_can_be_used(tmp_path: Path, page: str, number: int, block: str) -> None:
    (tmp_path / "prometheus.yml").write_text(block)
    assert checked(tmp_path / "prometheus.yml") == ""


def test_pages_show_something() -> None:
    assert {page for page, _, _ in SHOWN} == {"prometheus.md", "scale.md"}
