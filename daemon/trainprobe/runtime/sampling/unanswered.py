"""What is reported of processes that keep us waiting."""

from __future__ import annotations

from collections.abc import Sequence

from trainprobe.collect.source import Failed

NAMED = 3
REMEDY = (
    "end them, or abort the file system that does not answer (FUSE: echo 1 > /sys/fs/fuse/connections/NUMBER/abort)"
)


def processes(pids: Sequence[int], abandoned: Sequence[tuple[int, int, int]] = ()) -> Failed | bool:
    """``pids``: those whose reads in /proc do not come back. ``abandoned``: (helper, process, user) where the helper
    cannot be killed. True: there is none."""
    if not pids:
        return True
    what = f"reads of {_listed(pids)} do not come back: nothing more is read of them"
    what = f"{what}, nor of a user who has many such, until they do"
    if abandoned:
        helpers = _listed([helper for helper, _, _ in abandoned])
        users = ", ".join(str(uid) for uid in sorted({uid for _, _, uid in abandoned})[:NAMED])
        what = f"{what}; {helpers}, which reads them, cannot be killed: no files of user {users} are asked for"
    return Failed(what, REMEDY)


def libraries(hung: Sequence[tuple[int, int]]) -> Failed | bool:
    """``hung``: (user, process) of each library whose marks do not come about. True: there is none."""
    if not hung:
        return True
    users = ", ".join(str(uid) for uid in sorted({uid for uid, _ in hung})[:NAMED])
    what = f"marks on libraries of {_listed([pid for _, pid in hung])} do not come about"
    return Failed(f"{what}; each costs a place of its user ({users})", REMEDY)


def _listed(pids: Sequence[int]) -> str:
    more = f" and {len(pids) - NAMED} more" if len(pids) > NAMED else ""
    return f"process {', '.join(map(str, sorted(pids)[:NAMED]))}{more}"
