"""Pods and containers by the names of the kubelet's log files."""

from __future__ import annotations

from pathlib import Path

from trainprobe.collect.pod_names import PodNames, pod_names

UID, ID = "6f1b0c9e-2d3a-4c5b-8e7f-001122334455", "c" * 64
POD = f"team-a_trainer-0_{UID}"


def test_the_only_container_of_a_pod(tmp_path: Path) -> None:
    (tmp_path / "pods" / POD / "main").mkdir(parents=True)
    (tmp_path / "pods" / "other_pod_1").mkdir()
    assert pod_names(UID, ID, str(tmp_path)) == PodNames("team-a", "trainer-0", "main")


def test_of_several_containers_the_one_whose_log_bears_the_id(tmp_path: Path) -> None:
    for name in ("main", "init-data"):
        (tmp_path / "pods" / POD / name).mkdir(parents=True)
    assert pod_names(UID, ID, str(tmp_path)) == PodNames("team-a", "trainer-0", None)
    (tmp_path / "containers").mkdir()
    (tmp_path / "containers" / f"trainer-0_team-a_init-data-{'d' * 64}.log").symlink_to("gone")
    (tmp_path / "containers" / f"trainer-0_team-a_main-{ID}.log").symlink_to("gone")
    assert pod_names(UID, ID, str(tmp_path)) == PodNames("team-a", "trainer-0", "main")
    assert pod_names(UID, None, str(tmp_path)) == PodNames("team-a", "trainer-0", None)


def test_nothing_is_known_without_the_kubelets_logs(tmp_path: Path) -> None:
    assert pod_names(UID, ID, str(tmp_path)) == PodNames()
    (tmp_path / "pods" / f"odd_{UID}").mkdir(parents=True)
    assert pod_names(UID, ID, str(tmp_path)) == PodNames()
    assert pod_names(None, ID, str(tmp_path)) == PodNames()
