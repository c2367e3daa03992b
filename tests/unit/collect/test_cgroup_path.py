"""Paths as the runtimes of the field make them."""

from __future__ import annotations

import pytest

from trainprobe.collect.cgroup_path import CgroupPlace, parse_cgroups, place, place_of_path

ID = "3c9d5a7f" * 8
POD = "8a1b2c3d-0011-2233-4455-66778899aabb"
POD_ = POD.replace("-", "_")
MIRROR = "0123456789abcdef0123456789abcdef"

CONTAINERS = {
    "docker, cgroupfs": f"/docker/{ID}",
    "docker, systemd": f"/system.slice/docker-{ID}.scope",
    "docker in docker": f"/docker/{'a' * 64}/docker/{ID}",
    "docker, custom parent": f"/training.slice/docker-{ID}.scope",
    "dind under a service": f"/system.slice/docker.service/docker/{ID}",
    "containerd, nerdctl": f"/system.slice/nerdctl-{ID}.scope",
    "containerd, namespace": f"/default/{ID}",
    "podman, root": f"/machine.slice/libpod-{ID}.scope",
    "podman, crun's inner group": f"/machine.slice/libpod-{ID}.scope/container",
    "podman, rootless": f"/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{ID}.scope/container",
    "podman, cgroupfs": f"/libpod_parent/libpod-{ID}",
    "cri-o, no pod": f"/system.slice/crio-{ID}.scope",
    "seen from another namespace": f"/../../docker/{ID}",
}


@pytest.mark.parametrize("path", CONTAINERS.values(), ids=CONTAINERS.keys())
def test_a_container_is_known_by_its_id_and_is_no_unit(path: str) -> None:
    assert place_of_path(path) == CgroupPlace(container=ID)


PODS = {
    "cgroupfs, burstable": f"/kubepods/burstable/pod{POD}/{ID}",
    "cgroupfs, guaranteed": f"/kubepods/pod{POD}/{ID}",
    "cgroupfs, cri-o": f"/kubepods/besteffort/pod{POD}/crio-{ID}",
    "systemd, containerd": "/kubepods.slice/kubepods-burstable.slice/"
    f"kubepods-burstable-pod{POD_}.slice/cri-containerd-{ID}.scope",
    "systemd, cri-o": f"/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{POD_}.slice/crio-{ID}.scope",
    "systemd, crun's inner group": f"/kubepods.slice/kubepods-pod{POD_}.slice/crio-{ID}.scope/container",
    "systemd, docker": f"/kubepods.slice/kubepods-pod{POD_}.slice/docker-{ID}.scope",
    "kind": "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/"
    f"kubelet-kubepods-burstable-pod{POD_}.slice/cri-containerd-{ID}.scope",
    "kind in docker, v1": f"/docker/{'b' * 64}/kubelet/kubepods/burstable/pod{POD}/{ID}",
    "systemd path under the cgroupfs driver": "/system.slice/containerd.service/"
    f"kubepods-burstable-pod{POD_}.slice:cri-containerd:{ID}",
    "relative to a pod beside ours": f"/../../kubepods-pod{POD_}.slice/cri-containerd-{ID}.scope",
}


@pytest.mark.parametrize("path", PODS.values(), ids=PODS.keys())
def test_a_pod_is_known_by_its_uid_and_container(path: str) -> None:
    assert place_of_path(path) == CgroupPlace(container=ID, pod_uid=POD)


@pytest.mark.parametrize("path", [*PODS.values(), "/slurm/uid_0/job_4711/step_0"])
def test_a_users_own_manager_makes_no_pod_and_no_job(path: str) -> None:
    """Below it the user names cgroups: another one's pod would have his training."""
    place = place_of_path(f"/user.slice/user-1000.slice/user@1000.service/app.slice{path}")
    assert (place.pod_uid, place.slurm_job, place.slurm_step) == (None, None, None)


def test_a_static_pod_has_a_uid_without_dashes() -> None:
    assert place_of_path(f"/kubepods/burstable/pod{MIRROR}/{ID}").pod_uid == MIRROR


def test_the_pod_sandbox_has_no_container_of_its_own() -> None:
    assert place_of_path(f"/kubepods/burstable/pod{POD}") == CgroupPlace(pod_uid=POD)


SLURM = {
    "v1": ("/slurm/uid_1000/job_4711/step_0/task_0", "4711", "0"),
    "v1, several slurmd": ("/slurm_node01/uid_1000/job_4711/step_batch/task_0", "4711", "batch"),
    "v1, job only": ("/slurm/uid_1000/job_4711", "4711", None),
    "v2": ("/system.slice/slurmstepd.scope/job_4711/step_12/user/task_1", "4711", "12"),
    "v2, several slurmd": ("/system.slice/node01_slurmstepd.scope/job_4711/step_batch/user/task_0", "4711", "batch"),
    "v2, interactive": ("/system.slice/slurmstepd.scope/job_4711/step_interactive/user/task_0", "4711", "interactive"),
    "v2, under the service": (
        "/system.slice/slurmd.service/slurmstepd.scope/job_4711/step_extern/user",
        "4711",
        "extern",
    ),
}


