"""What surrounds the dashboards fits them: provisioning, the compose example, what the documentation says of them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from grafana.causes import TOGGLES
from tests.observability.dashboards import dashboards, is_asked_of_prometheus

ROOT = Path(__file__).parents[3]
GRAFANA = ROOT / "grafana"
COMPOSE = GRAFANA / "compose"


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


def mounts(service: str) -> dict[str, Path]:
    """Folders and files of this checkout, by where the container sees them."""
    volumes = [volume.split(":") for volume in read(COMPOSE / "compose.yaml")["services"][service]["volumes"]]
    return {inside: (COMPOSE / outside).resolve() for outside, inside, *_ in volumes if outside.startswith(".")}


def test_grafana_finds_the_dashboards_where_they_are_mounted() -> None:
    (provider,) = read(GRAFANA / "provisioning" / "dashboards" / "trainprobe.yaml")["providers"]
    assert mounts("grafana")[provider["options"]["path"]] == GRAFANA / "dashboards"
    assert mounts("grafana")["/etc/grafana/provisioning/dashboards"] == GRAFANA / "provisioning" / "dashboards"
    assert mounts("grafana")["/etc/grafana/provisioning/datasources"] == GRAFANA / "provisioning" / "datasources"


def test_all_that_is_mounted_is_there() -> None:
    assert [
        path for service in ("grafana", "prometheus") for path in mounts(service).values() if not path.exists()
    ] == []


def test_grafana_knows_the_interval_at_which_prometheus_scrapes() -> None:
    """With less, a long stall falls apart into a row of marks."""
    (source,) = read(GRAFANA / "provisioning" / "datasources" / "trainprobe.yaml")["datasources"]
    scrape = read(COMPOSE / "prometheus.yml")["global"]["scrape_interval"]
    assert source["jsonData"]["timeInterval"] == scrape
    annotations = [a for d in dashboards().values() for a in d["annotations"]["list"] if is_asked_of_prometheus(a)]
    assert {annotation["step"] for annotation in annotations} == {scrape}


def test_the_example_listens_on_loopback_alone_and_has_no_password_of_its_own() -> None:
    services = read(COMPOSE / "compose.yaml")["services"]
    assert "--web.listen-address=127.0.0.1:9090" in services["prometheus"]["command"]
    assert services["grafana"]["environment"]["GF_SERVER_HTTP_ADDR"] == "127.0.0.1"
    assert services["grafana"]["environment"]["GF_SECURITY_ADMIN_PASSWORD"].startswith("${GRAFANA_PASSWORD:?")
    assert all(re.search(r":v?\d+\.\d+\.\d+$", service["image"]) for service in services.values()), "pinned"


def test_the_documentation_lists_the_switches_and_addresses_as_they_are() -> None:
    text = (ROOT / "docs" / "grafana.md").read_text()
    listed = {
        name: tuple(re.findall(r"`(\w+)`", causes))
        for name, causes in re.findall(r"^\| ([\w ]+) \| (`.*) \|$", text, re.MULTILINE)
    }
    assert {toggle.name: tuple(map(str, toggle.causes)) for toggle in TOGGLES}.items() <= listed.items()
    assert set(re.findall(r"\| `/d/([a-z-]+)` \|", text)) == set(dashboards())
