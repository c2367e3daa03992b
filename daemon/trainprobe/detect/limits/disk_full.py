"""A file system is full, or has no room for the next checkpoint."""

from __future__ import annotations

from collections.abc import Iterator

from trainprobe.detect.limits.base import Notice, Situation, size
from trainprobe.model.cause import Cause
from trainprobe.model.event import CallFailed
from trainprobe.model.moment import NS
from trainprobe.model.report import Evidence
from trainprobe.model.sample import SpaceSample

ERRORS = {28: "ENOSPC", 122: "EDQUOT"}
FEW_FILES = 4  # a checkpoint may be several files


def told(s: Situation) -> Iterator[Notice]:
    """One notice per file that was cut off, one while the next checkpoint does not fit."""
    failed: dict[str, CallFailed] = {}
    for failure in s.failures:
        if failure.errno in ERRORS and not failure.tmpfs:
            failed.setdefault(failure.path or f"inode {failure.ino}", failure)
    for path, failure in failed.items():
        yield _happened(s, path, failure)
    if not failed:
        yield from _coming(s)


def _happened(s: Situation, path: str, failure: CallFailed) -> Notice:
    name = ERRORS[failure.errno]
    save = next((save for save in reversed(s.saves) if failure.ino and save.key[2] == failure.ino), None)
    evidence = [Evidence(f"{failure.call} failed", name, "", failure.pid, path)]
    cut = ""
    if save is not None:
        evidence.append(Evidence("written before it failed", save.bytes, "bytes", failure.pid, path))
        cut = f" after {size(save.bytes)}: do not resume from this file"
    space = _space(s, path)
    why = "its quota is used up" if name == "EDQUOT" else "its file system is full"
    if space is not None:
        evidence += _room(space)
        if space.files_free == 0 and space.available_bytes > 0:
            why = "its file system has no inode left"
    return Notice(
        f"disk-{path}",
        Cause.DISK_FULL,
        failure.at_ns,
        f"{failure.call} on {path} failed with {name} ({why}){cut}",
        happened=True,
        settles_ns=5 * NS,  # how much was written is told when the file is closed
        evidence=evidence,
        advice=[
            "free room or write elsewhere, remove the cut-off file, resume from the checkpoint before it",
            "keep fewer checkpoints (save_total_limit, keep_last_n)",
        ],
        pid=failure.pid,
    )


def _coming(s: Situation) -> Iterator[Notice]:
    done = [save for save in s.saves if save.outcome == "complete" and save.end_ns is not None]
    if not done:
        return
    latest = max(done, key=lambda save: save.end_ns or 0)
    space = _space(s, latest.path)
    if space is None:
        return
    short_of_files = space.files_free is not None and space.files_free < FEW_FILES
    if space.available_bytes >= latest.bytes and not short_of_files:
        return
    evidence = [Evidence("the last checkpoint", latest.bytes, "bytes", None, latest.path), *_room(space)]
    left = f"{space.files_free} inodes" if short_of_files else size(space.available_bytes)
    yield Notice(
        f"space-{space.path}",
        Cause.DISK_FULL,
        s.now_ns,
        f"the next checkpoint will not fit: the last one took {size(latest.bytes)}, {left} are left in {space.path}",
        evidence=evidence,
        advice=["free room before the next save, or keep fewer checkpoints (save_total_limit, keep_last_n)"],
        pid=s.driver,
    )


def _space(s: Situation, path: str) -> SpaceSample | None:
    return s.spaces.get(path.rpartition("/")[0])


def _room(space: SpaceSample) -> list[Evidence]:
    found = [Evidence("bytes left on the file system", space.available_bytes, "bytes", None, space.path)]
    if space.files_free is not None:
        found.append(Evidence("inodes left on the file system", space.files_free, "", None, space.path))
    return found