@pytest.mark.parametrize(("path", "job", "step"), SLURM.values(), ids=SLURM.keys())
def test_a_slurm_step(path: str, job: str, step: str | None) -> None:
    assert place_of_path(path) == CgroupPlace(slurm_job=job, slurm_step=step)


def test_a_container_inside_a_slurm_step_has_both() -> None:
    found = place_of_path(f"/system.slice/slurmstepd.scope/job_7/step_0/user/task_0/libpod-{ID}.scope")
    assert (found.slurm_job, found.slurm_step, found.container) == ("7", "0", ID)


UNITS = {
    "service": ("/system.slice/train.service", "train.service"),
    "sub group of a service": ("/system.slice/train.service/payload", "train.service"),
    "template": ("/system.slice/system-train.slice/train@gpu0.service", "train@gpu0.service"),
    "user's own service": (
        "/user.slice/user-1000.slice/user@1000.service/app.slice/train.service",
        "train.service",
    ),
    "user manager": ("/user.slice/user-1000.slice/user@1000.service/init.scope", None),
    "login session": ("/user.slice/user-1000.slice/session-3.scope", None),
    "transient scope": ("/user.slice/user-1000.slice/user@1000.service/app.slice/run-r1234.scope", None),
    "terminal's scope": ("/user.slice/user-1000.slice/user@1000.service/app.slice/vte-spawn-77.scope", None),
    "slice": ("/system.slice", None),
    "root": ("/", None),
}


@pytest.mark.parametrize(("path", "unit"), UNITS.values(), ids=UNITS.keys())
def test_a_service_is_a_unit_and_scopes_and_user_managers_are_not(path: str, unit: str | None) -> None:
    assert place_of_path(path) == CgroupPlace(unit=unit)


def test_a_service_inside_a_container_is_a_unit_of_it() -> None:
    assert place_of_path("/machine.slice/machine-lab.scope/payload/system.slice/train.service") == CgroupPlace(
        container="lab", unit="train.service"
    )
    assert place_of_path("/lxc.payload.lab/system.slice/train.service") == CgroupPlace(
        container="lab", unit="train.service"
    )
    assert place_of_path("/lxc/lab").container == "lab"
    assert place_of_path("/machine.slice/systemd-nspawn@lab.service/payload") == CgroupPlace(container="lab")


NOT_CONTAINERS = {
    "podman's watcher": f"/machine.slice/libpod-conmon-{ID}.scope",
    "cri-o's watcher": f"/system.slice/crio-conmon-{ID}.scope",
    "too short": f"/docker/{ID[:63]}",
    "upper case": f"/docker/{ID.upper()}",
    "a user's directory": "/user.slice/podcast/job_12/step_1",
    "pod without a uid": "/pods/podX",
}


@pytest.mark.parametrize("path", NOT_CONTAINERS.values(), ids=NOT_CONTAINERS.keys())
def test_what_only_looks_like_a_container_pod_or_job(path: str) -> None:
    assert place_of_path(path) == CgroupPlace()


def test_hierarchies_are_split_by_controller() -> None:
    paths = parse_cgroups(
        "4:memory:/a\n3:cpu,cpuacct:/b:c\n1:name=systemd:/d\n0::/e (deleted)\nnonsense\n5:x:relative\n"
    )
    assert paths == {"memory": "/a", "cpu": "/b:c", "cpuacct": "/b:c", "name=systemd": "/d", "": "/e"}


def test_each_fact_comes_from_the_first_hierarchy_that_knows_it() -> None:
    text = f"9:memory:/slurm/uid_0/job_5/step_1\n1:name=systemd:/system.slice/slurmd.service\n5:cpuset:/docker/{ID}\n"
    assert place(parse_cgroups(text)) == CgroupPlace(container=ID, slurm_job="5", slurm_step="1")


def test_a_runtimes_service_in_an_unused_hierarchy_is_not_the_containers_unit() -> None:
    assert place(parse_cgroups(f"9:memory:/docker/{ID}\n0::/system.slice/docker.service\n")) == CgroupPlace(
        container=ID
    )


def test_a_unit_comes_from_any_hierarchy() -> None:
    assert place(parse_cgroups("9:memory:/\n1:name=systemd:/system.slice/train.service\n")) == CgroupPlace(
        unit="train.service"
    )


def test_hostile_paths_are_only_text() -> None:
    parse_cgroups("\n" * 100_000)
    place_of_path("/" + "pod" * 10_000 + "/" + "job_" * 10_000 + "/\udcff\x00" + "-" * 50_000 + ".scope")


@pytest.mark.parametrize("end", ["\r", "\x0b", "\x0c", "\x1c", "\x85", "\u2028"])
def test_a_name_that_some_take_for_two_lines_is_nobody_elses_place(end: str) -> None:
    spoofed = f"0::/user.slice/mine{end}0::/docker/{'ab' * 32}\n"
    assert parse_cgroups(spoofed) == {"": f"/user.slice/mine{end}0::/docker/{'ab' * 32}"}
