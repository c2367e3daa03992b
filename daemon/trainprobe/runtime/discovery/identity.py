"""What a run is called: ``<base>-<8 hex>`` and its labels (pure)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field

from trainprobe.collect.cgroup_path import CgroupPlace
from trainprobe.collect.pod_names import PodNames
from trainprobe.model.dataclass import dataclass

try:  # Python's own: hashlib brings OpenSSL along, 4 MB in each of our processes
    from _sha256 import sha256  # type: ignore[import-not-found]
except ImportError:
    try:
        from _sha2 import sha256  # type: ignore[import-not-found]  # its name since Python 3.12
    except ImportError:
        from hashlib import sha256

BASE_LIMIT = 64
LABEL_LIMIT = 128
RANK_LIMIT = 1_000_000

NO_RESTART = "0.0"
_LOOPBACK = re.compile(r"localhost\b|127\.|::1$", re.IGNORECASE)
_UNFIT = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass(frozen=True, slots=True)
class IdentityInput:
    """What a run's name is made of."""

    script: str  # name of the training's script; "" unknown
    boot_id: str
    launcher_pid: int
    launcher_ticks: int  # its start
    uid: int = 0  # of the driver: runs of two users never have one name
    environ: Mapping[str, str] = field(default_factory=dict)  # of a driver; only the named variables
    place: CgroupPlace = field(default_factory=CgroupPlace)
    pod: PodNames = field(default_factory=PodNames)
    torchrun: str = ""  # torchrun's id from its command line, for a launcher that is looked at before its workers are
    meeting: tuple[str, str, str] = ("", "", "")  # the same for a static rendezvous: address, port, world size


def slurm_job(facts: IdentityInput) -> str:
    return _number(facts.environ.get("SLURM_JOB_ID", "")) or facts.place.slurm_job or ""


def slurm_step(facts: IdentityInput) -> str:
    """The step's number, or batch / interactive where the cgroup says so; "" unknown."""
    return _number(facts.environ.get("SLURM_STEP_ID", "")) or facts.place.slurm_step or ""


def slurm_array_task(facts: IdentityInput) -> str:
    """<array's job>_<task>, as squeue and sacct call it; "" where the job is no array's."""
    job, task = (_number(facts.environ.get(f"SLURM_ARRAY_{part}_ID", "")) for part in ("JOB", "TASK"))
    return f"{job}_{task}" if job and task else ""


def torchrun(facts: IdentityInput) -> str:
    """The id that the user gave to torchrun; its default "none" is no id."""
    given = facts.environ.get("TORCHELASTIC_RUN_ID", facts.torchrun).strip()
    return "" if given.lower() == "none" else given


def restart(environ: Mapping[str, str]) -> str:
    """Requeues and elastic restarts, both: each makes a new run."""
    requeue = _number(environ.get("SLURM_RESTART_COUNT", "")) or "0"
    elastic = _number(environ.get("TORCHELASTIC_RESTART_COUNT", "")) or "0"
    return f"{requeue}.{elastic}"


def restarts(environ: Mapping[str, str]) -> int:
    """How many attempts came before, as far as the scheduler and torchrun count them."""
    return sum(min(int(count), RANK_LIMIT) for count in restart(environ).split("."))


def meeting(facts: IdentityInput) -> tuple[str, str, str] | None:
    """(address, port, world size) of a static rendezvous that several hosts may come to; None: no, or not known."""
    given = tuple(facts.environ.get(key, "").strip() for key in ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE"))
    address, port, world = given if given[0] else facts.meeting
    if not (address and _number(port) and _number(world)) or _LOOPBACK.match(address):
        return None
    here = _int(facts.environ.get("LOCAL_WORLD_SIZE", "")) or 1
    return (address.lower(), port, world) if int(world) > here else None


def name(facts: IdentityInput) -> str:
    """The run's name: nothing goes into it that another host of the run does not know, where an id spans hosts."""
    return _named(facts, restart(facts.environ))


def job(facts: IdentityInput) -> str:
    """What all attempts have in common: the name without its restart count."""
    return _named(facts, NO_RESTART)


def _named(facts: IdentityInput, again: str) -> str:
    job, step, group = slurm_job(facts), slurm_step(facts), torchrun(facts)
    scheduler = f"{job}.{step}" if job and step else job
    base = scheduler or facts.place.pod_uid or group or facts.place.unit or facts.script or "python"
    met = meeting(facts)
    if scheduler or (group and not facts.place.pod_uid):
        key = [str(facts.uid), scheduler or group, again, facts.script]
    elif met is not None and not facts.place.pod_uid:
        key = [str(facts.uid), *met, again, facts.script]
    else:
        key = [str(facts.uid), facts.boot_id, str(facts.launcher_pid), str(facts.launcher_ticks)]
        if again != NO_RESTART:  # the same launcher starts its workers anew
            key.append(again)
    digest = sha256("\0".join(key).encode("utf-8", "surrogateescape")).hexdigest()
    return f"{sanitised(base)}-{digest[:8]}"


def labels(facts: IdentityInput) -> dict[str, str]:
    """What people call the run by; only what is known."""
    found = {
        "slurm_job": slurm_job(facts),
        "slurm_job_name": facts.environ.get("SLURM_JOB_NAME", "") if slurm_job(facts) else "",
        "slurm_array_task": slurm_array_task(facts),
        "pod_uid": facts.place.pod_uid or "",
        "namespace": facts.pod.namespace or "",
        "pod": facts.pod.pod or "",
        "container_name": facts.pod.container or "",
        "container": facts.place.container or "",
        "unit": facts.place.unit or "",
        "torchrun": torchrun(facts),
    }
    return {key: shown(value) for key, value in found.items() if value}


def rank(environ: Mapping[str, str]) -> tuple[int | None, int | None]:
    """(rank, world size): torch's own variables, else those of a SLURM step with several tasks."""
    own = _int(environ.get("RANK", "")), _int(environ.get("WORLD_SIZE", ""))
    if own[0] is not None:
        return own
    task, tasks = _int(environ.get("SLURM_PROCID", "")), _int(environ.get("SLURM_NTASKS", ""))
    if task is not None and tasks is not None and tasks > 1 and "SLURM_STEP_ID" in environ:
        return task, tasks
    return None, own[1]


def sanitised(base: str) -> str:
    """A base that is safe as a label, a file name and a URL part."""
    return _UNFIT.sub("-", base)[:BASE_LIMIT].strip("-._") or "python"


def shown(text: str) -> str:
    """A stranger's text as a label: printable, bounded."""
    return "".join(c if c.isprintable() else "?" for c in text[:LABEL_LIMIT])


def _number(text: str) -> str:
    return text if text.isascii() and text.isdecimal() and len(text) <= 20 else ""


def _int(text: str) -> int | None:
    return int(text) if _number(text) and int(text) < RANK_LIMIT else None
