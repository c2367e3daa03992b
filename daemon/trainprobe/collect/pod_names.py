"""What Kubernetes calls a pod and its container, from the names of the kubelet's log files: no API, no token.

The kubelet makes /var/log/pods/<namespace>_<pod>_<uid>/<container>/ before a container starts, and
/var/log/containers/<pod>_<namespace>_<container>-<id>.log as soon as it has.
"""

from __future__ import annotations

import contextlib
import os
from itertools import islice

from trainprobe.model.dataclass import dataclass

LOGS = "/var/log"
ENTRIES_LIMIT = 10_000


@dataclass(frozen=True, slots=True)
class PodNames:
    """None: not known."""

    namespace: str | None = None
    pod: str | None = None
    container: str | None = None


def pod_names(uid: str | None, container_id: str | None, logs: str = LOGS) -> PodNames:
    """Of the pod ``uid`` and its container; of a pod with several containers the latter by its id only."""
    folder = next((name for name in _names(f"{logs}/pods") if uid and name.endswith(f"_{uid}")), "")
    parts = folder.split("_")
    if len(parts) != 3:
        return PodNames()
    end = f"-{container_id}.log"
    linked = next((name for name in _names(f"{logs}/containers") if container_id and name.endswith(end)), "")
    begin = f"{parts[1]}_{parts[0]}_"
    if linked.startswith(begin):
        return PodNames(parts[0], parts[1], linked[len(begin) : -len(end)])
    containers = list(islice(_names(f"{logs}/pods/{folder}"), 2))
    return PodNames(parts[0], parts[1], containers[0] if len(containers) == 1 else None)


def _names(directory: str) -> list[str]:
    with contextlib.suppress(OSError), os.scandir(directory) as entries:
        return [entry.name for entry in islice(entries, ENTRIES_LIMIT)]
    return []
