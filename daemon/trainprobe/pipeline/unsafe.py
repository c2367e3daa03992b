"""The warning that a crash would have lost, or did lose, everything: no complete checkpoint existed."""

from __future__ import annotations

from trainprobe.advise.text import Facts, advice
from trainprobe.language.amounts import seconds
from trainprobe.model.cause import Cause
from trainprobe.model.moment import NS, Moment
from trainprobe.model.report import Evidence, Warning_
from trainprobe.pipeline.rank import RankFold


def unsafe_checkpoints(fold: RankFold, at: Moment) -> list[Warning_]:
    """One warning for a rank, whatever the number of gaps; none where there was none."""
    safety, gaps = fold.safety, fold.safety.gaps
    now = fold.end_ns if fold.end_ns is not None else at.monotonic_ns
    lasting = now - safety.since_ns if safety.since_ns is not None else 0
    ended_so = fold.end_ns is not None and safety.since_ns is not None
    if not gaps.count and not ended_so:
        return []
    longest = max(gaps.longest_ns, lasting)
    path = safety.path if ended_so else gaps.path
    in_place = safety.in_place if ended_so else gaps.in_place
    how = "is written over in place" if in_place else "is deleted before the next one is complete"
    sync = "" if gaps.synced or not in_place else ", without fsync"
    times = gaps.count + ended_so
    text = f"for {seconds(longest / NS)} no complete checkpoint existed: {path} {how}{sync}"
    if times > 1:
        text = f"{times} times, {seconds(longest / NS)} at most, no complete checkpoint existed: {path} {how}{sync}"
    if ended_so:
        text += "; the training ended in such a moment"
    evidence = [
        Evidence("no complete checkpoint for, at most", round(longest / NS, 3), "s", fold.seen.pid, path),
        Evidence("times", times, "", fold.seen.pid),
    ]
    when = now if ended_so else gaps.at_ns
    return [
        Warning_("checkpoint_unsafe", at.wall_of(when), None, text, evidence, advice(Cause.CHECKPOINT_UNSAFE, Facts()))
    ]
