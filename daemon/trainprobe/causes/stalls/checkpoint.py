"""The driver writes a checkpoint, or waits for the thread or process that does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from trainprobe.advise.frameworks import Subject
from trainprobe.causes import groups, io_limit, removing
from trainprobe.causes.advice import AdviceInput, rarer
from trainprobe.causes.base import Claim, Items, Window, at_most, excess_ns, seconds, take_items
from trainprobe.causes.spec import CauseSpec, OrderedRule
from trainprobe.causes.waiting import evaluates, user_thread
from trainprobe.causes.writing import copied_for_thread, held_back, leaves_for, optimized_ns, told_by
from trainprobe.derive.average import median
from trainprobe.derive.files.save import Save
from trainprobe.derive.files.save_spans import (
    BYTES_IN_NS,
    COPIED_IN_NS,
    SaveSpan,
    SavingSteps,
    ahead_ns,
    spans,
)
from trainprobe.derive.python.serializers import shown_by
from trainprobe.derive.steps.ledger import Item
from trainprobe.model.cause import Cause, Kind, State
from trainprobe.model.cells import Leaf, Region
from trainprobe.model.message import Message, template
from trainprobe.model.moment import NS
from trainprobe.model.report import Evidence

SUMMARY = template("checkpoint.summary", "checkpoint {path}{details}")
SIZE = template("checkpoint.size", ": {bytes:MB}{others}")
OTHERS = template("checkpoint.others", " with {files} more files")
ANOTHER = template("checkpoint.another", " with one more file")()
SYNCED = template("checkpoint.synced", ", {seconds:seconds} of it in fsync")
A_CHECKPOINT = template("checkpoint.a_checkpoint", "a checkpoint")
WRITES = template("checkpoint.writes", "training thread writes {path}")
BESIDE = template("checkpoint.beside", "waiting for {who} of the training, which writes checkpoint {path}")
HANDED = template("checkpoint.handed", "copying what {who} of the training writes to checkpoint {path}")
COPIES = template("checkpoint.copies", "training thread copies for {who}")
STAGED = template("checkpoint.staged", "training thread copying for its thread that saves")
THREAD = template("checkpoint.thread", "thread {tid}")
PROCESS = template("checkpoint.process", "process {pid}")
WAITS_FOR = template("checkpoint.waits_for", "training thread waits for {who}")
WHO_WRITES = template("checkpoint.who_writes", "{who} writes {path}")
GOES_ON = template(
    "checkpoint.goes_on", "waiting for {who} of the training, which wrote checkpoint {path} and goes on in {frame}"
)
WHO_WROTE = template("checkpoint.who_wrote", "{who} wrote {path}")

IN_CALLS = template("checkpoint.in_calls", "training thread in the checkpoint's system calls and the gaps between them")
SERIALIZING = template(
    "checkpoint.serializing", "training thread on the CPU before the first of them, and in longer gaps"
)
COPIED = template("checkpoint.copied", "of it the training thread waited for copies from the GPU")
SAVED_BESIDE = template("checkpoint.saved_beside", "training thread waited for the one that saves")
SAVED_IN_PROCESS = template("checkpoint.saved_in_process", "training thread waited for the process that saves")
BYTES = template("checkpoint.bytes", "bytes written")
WRITE_SECONDS = template("checkpoint.write_seconds", "time in write")
FSYNC_SECONDS = template("checkpoint.fsync_seconds", "time in fsync")
RENAME_SECONDS = template("checkpoint.rename_seconds", "time in rename")
OPEN_SECONDS = template("checkpoint.open_seconds", "time in open")
SERIALIZE_SECONDS = template("checkpoint.serialize_seconds", "time in serialising")
RATE = template("checkpoint.rate", "rate from open to close")
IN_EACH = template(
    "checkpoint.in_each", "checkpoint {path}: {saves:# save|# saves} in ordinary steps{every}, {each:seconds} each"
)
EVERY = template("checkpoint.every", ", one every {steps} steps")
EACH_STEP = template("checkpoint.each_step", ", one in each step")
WITHOUT_STEPS = template("checkpoint.without_steps", "checkpoint {path}: {saves} saves{every}, {each:seconds} each")
ONE_SAVE = template("checkpoint.one_save", "checkpoint {path}: one save of {seconds:seconds}")
EVERY_SECONDS = template("checkpoint.every_seconds", ", one every {seconds:seconds}")
IN_SAVES = template(
    "checkpoint.in_saves", "training thread in its saves, from the open of a file to the last call on it"
)
ORDINARY_SAVES = template("checkpoint.ordinary_saves", "saves in ordinary steps")
_COMPUTES = (Leaf.CPU, Leaf.FILE_GAP)
_COVER = 0.8
"""A wait is for somebody else's save when the save covers so much of it."""
UNUSUAL = 2.0
"""Times as long as usual a save may be serialised before its first open, where no stack shows it."""
_WORTH_NS = NS // 100
"""A part of a save that took less is not told by itself."""


