"""Saves that Python stacks show and no file does: of bytes that go elsewhere, and what reads a file again behind its
save."""

from __future__ import annotations

import re
from collections.abc import Sequence

from trainprobe.causes.base import Claim, Items, Window, claimed, take_items
from trainprobe.causes.spec import OrderedRule
from trainprobe.causes.waiting import waits_too
from trainprobe.derive.python.evaluators import in_batch, is_evaluation, is_named
from trainprobe.derive.python.serializers import saved_by
from trainprobe.derive.python.stacks import innermost
from trainprobe.model.cause import Cause, State
from trainprobe.model.cells import Leaf, Region
from trainprobe.model.message import template

SAVES_IN = template(
    "checkpoint.saves_in", "saving a checkpoint for {seconds:seconds} in {where}, which writes no file here"
)
READ_AGAIN = template("checkpoint.read_again", "reading checkpoint {path} again for {seconds:seconds}, behind its save")
READS = template("checkpoint.reads", "training thread reads {path}")
READ_SECONDS = template("checkpoint.read_seconds", "training thread reads it again, as for a hash or an upload")
SAVING_IN = template("checkpoint.saving_in", "training thread in {where}")
SAVING_SECONDS = template("checkpoint.saving_seconds", "training thread in functions that save, by its Python stacks")
_COMPUTES = (Leaf.CPU, Leaf.FILE_GAP)
_SENDS = re.compile(r"hash|sha(?:1|256|512)|md5|digest|checksum|crc32|upload|artifact|verify|archive", re.IGNORECASE)
"""In names of functions that read a whole file to hash or to send it."""


def claim_elsewhere(window: Window, left: Items) -> Claim | None:
    """Computing and copies from the GPU in functions that save, by the stacks, where the driver's process writes no
    file: the bytes go to an object store, or to a process that writes them later."""
    return _claim_shown(window, left, running=True)


def claim_sent(window: Window, left: Items) -> Claim | None:
    """Waits in such functions that show nothing else: another thread sends the bytes."""
    return _claim_shown(window, left, running=False)


def _claim_shown(window: Window, left: Items, *, running: bool) -> Claim | None:
    if any(s.key[0] == window.driver_pid for s in window.saves):
        return None
    both = waits_too(window)
    stacks = [seen.frames for seen in window.late.stacks if seen.frames and (not both or seen.running == running)]
    saving = [one for one in stacks if saved_by(one) and not is_named(one, window.loop)]
    if not saving:
        return None
    if running:
        regions = [Region.STEP, Region.NO_GRAD] if len(saving) == len(stacks) else [Region.STEP]
        stacks = [one for one in stacks if one in saving or not is_evaluation(one, window.evaluators, window.loop)]
        taken = take_items(left, states=[State.COMPUTE], leaves=_COMPUTES, regions=regions)
        taken |= take_items(left, states=[State.GPU_WAIT], regions=regions)
    else:
        taken = take_items(left, states=[State.LOCK, State.OTHER, State.SLEEP])
    taken = take_items(taken, part=len(saving) / len(stacks))
    where = innermost(saving[-1])
    if not taken or where is None:
        return None
    return claimed(window, Cause.CHECKPOINT, taken, SAVES_IN, [SAVING_IN(where=where)], SAVING_SECONDS, where=where)


def claim_read_again(window: Window, left: Items) -> Claim | None:
    """Reads outside of fetches behind the driver's own save, where a stack shows that it is hashed or sent."""
    own = [s for s in window.saves if s.tid == window.driver_tid and s.end_ns is not None]
    other = window.restored and window.restored not in {s.path for s in own}
    if not own or other or not any(_sends(seen.frames) for seen in window.late.stacks):
        return None
    taken = take_items(left, states=[State.DATA_INLINE], regions=[Region.STEP, Region.NO_GRAD])
    if not taken:
        return None
    path = max(own, key=lambda one: one.bytes).path
    return claimed(window, Cause.CHECKPOINT, taken, READ_AGAIN, [READS(path=path)], READ_SECONDS, path=path)


def _sends(stack: Sequence[str]) -> bool:
    """Whether a function on it does; a model may hash what it embeds."""
    return not in_batch(stack) and any(_SENDS.search(frame.partition(" (")[0]) for frame in stack)


RULES = (
    OrderedRule(claim_elsewhere, stall=32),
    OrderedRule(claim_read_again, stall=124),
    OrderedRule(claim_sent, stall=179),
)
