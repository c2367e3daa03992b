"""What a cgroup path says about who runs a process: container, pod, SLURM step, systemd unit (pure)."""

from __future__ import annotations

import re

from trainprobe.collect.lines import lines_of
from trainprobe.model.dataclass import dataclass

LINES_LIMIT = 64

_HEX = "[0-9a-f]{64}"
# Runtimes name the container's scope "<runtime>-<id>.scope"; conmon is podman's and cri-o's watcher, not a container.
_SCOPE = re.compile(rf"(?:(?:[a-z]+-)*)({_HEX})\.scope")
_BARE = re.compile(rf"(?:(?:crio|libpod|docker|cri-containerd)-)?({_HEX})")
_COLON = re.compile(rf".*:(?:[a-z-]+):({_HEX})")  # runc with a systemd-style path under the cgroupfs driver
_ECS = re.compile(r"([0-9a-f]{32}-[0-9]{5,})")
_POD = re.compile(
    r"pod([0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12}|[0-9a-f]{32})(?:\.slice)?"
)
_LXC = re.compile(r"lxc\.payload\.(.+)")
_NSPAWN = re.compile(r"machine-(.+)\.scope")
_JOB = re.compile(r"job_([0-9]{1,20})")
_STEP = re.compile(r"step_([0-9]{1,20}|batch|extern|interactive)")
_UNIT = re.compile(r"[^/]+\.service")


@dataclass(frozen=True, slots=True)
class CgroupPlace:
    """Where a process runs; None where the path does not say."""

    container: str | None = None
    pod_uid: str | None = None
    slurm_job: str | None = None
    slurm_step: str | None = None
    unit: str | None = None


def parse_cgroups(text: str) -> dict[str, str]:
    """/proc/PID/cgroup -> path by controller; "" is the unified (v2) hierarchy, "name=systemd" a named one."""
    paths: dict[str, str] = {}
    for line in lines_of(text)[:LINES_LIMIT]:
        parts = line.split(":", 2)
        if len(parts) == 3 and parts[2].startswith("/"):
            for controller in parts[1].split(","):
                paths.setdefault(controller, parts[2].removesuffix(" (deleted)"))
    return paths


def place(paths: dict[str, str]) -> CgroupPlace:
    """Each fact from the first hierarchy that knows it: the unified one, systemd's, memory's, then the others.

    On hybrid hosts a hierarchy that the runtime does not use shows the runtime's own service: a unit counts only where
    it is in the same container.
    """
    first = [paths[name] for name in ("", "name=systemd", "memory") if name in paths]
    found = [place_of_path(path) for path in dict.fromkeys([*first, *paths.values()])]
    container = next((p.container for p in found if p.container), None)
    pod = next((p.pod_uid for p in found if p.pod_uid), None)
    job = next((p.slurm_job for p in found if p.slurm_job), None)
    step = next((p.slurm_step for p in found if p.slurm_step), None)
    unit = next((p.unit for p in found if p.unit and p.container == container), None)
    return CgroupPlace(container, pod, job, step, None if pod or job else unit)


def place_of_path(path: str) -> CgroupPlace:
    """One path, outermost component first. The innermost container wins; a unit counts only inside of it.

    A pod's uid comes in its usual form; static pods have 32 digits without dashes, which stay so.
    """
    container = pod = job = step = unit = None
    slurm = False
    parts = [part for part in path.split("/") if part not in ("", "..")]
    own = False  # below here a user names what he likes
    for index, part in enumerate(parts):
        own = own or part.startswith("user@")
        if not own and (match := _POD.search(part)) and part.startswith(("pod", "kubepods", "kubelet")):
            pod = match[1].replace("_", "-")
        if name := _container(part, parts[index - 1] if index else ""):
            container, unit = name, None
        slurm = not own and (slurm or part.startswith("slurm") or part.endswith("slurmstepd.scope"))
        if slurm and (match := _JOB.fullmatch(part)):
            job, step = match[1], None
        elif job and (match := _STEP.fullmatch(part)):
            step = match[1]
        if _UNIT.fullmatch(part) and not part.startswith(("user@", "systemd-nspawn@")):
            unit = part
    if job or pod:
        unit = None  # slurmd.service, containerd.service: the one who started it, not what it is
    return CgroupPlace(container, pod, job, step, unit)


def _container(part: str, parent: str) -> str | None:
    if "conmon" in part:
        return None
    for form in (_SCOPE, _BARE, _COLON, _ECS):
        if match := form.fullmatch(part):
            return match[1]
    if match := _LXC.fullmatch(part) or _NSPAWN.fullmatch(part):
        return match[1]
    if part.startswith("systemd-nspawn@") and part.endswith(".service"):
        return part[len("systemd-nspawn@") : -len(".service")]
    return part if parent == "lxc" else None