def claim(window: Window, left: Items) -> Claim | None:
    """State `checkpoint`, the CPU that goes into the driver's saves, and its waits for saves by its other threads and
    processes."""
    taken = take_items(left, states=[State.CHECKPOINT])
    if not taken and not window.saves:
        return None
    others = [s for s in window.saves if s.tid != window.driver_tid]
    waits = take_items(
        left,
        states=[State.LOCK, State.COLLECTIVE, State.OTHER, State.SLEEP, State.DATA_WAIT],
        leaves=leaves_for(window, others),
        regions=[region for region in Region if region != Region.FETCH],  # that is for a batch, whatever workers write
    )
    staged = copied_for_thread(window, left)
    waits = {item: ns - staged.get(item, 0.0) for item, ns in waits.items()}
    waited = sum(waits.values())
    if others and waited > 0:
        covered = sum(_overlap(s, window) for s in others)
        if covered >= _COVER * waited and waited > 0.25 * excess_ns(window):
            if waited > sum(taken.values()):  # it may save beside the other one, as orbax does
                computed, _ = _serialized(window, left, sum(taken.values()) + waited, {})
                return _for_another(window, {**taken, **waits, **computed}, others, staged)
            taken, waits = {**taken, **waits}, {}
    if staged:
        return _for_another(window, taken, others, staged)
    copied = _copied(window, left, called := sum(taken.values()))
    copied_ns = sum(copied.values())
    serialized, waits = _serialized(window, left, called, waits if others else {}, copied_ns)
    called += copied_ns
    taken = {**taken, **copied, **serialized, **waits}
    if not taken:
        return None
    own = [s for s in window.saves if s.tid == window.driver_tid] or window.saves
    own = sorted(own, key=lambda s: -(s.write_ns + s.sync_ns + s.gap_ns + s.meta_ns))
    evidence = [Evidence.of(IN_CALLS(), seconds(called), "s", window.driver_pid)]
    if (spent := sum(serialized.values())) > _WORTH_NS:
        evidence.append(Evidence.of(SERIALIZING(), seconds(spent), "s", window.driver_pid))
    if copied:
        evidence.append(Evidence.of(COPIED(), seconds(copied_ns), "s", window.driver_pid))
    for save in own[:3]:
        evidence += _of(save, window)
    removing_ns, removals = removing.found(window)
    evidence += removals
    if not own and removing_ns > 0.5 * sum(taken.values()):
        return removing.alone(window, taken, evidence)
    path = told_by(own) if own else A_CHECKPOINT()
    more = len({s.path for s in own}) - 1 + sum(s.before.files for s in own if s.before)
    size = sum(s.sums.bytes for s in own)
    details = [SIZE(bytes=size, others=OTHERS(files=more) if more > 1 else ANOTHER if more else None)] if size else []
    sync = sum(s.sync_ns for s in own)
    if sync > 0.5 * sum(taken.values()):
        details.append(SYNCED(seconds=seconds(sync)))
    if removing_ns > 0.25 * sum(taken.values()):
        details.append(removing.REMOVED(seconds=seconds(removing_ns)))
    limit, figures = io_limit.found(window, own[0].key[1] if own else 0, writing=True)
    chain = [WRITES(path=path), *held_back(window), *limit]
    return Claim(Cause.CHECKPOINT, taken, SUMMARY(path=path, details=details), chain, [*evidence, *figures])


