"""Files in /dev/shm whose makers are dead."""

from __future__ import annotations

from collections.abc import Iterator

from trainprobe.detect.limits.base import Notice, Situation, size
from trainprobe.model.cause import Cause
from trainprobe.model.report import Evidence


def told(s: Situation) -> Iterator[Notice]:
    """One notice while there are any."""
    if s.shared is None or not s.shared.leaks:
        return
    leaks = sorted(s.shared.leaks, key=lambda leak: -leak.bytes)
    total, files = sum(leak.bytes for leak in leaks), sum(leak.files for leak in leaks)
    whose = "" if s.shared.container == "host" else f" of container {s.shared.container[:12]}"
    yield Notice(
        f"leak-{s.shared.device}",
        Cause.SHM_LEAK,
        s.now_ns,
        f"{size(total)} in {files} files of /dev/shm{whose} were left by {len(leaks)} dead processes "
        f"({', '.join(str(leak.pid) for leak in leaks[:5])})",
        evidence=[
            Evidence("left in /dev/shm", leak.bytes, "bytes", leak.pid, f"/dev/shm/{leak.name}") for leak in leaks[:10]
        ],
        advice=[f"rm {' '.join(f'/dev/shm/torch_{leak.pid}_*' for leak in leaks[:5])}"],
        pid=s.driver,
    )
