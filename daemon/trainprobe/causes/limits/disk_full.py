"""A file system is full, or has no room for the next checkpoint."""

from __future__ import annotations

from collections.abc import Iterator

from trainprobe.causes import groups
from trainprobe.causes.situation import FAILED, Notice, Situation
from trainprobe.causes.spec import CauseSpec, OrderedCheck
from trainprobe.derive.files.save_numbers import files_of_latest
from trainprobe.model.cause import Cause, Kind
from trainprobe.model.event import CallFailed
from trainprobe.model.message import template
from trainprobe.model.moment import NS
from trainprobe.model.report import Evidence
from trainprobe.model.sample import SpaceSample

HAPPENED = template("disk_full.happened", "{call} on {path} failed with {error} ({why}){cut}")
CUT_OFF = template("disk_full.cut_off", " after {bytes:bytes}: do not resume from this file")
QUOTA = template("disk_full.quota", "its quota is used up")
FULL = template("disk_full.full", "its file system is full")
FULL_MEMORY = template("disk_full.full_memory", "its file system is full: a tmpfs, which lies in memory")
NO_INODE = template("disk_full.no_inode", "its file system has no inode left")
COMING = template(
    "disk_full.coming", "the next checkpoint will not fit: the last one took {bytes:bytes}, {left} are left in {path}"
)
INODES = template("disk_full.inodes", "{inodes:# inode|# inodes}")
BYTES = template("disk_full.bytes", "{bytes:bytes}")
WRITTEN = template("disk_full.written", "written before it failed")
LAST = template("disk_full.last", "the last checkpoint")
BYTES_LEFT = template("disk_full.bytes_left", "bytes left on the file system")
INODES_LEFT = template("disk_full.inodes_left", "inodes left on the file system")
RESUME_BEFORE = template(
    "disk_full.resume_before",
    "free room or write elsewhere, remove the cut-off file, resume from the checkpoint before it",
)
WRITE_ELSEWHERE = template("disk_full.write_elsewhere", "free room, or write elsewhere (TMPDIR for temporary files)")
ENLARGE = template("disk_full.enlarge", "a larger tmpfs: size= of its mount, sizeLimit of the emptyDir")
KEEP_FEWER = template(
    "disk_full.keep_fewer", "keep fewer checkpoints (transformers: save_total_limit, Lightning: save_top_k)"
)
FREE_ROOM = template(
    "disk_full.free_room",
    "free room before the next save, or keep fewer checkpoints (transformers: save_total_limit, Lightning: save_top_k)",
)
ERRORS = {28: "ENOSPC", 122: "EDQUOT"}
FEW_FILES = 4  # a checkpoint may be several files


def check(s: Situation) -> Iterator[Notice]:
    """One notice per file that was cut off, one while the next checkpoint does not fit."""
    failed: dict[str, CallFailed] = {}
    for failure in s.failures:
        if failure.errno in ERRORS and not s.on_shm(failure):
            failed.setdefault(failure.path or f"inode {failure.ino}", failure)
    for path, failure in failed.items():
        yield _happened(s, path, failure)
    if not failed:
        yield from _coming(s)


def _happened(s: Situation, path: str, failure: CallFailed) -> Notice:
    name = ERRORS[failure.errno]
    save = next((save for save, _ in reversed(s.saves) if failure.ino and save.key[2] == failure.ino), None)
    evidence = [Evidence.of(FAILED(call=failure.call), name, "", failure.pid, path)]
    cut = None
    if save is not None:
        evidence.append(Evidence.of(WRITTEN(), save.bytes, "bytes", failure.pid, path))
        cut = CUT_OFF(bytes=save.bytes)
    space = _space(s, path)
    why = QUOTA() if name == "EDQUOT" else FULL_MEMORY() if failure.tmpfs else FULL()
    if space is not None:
        evidence += _room(space)
        if space.files_free == 0 and space.available_bytes > 0:
            why = NO_INODE()
    return Notice(
        f"disk-{path}",
        Cause.DISK_FULL,
        failure.at_ns,
        HAPPENED(call=failure.call, path=path, error=name, why=why, cut=cut),
        happened=True,
        settles_ns=5 * NS,  # how much was written is told when the file is closed
        evidence=evidence,
        advice=[
            *([ENLARGE()] if failure.tmpfs else []),
            *([RESUME_BEFORE(), KEEP_FEWER()] if save else [WRITE_ELSEWHERE()]),
        ],
        pid=failure.pid,
    )


def _coming(s: Situation) -> Iterator[Notice]:
    latest = files_of_latest(s.saves)
    if not latest:
        return
    largest, needed = max(latest, key=lambda save: save.bytes), sum(save.sums.bytes for save in latest)
    space = _space(s, largest.path)
    if space is None:
        return
    short_of_files = space.files_free is not None and space.files_free < FEW_FILES
    if space.available_bytes >= needed and not short_of_files:
        return
    evidence = [Evidence.of(LAST(), needed, "bytes", None, largest.path), *_room(space)]
    left = INODES(inodes=space.files_free) if short_of_files else BYTES(bytes=space.available_bytes)
    yield Notice(
        f"space-{space.path}",
        Cause.DISK_FULL,
        s.now_ns,
        COMING(bytes=needed, left=left, path=space.path),
        evidence=evidence,
        advice=[FREE_ROOM()],
        pid=s.driver,
    )


def _space(s: Situation, path: str) -> SpaceSample | None:
    return s.spaces.get(path.rpartition("/")[0])


def _room(space: SpaceSample) -> list[Evidence]:
    found = [Evidence.of(BYTES_LEFT(), space.available_bytes, "bytes", None, space.path)]
    if space.files_free is not None:
        found.append(Evidence.of(INODES_LEFT(), space.files_free, "", None, space.path))
    return found


SPEC = CauseSpec(
    "disk_full",
    kinds=frozenset({Kind.EVENT, Kind.WARNING}),
    title="disk full",
    colours=("#b91c1c", "#f87171"),
    group=groups.CHECKPOINT,
    checks=(OrderedCheck(check, 60),),
)