def _serialized(
    window: Window, left: Items, called: float, waits: Items, copied: float = 0.0
) -> tuple[dict[Item, float], dict[Item, float]]:
    """The driver's CPU beyond an ordinary step's that goes into the bytes of its saves: between their calls, and
    directly before the first file is opened; and its ``waits`` for its threads meanwhile. ``called``: ns in the
    calls; ``copied``: ns in waits for copies from the GPU, before the first file is opened or between the calls."""
    own = _own_spans(window)
    if not own:
        return {}, {}
    spent = take_items(left, states=[State.COMPUTE], leaves=_COMPUTES, regions=[Region.STEP])
    quiet = take_items(left, states=[State.COMPUTE], leaves=_COMPUTES, regions=[Region.NO_GRAD])
    computes = _computes(window, left)
    usual, first = window.usual_ahead, own[0]
    between = _between_calls_ns(window, own, called)
    inside = max(0.0, between - copied)
    per_byte = 1 / BYTES_IN_NS if usual is None else min(1 / BYTES_IN_NS, UNUSUAL * usual)
    if computes:  # it computes before a save, too, and what is not a call of the save may be a wait for a processor
        if usual is None:  # as it made the files ready that came behind the first
            usual, first = own[0].per_byte, replace(first, ready=first.ready - first.between_bytes)
        per_byte = usual or 0.0
        inside -= sum(take_items(left, states=[State.RUNQUEUE], regions=[Region.STEP]).values())
    since, stacks, known = optimized_ns(window), window.late.stacks, usual is not None
    most = ahead_ns(replace(first, ready=first.bytes), since, stacks, measured=known)
    before = most - max(0.0, copied - between)
    ahead = max(0.0, min(before, ahead_ns(first, since, stacks, per_byte, measured=known)))
    room = max(0.0, inside) + ahead
    taken = at_most(spent, room)
    room = (inside if computes and not known else room) - sum(taken.values())
    computed = at_most(quiet, room)
    return {**taken, **computed}, at_most(waits, room - sum(computed.values()))


def _computes(window: Window, left: Items) -> bool:
    """Whether the driver computes for other reasons before its save: it evaluates, or gradients are off, and not all
    stacks show the save: full states of sharded models are put together without gradients."""
    spent = take_items(left, states=[State.COMPUTE], leaves=_COMPUTES, regions=[Region.STEP])
    quiet = take_items(left, states=[State.COMPUTE], leaves=_COMPUTES, regions=[Region.NO_GRAD])
    return evaluates(window) or (sum(quiet.values()) > sum(spent.values()) and not _is_shown_before(window))


def _is_shown_before(window: Window) -> bool:
    """Whether all stacks before the first file of the driver's save is opened show it."""
    first = min((s.start_ns for s in window.saves if s.tid == window.driver_tid), default=0)
    before = [seen.frames for seen in window.late.stacks if seen.frames and seen.at_ns < first]
    return bool(before) and all(map(shown_by, before))


def _between_calls_ns(window: Window, own: Sequence[SaveSpan], called: float) -> float:
    """How long the driver's saves were in none of their calls. Of the ``called`` ns some may come after them: an older
    save is removed. Of a file that is open the record lacks the call in flight."""
    if not any(s.end_ns is None for s in window.saves if s.tid == window.driver_tid):
        called = min(called, sum(one.calls_ns for one in own))
    return max(0.0, sum(one.end_ns - one.start_ns for one in own) - called)


def _own_spans(window: Window) -> list[SaveSpan]:
    """The driver's own saves. One whose other files its threads write, into the same directory (orbax), is one span
    until the last of these is begun: the driver makes their bytes."""
    mine = [s for s in window.saves if s.tid == window.driver_tid]
    own = spans(mine, window.start_ns, window.end_ns, until_ns=_saves_until(window))
    if not own:
        return []
    first = own[0]
    places = tuple(s.path[: s.path.rfind("/") + 1] for s in mine if first.start_ns <= s.start_ns and "/" in s.path)
    beside = (s.start_ns for s in window.saves if s.tid != window.driver_tid and s.path.startswith(places))
    last = max((at_ns for at_ns in beside if first.start_ns < at_ns < window.end_ns), default=0)
    if last <= first.end_ns:
        return own
    later = [one for one in own if one.start_ns > last]
    return [replace(first, end_ns=max([last, *(one.end_ns for one in own if one.start_ns <= last)])), *later]


def _saves_until(window: Window) -> int:
    """When the save that has a file of the driver's open went on, at least; 0: nothing shows that. Its threads may
    write the other files, as orbax has it."""
    if shown_by(window.stack):
        return window.end_ns
    threads = (s for s in window.saves if s.tid != window.driver_tid and s.key[0] == window.driver_pid)
    return max((window.end_ns if s.end_ns is None else s.end_ns for s in threads), default=0)


