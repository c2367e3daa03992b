"""What the time to the first step says should be changed. It is paid at each start, requeues included."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from operator import attrgetter

from trainprobe.model.amounts import percent, seconds, size
from trainprobe.model.report import Rank, Restore, Startup
from trainprobe.text.saying import Saying, saying, word

PARTS = (
    ("imports", word("imports")), ("dataset", word("data set")), ("restore", word("restore")),
    ("workers", word("worker start")), ("compile", word("compile")), ("other", word("other")),
)  # fmt: skip
"""Fields of Startup, in the order in which they mostly come, with their words."""
WORTH, SHARE = 2.0, 0.2
"""Seconds, and part of the time to the first step, from which a part of the start is worth a change."""
SLOW = 500e6
"""Bytes a second: a local disk reads faster."""
_REMEDIES = {
    "imports": saying(
        "keep the environment on a local disk or in the image, and import what few runs need where it is used"
    ),
    "dataset": saying("write the list of files, with what is asked of each, once to an index, and read that"),
    "workers": saying(
        "start the loader before the model is built, or with fewer workers; spawned workers import again"
    ),
    "compile": saying("keep the compiler's cache where it outlives the run (TORCHINDUCTOR_CACHE_DIR)"),
}


_parts = attrgetter(*(field.name for field in fields(Startup)))


def total(startup: Startup) -> float | None:
    """Seconds to the first step; None: not seen."""
    known = [value for value in _parts(startup) if value is not None]
    return sum(known) if known else None


def restored(one: Restore) -> Saying:
    name = one.path.rpartition("/")[2]
    if one.seconds is None or one.bytes is None:
        return saying("restoring {name}: how long is not known, its reads were not seen", name=name)
    return saying(
        "restoring {name}: {spent}, {read} read ({speed}/s)",
        name=name, spent=seconds(one.seconds), read=size(one.bytes), speed=size(one.bytes / max(one.seconds, 1e-9)),
    )  # fmt: skip


def proposals(rank: Rank) -> Iterator[tuple[Saying, Saying]]:
    """What costs so much of the start that it is worth a change, with the change."""
    whole = total(rank.startup)
    if not whole:
        return
    for name, called in PARTS:
        spent = getattr(rank.startup, name) or 0.0
        if spent < max(WORTH, SHARE * whole):
            continue
        share = percent(spent / whole)
        what = saying(
            "{part}: {spent} of the time to the first step ({share})", part=called, spent=seconds(spent), share=share
        )
        if name == "restore":
            yield what, _of_restore(rank)
        elif name in _REMEDIES:
            yield what, _REMEDIES[name]


def _of_restore(rank: Rank) -> Saying:
    known = [one for one in rank.restores if one.bytes and one.seconds]
    read, spent = sum(one.bytes or 0 for one in known), sum(one.seconds or 0.0 for one in known)
    if spent and read / spent < SLOW:
        return saying("it was read with {speed}/s: copy it to a local disk first", speed=size(read / spent))
    return saying("load it with mmap=True or as safetensors, and only what this run needs of it")
