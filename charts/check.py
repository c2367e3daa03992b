"""Renders the chart with Helm's own code for each ``ci/*-values.yaml`` and validates what comes out.

    .venv-chart/bin/python charts/check.py            check; exit 1 and one line for each finding
    .venv-chart/bin/python charts/check.py --write    write golden/ and deploy.yaml anew

Checked: the values against the schema, that wrong values are refused by name, every object against the schemas of
Kubernetes 1.27 to the newest known, and the rendering against ``golden/``. Objects of the Prometheus Operator have no
schema here; PrometheusRule has to hold the groups of grafana/rules, which promtool checks.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import helm_python as helm
import kubernetes_validate
import yaml

HERE = Path(__file__).parent
CHART, GOLDEN, DEPLOY = HERE / "trainprobe", HERE / "golden", HERE / "deploy.yaml"
OLDEST = 27  # of 1.x
WRONG = (
    ({"exporter": {"port": "http"}}, "/exporter/port"),
    ({"exporter": {"prot": 19752}}, "prot"),
    ({"image": {"pullPolicy": "Sometimes"}}, "/image/pullPolicy"),
    ({"podMonitor": {"interval": 15}}, "/podMonitor/interval"),
    ({"daemon": {"privileged": True}}, "privileged"),
    ({"daemon": {"extraCapabilities": ["ALL"]}}, "/daemon/extraCapabilities/0"),
)

REFUSED = (
    ({"podMonitor": {"enabled": True}, "serviceMonitor": {"enabled": True}}, "scraped twice into the same series"),
)
"""Values that the schema allows and the templates do not, and what is said of them."""


def rendered(chart: Any, values: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """(template, object), in the order of the templates."""
    for template, text in sorted(chart.render(values, name="trainprobe", namespace="monitoring").items()):
        for document in filter(None, yaml.safe_load_all(text)):
            yield template, document


def text_of(objects: list[dict[str, Any]], *, short: bool) -> str:
    """As YAML; ``short``: without generated JSON and rules, which are held elsewhere."""
    for one in objects if short else ():
        for name in (one.get("data") or {}) if one["kind"] == "ConfigMap" else ():
            if name.endswith(".json"):
                one["data"][name] = "as in files/"
        if one["kind"] == "PrometheusRule":
            one["spec"]["groups"] = [group["name"] for group in one["spec"]["groups"]]
    return "---\n".join(yaml.safe_dump(one, sort_keys=False, width=120) for one in objects)


def versions() -> list[str]:
    newest = int(kubernetes_validate.latest_version().split(".")[1])
    return [f"1.{minor}" for minor in range(OLDEST, newest + 1)]


def rules(values: dict[str, Any]) -> list[Any]:
    """Those of the files, with the links that the values ask for."""
    files = (CHART / "files" / f"{name}.yml" for name in ("recording", "alerts"))
    groups = [group for file in files for group in yaml.safe_load(file.read_text())["groups"]]
    for rule in (rule for group in groups for rule in group["rules"] if "alert" in rule):
        links = rule["annotations"]
        links["runbook_url"] = f"{values['runbooks'].rstrip('/')}/{rule['alert']}.md"
        links["dashboard_url"] = f"{values['grafana'].rstrip('/')}/d/{links['dashboard_url'].partition('/d/')[2]}"
    return groups


def as_of(version: str, document: dict[str, Any]) -> dict[str, Any]:
    """Without what the template leaves out for an older cluster: the rendering is for the newest."""
    made = copy.deepcopy(document)
    if made["kind"] == "DaemonSet" and version < "1.30":
        for container in made["spec"]["template"]["spec"]["containers"]:
            container["securityContext"].pop("appArmorProfile", None)
    return made


def not_refused(chart: Any) -> Iterator[str]:
    for values, name in WRONG:
        try:
            chart.validate_schema(values)
        except helm.HelmError as error:
            if name.strip("/") not in str(error) and name.strip("/").replace("/", ".") not in str(error):
                yield f"{values}: refused without naming {name}: {error}"
        else:
            yield f"{values}: not refused"
    for values, reason in REFUSED:
        try:
            list(rendered(chart, values))
        except helm.HelmError as error:
            if reason not in str(error):
                yield f"{values}: refused without saying {reason!r}: {error}"
        else:
            yield f"{values}: not refused"


def findings(chart: Any, *, write: bool) -> Iterator[str]:
    yield from not_refused(chart)
    for path in sorted((CHART / "ci").glob("*-values.yaml")):
        values = yaml.safe_load(path.read_text()) or {}
        chart.validate_schema(values)
        objects = list(rendered(chart, values))
        for template, document in objects:
            if document["kind"] == "PrometheusRule":
                asked = {"grafana": "http://localhost:3000", "runbooks": "docs/runbooks"} | values["prometheusRule"]
                if document["spec"]["groups"] != rules(asked):
                    yield f"{path.name}: {template}: not the groups of grafana/rules"
            if document["apiVersion"].startswith("monitoring.coreos.com/"):
                continue
            for version in versions():
                try:
                    kubernetes_validate.validate(as_of(version, document), version, strict=True)
                except kubernetes_validate.ValidationError as error:
                    yield f"{path.name}: {template}: Kubernetes {version}: {error.message}"
        if path.name == "default-values.yaml":
            yield from compared(DEPLOY, text_of([one for _, one in objects], short=False), write=write)
        golden = GOLDEN / path.name.replace("-values", "")
        yield from compared(golden, text_of([one for _, one in objects], short=True), write=write)


def compared(path: Path, text: str, *, write: bool) -> Iterator[str]:
    if write:
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    elif not path.exists() or path.read_text() != text:
        yield f"{path.relative_to(HERE)} is not what the chart renders: charts/check.py --write"


def main() -> int:
    with helm.Chart.load(str(CHART)) as chart:
        found = list(findings(chart, write="--write" in sys.argv))
    print("\n".join(found) or "the chart has no finding")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