def in_ordinary_steps(window: Window, saves: SavingSteps, serializing: Items) -> Claim:
    """State `checkpoint` of all ordinary steps, and what else of them their saves take."""
    calls = take_items(window.excess, states=[State.CHECKPOINT])
    taken = calls | dict(serializing)
    evidence = [
        Evidence.of(IN_CALLS(), seconds(sum(calls.values())), "s", window.driver_pid),
        Evidence.of(ORDINARY_SAVES(), saves.ordinary, "", window.driver_pid),
    ]
    path, steps = saves.main or A_CHECKPOINT(), saves.every
    every = EACH_STEP() if steps == 1 else EVERY(steps=steps) if steps else None
    each = seconds(sum(taken.values()) / max(1, saves.ordinary))
    summary = IN_EACH(path=path, each=each, every=every, saves=saves.ordinary)
    return Claim(Cause.CHECKPOINT, taken, summary, [WRITES(path=path)], evidence)


def without_steps(saves: Sequence[Save], ns: float, blocked: float, pid: int) -> Claim:
    """``ns`` of a driver's saves, where nothing tells which steps they lie in; they took ``blocked`` ns in all, with
    what is told as stalls."""
    own = spans(saves, 0, max(save.start_ns for save in saves) + 1)
    path, count, spent = own[-1].main, len(own), seconds(blocked)
    period = median(b.start_ns - a.start_ns for a, b in pairwise(own)) / NS if count > 2 else 0.0
    every = EVERY_SECONDS(seconds=period) if period else None
    summary = (
        WITHOUT_STEPS(path=path, saves=count, every=every, each=spent / count)
        if count > 1
        else ONE_SAVE(path=path, seconds=spent)
    )
    taken = {(State.CHECKPOINT, Region.STEP, Leaf.FILE_WRITE): ns}
    return Claim(
        Cause.CHECKPOINT, taken, summary, [WRITES(path=path)], [Evidence.of(IN_SAVES(), spent, "s", pid, path)]
    )


def _for_another(window: Window, waits: Items, saves: Sequence[Save], staged: Items) -> Claim:
    """The driver waits for its thread or process that saves: to end, or for the interpreter that the thread holds; or
    copies what it hands over (``staged``)."""
    saves = sorted(saves, key=lambda one: (-one.bytes, -_overlap(one, window)))  # of a small one the end is known late
    first = saves[0]
    who = THREAD(tid=first.tid) if first.key[0] == window.driver_pid else PROCESS(pid=first.key[0])
    waited = SAVED_BESIDE if first.key[0] == window.driver_pid else SAVED_IN_PROCESS
    spent = ((waited, sum(waits.values())), (STAGED, sum(staged.values())))
    evidence = [Evidence.of(what(), seconds(ns), "s", window.driver_pid) for what, ns in spent if ns > 0]
    evidence += (found for save in saves[:3] for found in _of(save, window))
    copies = spent[1][1] > spent[0][1]
    return Claim(
        Cause.CHECKPOINT,
        {item: waits.get(item, 0.0) + staged.get(item, 0.0) for item in {**waits, **staged}},
        (HANDED if copies else BESIDE)(who=who, path=first.path),
        [(COPIES if copies else WAITS_FOR)(who=who), WHO_WRITES(who=who, path=first.path)],
        evidence,
    )


def claim_beside(window: Window, left: Items) -> Claim | None:
    """Waits at locks of ordinary steps beside which a thread of the driver's process saved, beyond the other steps': it
    holds the interpreter's lock."""
    if (found := window.beside_saves) is None:
        return None
    waits = {item: min(ns, found.items[item]) for item, ns in left.items() if item in found.items}
    return _for_another(window, waits, found.saves, {}) if waits else None


def claim_saver(window: Window, left: Items) -> Claim | None:
    """State `lock`, where the one other thread that runs the user's own code is one that wrote a checkpoint: it may
    upload the file, or sleep."""
    waits = take_items(left, states=[State.LOCK])
    frame, own_tid = user_thread(window)
    tid = next((one.tid for one in window.late.beside.values() if one.own_tid == own_tid), 0)
    if not waits or tid not in window.savers:
        return None
    who, path = THREAD(tid=tid), window.savers[tid]
    return Claim(
        Cause.CHECKPOINT,
        waits,
        GOES_ON(who=who, path=path, frame=frame),
        [WAITS_FOR(who=who), WHO_WROTE(who=who, path=path)],
        [Evidence.of(SAVED_BESIDE(), seconds(sum(waits.values())), "s", window.driver_pid)],
    )


