"""What is reported of processes that keep us waiting."""

from __future__ import annotations

from collections.abc import Sequence

from trainprobe.collect.source import Failed
from trainprobe.model.message import Message, template

NAMED = 3
REMEDY = template(
    "source.unanswered_remedy",
    "end them, or abort the file system that does not answer (FUSE: echo 1 > /sys/fs/fuse/connections/NUMBER/abort)",
)
LISTED = template("source.listed", "process {pids:, }{more}")
MORE = template("source.more", " and {number} more")
READS = template(
    "source.reads_hang",
    "reads of {listed} do not come back: nothing more is read of them, nor of a user who has many such, until they do"
    "{abandoned}",
)
ABANDONED = template(
    "source.reader_hangs", "; {helpers}, which reads them, cannot be killed: no files of user {users:, } are asked for"
)
ENDED = template(
    "source.reader_ended", "helpers that read process {pid} ended before they answered, and again: it is read later"
)
NOT_BEGUN = template("source.reader_not_begun", "helpers end before they read anything: no process is read meanwhile")
ENDED_REMEDY = template(
    "source.reader_ended_remedy", "see the kernel log: was there memory for them, or did somebody kill them?"
)
MARKS = template(
    "source.marks_hang", "marks on libraries of {listed} do not come about; each costs a place of its user ({users:, })"
)


def processes(
    pids: Sequence[int], abandoned: Sequence[tuple[int, int, int]] = (), died: Sequence[int] = ()
) -> Failed | bool:
    """``pids``: those whose reads in /proc do not come back. ``abandoned``: (helper, process, user) where the helper
    cannot be killed. ``died``: the process over which helpers ended of late, below 0 for none. True: there is none."""
    for pid in died:
        return Failed(NOT_BEGUN() if pid < 0 else ENDED(pid=pid), ENDED_REMEDY())
    if not pids:
        return True
    stuck = None
    if abandoned:
        helpers = _listed([helper for helper, _, _ in abandoned])
        stuck = ABANDONED(helpers=helpers, users=sorted({uid for _, _, uid in abandoned})[:NAMED])
    return Failed(READS(listed=_listed(pids), abandoned=stuck), REMEDY())


def libraries(hung: Sequence[tuple[int, int]]) -> Failed | bool:
    """``hung``: (user, process) of each library whose marks do not come about. True: there is none."""
    if not hung:
        return True
    users = sorted({uid for uid, _ in hung})[:NAMED]
    return Failed(MARKS(listed=_listed([pid for _, pid in hung]), users=users), REMEDY())


def _listed(pids: Sequence[int]) -> Message:
    more = MORE(number=len(pids) - NAMED) if len(pids) > NAMED else None
    return LISTED(pids=sorted(pids)[:NAMED], more=more)
