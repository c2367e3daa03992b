"""What the Helm chart renders works in a cluster: by its golden renderings, which Helm makes in `make chart`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from grafana.rules.expressions import TRAINPROBE
from trainprobe_exporters.catalogue import METRICS

GOLDEN = {path.stem: path for path in (Path(__file__).parents[2] / "charts" / "golden").glob("*.yaml")}
OF_THE_OPERATOR = {"namespace", "pod", "container", "service", "endpoint"}
"""The labels that the Prometheus Operator gives a target, by the pod that is scraped."""


def objects(kind: str, name: str) -> list[dict[str, Any]]:
    return [one for one in yaml.safe_load_all(GOLDEN[name].read_text()) if one["kind"] == kind]


@pytest.mark.parametrize(
    ("kind", "golden", "key"),
    [("PodMonitor", "operator", "podMetricsEndpoints"), ("ServiceMonitor", "service", "endpoints")],
)
def test_a_scrape_keeps_the_names_of_the_training_s_pod(kind: str, golden: str, key: str) -> None:
    """Prometheus renames a scraped label that the target has too, and the training's pod would be the exporter's."""
    (monitor,) = objects(kind, golden)
    (endpoint,) = monitor["spec"][key]
    dropped = [one["regex"] for one in endpoint["relabelings"] if one.get("action") == "labeldrop"]
    kept = {label for label in OF_THE_OPERATOR if not any(re.fullmatch(regex, label) for regex in dropped)}
    ours = {label for metric in METRICS for label in (*metric.labels, *metric.optional_labels)}
    assert {"namespace", "pod", "container"} <= ours
    assert kept & ours == set()
    assert "pod" not in kept, "a new pod of the exporter would begin each series anew"
    (job,) = [one["replacement"] for one in endpoint["relabelings"] if one.get("targetLabel") == "job"]
    assert re.fullmatch(TRAINPROBE.partition("~")[2].strip('"'), job), "an alert about a target goes by its job"


@pytest.mark.parametrize("name", GOLDEN)
def test_a_user_who_is_not_root_can_read_what_is_mounted_for_him(name: str) -> None:
    """Files of secrets and config maps are root's and of root's group; 0644 unless another mode is given."""
    (daemons,) = objects("DaemonSet", name)
    pod = daemons["spec"]["template"]["spec"]
    assert "fsGroup" not in pod["securityContext"]
    modes = {
        volume["name"]: volume[kind].get("defaultMode", 0o644)
        for volume in pod["volumes"]
        for kind in ("configMap", "secret")
        if kind in volume
    }
    for container in pod["containers"]:
        mounted = [mount["name"] for mount in container["volumeMounts"] if mount["name"] in modes]
        assert "config" in mounted
        assert container["securityContext"]["runAsUser"] == 0 or all(modes[volume] & 0o004 for volume in mounted)


@pytest.mark.parametrize("name", GOLDEN)
def test_the_nvidia_runtime_is_asked_for_the_gpus(name: str) -> None:
    """Without these variables it gives a container neither devices nor NVML, and no figure of a GPU is seen."""
    (daemons,) = objects("DaemonSet", name)
    (daemon,) = [one for one in daemons["spec"]["template"]["spec"]["containers"] if one["name"] == "daemon"]
    variables = {one["name"]: one.get("value") for one in daemon["env"]}
    assert (variables["NVIDIA_VISIBLE_DEVICES"], variables["NVIDIA_DRIVER_CAPABILITIES"]) == ("all", "utility")
    assert len(variables) == len(daemon["env"]), "each once"