def _copied(window: Window, left: Items, written: float) -> dict[Item, float]:
    """Waits for the GPU between the calls of the driver's own save, and directly before the first file is opened, for
    as long as copies of its bytes may take: its tensors come from there."""
    waits = take_items(left, states=[State.GPU_WAIT])
    own = _own_spans(window)
    if not own:  # it began before the window
        mine = sum(_overlap(s, window) for s in window.saves if s.tid == window.driver_tid)
        return at_most(waits, mine - written)
    between = _between_calls_ns(window, own, written)
    if _computes(window, left):
        return at_most(waits, between)
    first = replace(own[0], ready=own[0].bytes)
    ahead = ahead_ns(first, optimized_ns(window), window.late.stacks, 1 / COPIED_IN_NS)
    return at_most(waits, between + min(ahead, own[0].bytes / COPIED_IN_NS))


def _overlap(save: Save, window: Window) -> int:
    end = window.end_ns if save.end_ns is None else min(save.end_ns, window.end_ns)
    return max(0, end - max(save.first_ns, window.start_ns))


def _of(save: Save, window: Window) -> list[Evidence]:
    spent = (save.end_ns or window.end_ns) - save.start_ns
    rate = save.bytes / (spent / NS) if spent > 0 else 0.0
    out = []
    if save.bytes:  # of a small or a new file they are told when it is closed
        out.append(Evidence.of(BYTES(), save.bytes, "bytes", save.key[0], save.path))
    for what, ns in (
        (WRITE_SECONDS, save.write_ns),
        (FSYNC_SECONDS, save.sync_ns),
        (RENAME_SECONDS, save.rename_ns),
        (OPEN_SECONDS, save.meta_ns),
        (SERIALIZE_SECONDS, save.gap_ns),
    ):
        if ns > _WORTH_NS:
            out.append(Evidence.of(what(), seconds(ns), "s", save.key[0], save.path))
    if rate:
        out.append(Evidence.of(RATE(), round(rate / 1e6, 1), "MB/s", save.key[0], save.path))
    return out


SAVE_RARER = template(
    "checkpoint.advice.save_rarer",
    "save every {better} steps instead of every {every:step|#}{setting}: saving then takes 1 % of {run}, not "
    "{share:percent}",
)
WAIT_LATER = template(
    "checkpoint.advice.wait_later",
    "the save runs beside the steps already: wait for it later, or save from another process (a thread holds the "
    "interpreter while it serialises)",
)
WAIT_AT_NEXT = template(
    "checkpoint.advice.wait_at_next",
    "another process saves already: wait for it before the next save, not right behind its start",
)
SAVE_BESIDE = template(
    "checkpoint.advice.save_beside",
    "save from another process or thread (asynchronously), so that the steps go on while it is written",
)
FASTER_DISK = template(
    "checkpoint.advice.faster_disk",
    "{sync:percent} of a save is fsync: write to a faster local disk; another process copies it to a temporary name "
    "beside its goal and renames it",
)
LESS_STATE = template(
    "checkpoint.advice.less_state",
    "where they hold the optimizer's state: leave it out of the saves that nobody resumes from",
)


def _advice(f: AdviceInput) -> list[Message]:
    sync, beside = f.part(FSYNC_SECONDS, IN_CALLS), f.saw(SAVED_BESIDE) or f.saw(STAGED)
    later = WAIT_LATER() if beside else WAIT_AT_NEXT() if f.saw(SAVED_IN_PROCESS) else SAVE_BESIDE()
    if f.part(removing.SECONDS, IN_CALLS) > 0.5:
        return [removing.BESIDE(), *rarer(f, SAVE_RARER, Subject.SAVE)]
    return [
        *([io_limit.RAISE()] if io_limit.is_reached(f) else []),
        *rarer(f, SAVE_RARER, Subject.SAVE),
        *([] if f.apart == 0 else [later]),  # no step goes on then
        FASTER_DISK(sync=sync) if sync > 0.5 else LESS_STATE(),
    ]


SPEC = CauseSpec(
    "checkpoint",
    kinds=frozenset({Kind.STALL, Kind.BOTTLENECK}),
    title="saving a checkpoint",
    colours=("#c2570c", "#ff9f45"),
    group=groups.CHECKPOINT,
    rules=(OrderedRule(claim, stall=30), OrderedRule(claim_saver, stall=177), OrderedRule(claim_beside, ordinary=15)),
    advice=_advice,
)
