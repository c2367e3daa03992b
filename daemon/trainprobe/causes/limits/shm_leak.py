"""Files in /dev/shm whose makers are dead."""

from __future__ import annotations

from collections.abc import Iterator

from trainprobe.causes import groups
from trainprobe.causes.situation import Notice, Situation, whose
from trainprobe.causes.spec import CauseSpec, OrderedCheck
from trainprobe.model.cause import Cause, Kind
from trainprobe.model.message import template
from trainprobe.model.report import Evidence

SUMMARY = template(
    "shm_leak.summary",
    "{bytes:bytes} in {files:# file|# files} of /dev/shm{whose} {files:was|were} left by "
    "{processes:# dead process|# dead processes} ({pids:, })",
)
LEFT = template("shm_leak.left_by", "left in /dev/shm")
REMOVE = template(
    "shm_leak.remove",
    "rm {files: }, once fuser has found no process that uses any of them (another container may share this /dev/shm)",
)


def check(s: Situation) -> Iterator[Notice]:
    if s.shared is None or not s.shared.leaks:
        return
    leaks = sorted(s.shared.leaks, key=lambda leak: -leak.bytes)
    yield Notice(
        f"leak-{s.shared.device}",
        Cause.SHM_LEAK,
        s.now_ns,
        SUMMARY(
            bytes=s.shared.leaked_bytes,
            files=sum(leak.files for leak in leaks) + s.shared.more_files,
            whose=whose(s.shared.container),
            processes=len(leaks) + s.shared.more_leaks,
            pids=[leak.pid for leak in leaks[:5]],
        ),
        evidence=[Evidence.of(LEFT(), leak.bytes, "bytes", leak.pid, f"/dev/shm/{leak.name}") for leak in leaks[:10]],
        advice=[REMOVE(files=[f"/dev/shm/torch_{leak.pid}_*" for leak in leaks[:5]])],
        pid=s.driver,
    )


SPEC = CauseSpec(
    "shm_leak",
    kinds=frozenset({Kind.WARNING}),
    title="leaked shared memory",
    colours=("#86198f", "#f0abfc"),
    group=groups.MEMORY,
    checks=(OrderedCheck(check, 80),),
)
