"""The warning that a crash would have lost, or did lose, everything: no complete checkpoint existed."""

from __future__ import annotations

from trainprobe.causes import groups
from trainprobe.causes.spec import CauseSpec
from trainprobe.derive.files.safety import Safety
from trainprobe.model.cause import Kind
from trainprobe.model.message import template
from trainprobe.model.moment import NS, Moment
from trainprobe.model.report import Evidence, Warning_

SUMMARY = template("checkpoint_unsafe.summary", "{gap} no complete checkpoint existed: {path} {how}{sync}{ended}")
ONCE = template("checkpoint_unsafe.once", "for {longest:seconds}")
TIMES = template("checkpoint_unsafe.times", "{times} times, {longest:seconds} at most,")
IN_PLACE = template("checkpoint_unsafe.in_place", "is written over in place")
DELETED = template("checkpoint_unsafe.deleted", "is deleted before the next one is complete")
NO_FSYNC = template("checkpoint_unsafe.no_fsync", ", without fsync")
ENDED = template("checkpoint_unsafe.ended", "; the training ended in such a moment")
LONGEST = template("checkpoint_unsafe.longest", "no complete checkpoint for, at most")
TIMES_SEEN = template("checkpoint_unsafe.times_seen", "times")


def warnings(safety: Safety, end_ns: int | None, at: Moment, pid: int) -> list[Warning_]:
    """One warning for a rank, whatever the number of gaps; none where there was none. ``end_ns``: of the rank."""
    gaps = safety.gaps
    now = end_ns if end_ns is not None else at.monotonic_ns
    lasting = now - safety.since_ns if safety.since_ns is not None else 0
    ended_so = end_ns is not None and safety.since_ns is not None
    if not gaps.count and not ended_so:
        return []
    longest = max(gaps.longest_ns, lasting)
    path = safety.path if ended_so else gaps.path
    in_place = safety.in_place if ended_so else gaps.in_place
    times = gaps.count + ended_so
    summary = SUMMARY(
        gap=TIMES(times=times, longest=longest / NS) if times > 1 else ONCE(longest=longest / NS),
        path=path,
        how=IN_PLACE() if in_place else DELETED(),
        sync=None if gaps.synced or not in_place else NO_FSYNC(),
        ended=ENDED() if ended_so else None,
    )
    evidence = [
        Evidence.of(LONGEST(), round(longest / NS, 3), "s", pid, path),
        Evidence.of(TIMES_SEEN(), times, "", pid),
    ]
    when = now if ended_so else gaps.at_ns
    return [Warning_.of(summary, "checkpoint_unsafe", at.wall_of(when), None, evidence, [WRITE_THEN_RENAME()])]


WRITE_THEN_RENAME = template(
    "checkpoint_unsafe.advice.write_then_rename",
    "write to a temporary name in the same directory, fsync, then rename over the old one; keep the last two",
)


SPEC = CauseSpec(
    "checkpoint_unsafe",
    kinds=frozenset({Kind.WARNING}),
    title="no complete checkpoint for a while",
    colours=("#9a3412", "#fdba74"),
    group=groups.CHECKPOINT,
)
