"""The driver, or a worker of it, waits for a lock on a file: in flock(2) or fcntl(2), or in a loop that looks at it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from trainprobe.causes import groups, waiting
from trainprobe.causes.advice import AdviceInput
from trainprobe.causes.base import Claim, Items, Window, pool_ns, seconds, take_items
from trainprobe.causes.spec import LINE_AND, CauseSpec, OrderedRule
from trainprobe.derive.python.stacks import innermost
from trainprobe.model.cause import Cause, Kind, State
from trainprobe.model.cells import Leaf
from trainprobe.model.message import Message, template
from trainprobe.model.report import Evidence
from trainprobe.model.sample import HeldLock, Inspection

SUMMARY = template("lock_wait.summary", "waited {seconds:seconds} for the lock {path}{holder}")
NO_PATH = template("lock_wait.no_path", "waited {seconds:seconds} for a lock file, in {where}")
HELD = template("lock_wait.held", ", which process {pid}{name} holds")
HELD_BY_OWN = template("lock_wait.held_by_own", ", which process {pid}{name} of this training holds")
NAME = template("lock_wait.name", " ({name})")
NOBODY = template("lock_wait.nobody", ", which no process of this host holds")
EXISTS = template("lock_wait.exists", ", a file that is the lock as long as it exists")
IN_CALL = template("lock_wait.in_call", "training thread blocked in {call} on {path}")
ASKS = template("lock_wait.asks", "training thread sleeps and asks for {path} again and again")
SLEEPS = template("lock_wait.sleeps", "training thread sleeps, and {path} is locked")
IN_LOOP = template("lock_wait.in_loop", "training thread looks at the lock again and again, in {where}")
HOLDER = template("lock_wait.holder", "process that holds the lock")
OWN_HOLDER = template("lock_wait.own_holder", "process of this training that holds the lock")
WAITED = template("lock_wait.waited", "training thread waited for the lock")
BLOCKED = template("lock_wait.blocked", "training thread was blocked until it had the lock")
WORKER_IN_CALL = template("lock_wait.worker_in_call", "worker {pid} blocked in {call}{where}")
WORKER_WAITED = template("lock_wait.worker_waited", "worker waited for the lock")
WORKER_BLOCKED = template("lock_wait.worker_blocked", "worker was blocked until it had the lock")

_FILES = frozenset({"file_baton.py", "process_lock.py"})  # torch.utils.cpp_extension, fasteners
_LOOP = "_poll_until_acquired"  # of filelock, whose file has moved
_ACQUIRE = ("_api.py", "acquire")  # of filelock to 3.29
_WORDS = frozenset({"lock", "lck", "lockfile", "lockdir", "baton"})
_PART = 0.5
"""Of the wait for workers, at least, that one was at the lock."""
_CACHES = ("cache", "torch_extensions", "huggingface", "triton")
_BETWEEN = re.compile(r"[._-]+")


def claim(window: Window, left: Items) -> Claim | None:
    """State `lock` while the driver was seen to lock a file; pauses, where its stack is in a library that does, where
    another process has locked a file that the driver has open, or where it asks for a lock's file again and again."""
    blocked, rival = window.late.locking.get(window.driver_pid), window.late.rival
    stacks = [stack.frames for stack in window.late.stacks if stack.frames]
    polling = [frames for frames in stacks if _polls(frames)]
    asked = waiting.asked_again(window, _is_lock)
    if blocked is not None:  # also where its other waits at locks are for ranks
        taken = take_items(left, states=[State.LOCK, State.COLLECTIVE], leaves=[Leaf.LOCK])
    elif 2 * len(polling) > len(stacks):
        taken = take_items(left, states=[State.SLEEP, State.OTHER, State.LOCK])
    elif rival is not None or asked:
        taken = take_items(left, states=[State.SLEEP])
    else:
        return None
    if not taken:
        return None
    seen = rival if blocked is None and not polling else None
    path, holders = (seen.path, [seen]) if seen is not None else _lock(window, blocked or window.late.inspection, asked)
    waited = seconds(sum(taken.values()))
    is_held = blocked is not None and holders is None  # by whom is not known
    evidence = [Evidence.of((BLOCKED if is_held else WAITED)(), waited, "s", window.driver_pid, path or None)]
    told, of_holder = _holder(window, path, holders, is_blocked=blocked is not None)
    evidence += of_holder
    if blocked is not None:
        where, chain = blocked.locking, IN_CALL(call=blocked.locking, path=path)
    else:
        where = (polling or stacks or [("",)])[-1][-1]
        chain = IN_LOOP(where=where) if where else (SLEEPS if seen is not None else ASKS)(path=path)
    summary = SUMMARY(seconds=waited, path=path, holder=told) if path else NO_PATH(seconds=waited, where=where)
    return Claim(Cause.LOCK_WAIT, taken, summary, [chain], evidence)


def claim_worker(window: Window, left: Items) -> Claim | None:
    """Waits for workers of which one is blocked in a call that locks a file, or sleeps as a driver does that waits for
    one."""
    worker = window.late.worker
    if worker is None:
        return None
    seen = next((one for pid, one in window.late.locking.items() if pid != window.driver_pid), None)
    stack = window.late.stack_of(worker.pid)
    rival = seen.rival if seen is not None and worker.leaf == Leaf.SLEEP else None
    if not worker.locks_file and rival is None and not (worker.leaf == Leaf.SLEEP and _polls(stack)):
        return None
    taken = take_items(left, states=[State.DATA_WAIT, State.LOCK])
    waited_ns = sum(taken.values())
    spent = min(waited_ns, max(worker.ns, pool_ns(window, worker.leaf)))
    if not taken or spent < _PART * waited_ns:
        return None
    path, holders = (rival.path, [rival]) if rival is not None else _lock(window, seen, "")
    path, waited = path or worker.path, seconds(spent)
    told, of_holder = _holder(window, path, holders, is_blocked=worker.locks_file)
    where = waiting.IN_FRAME(frame=innermost(stack)) if stack else None
    if path:
        summary = waiting.WORKER_AT_LOCK(pid=worker.pid, seconds=waited, path=path, holder=told)
    else:
        summary = waiting.WORKER_AT_SOME_LOCK(pid=worker.pid, seconds=waited, where=where)
    call = worker.call if worker.locks_file else waiting.IN_CALL[worker.leaf]
    chain = [waiting.WAITS_FOR_WORKER(pid=worker.pid), WORKER_IN_CALL(pid=worker.pid, call=call, where=where)]
    is_held = worker.locks_file and holders is None
    wait = Evidence.of((WORKER_BLOCKED if is_held else WORKER_WAITED)(), waited, "s", worker.pid, path or None)
    return Claim(Cause.LOCK_WAIT, taken, summary, chain, [wait, *of_holder])


def _holder(
    window: Window, path: str, holders: Sequence[HeldLock] | None, *, is_blocked: bool
) -> tuple[Message | None, list[Evidence]]:
    """Who holds the lock, as a summary's last words and as evidence; ``holders`` as ``_lock`` has them."""
    if not holders:
        return None if holders is None else NOBODY() if is_blocked else EXISTS(), []
    pid, name = holders[0].pid, holders[0].name
    is_own = pid in window.own
    told = (HELD_BY_OWN if is_own else HELD)(pid=pid, name=NAME(name=name) if name else None)
    return told, [Evidence.of((OWN_HOLDER if is_own else HOLDER)(), name or None, "", pid, path)]


def _lock(window: Window, seen: Inspection | None, asked: str) -> tuple[str, Sequence[HeldLock] | None]:
    """The lock's path, "" where it is not known, and who else holds it; None: that is not known. ``seen``: who waits.
    ``asked``: a lock's file that the driver asks for; it is the lock."""
    path = seen.path if seen is not None and seen.locking else ""
    open_too = [one for one in seen.held_locks if one.path == path] if seen is not None and path else []
    if open_too:
        return path, open_too
    known = path or asked
    files = [one for one in window.files if (one.path == known if known else _is_lock(one.path))]
    if seen is None or not files:
        return (path, None) if path or not asked else (asked, [])
    file = max(files, key=lambda one: one.at_ns)
    held = [one for one in seen.held_locks if (one.dev, one.ino) == (file.dev, file.ino)]
    if any(one.pid == -1 for one in held):
        return file.path, None
    return file.path, [one for one in held if one.pid != seen.pid]


def _is_lock(path: str) -> bool:
    """By its name: data.lock, lock, .lock-3."""
    return not _WORDS.isdisjoint(_BETWEEN.split(path.rpartition("/")[2].lower()))


def _polls(frames: Sequence[str]) -> bool:
    """Whether a stack, frames as "name (file:line)", waits in a library that locks files."""
    for frame in frames:
        name, _, place = frame.partition(" (")
        file = place.rpartition(":")[0].rpartition("/")[2]
        function = name.rpartition(".")[2]
        if file in _FILES or function == _LOOP or (file, function) == _ACQUIRE:
            return True
    return False


HOLDER_FIRST = template("lock_wait.advice.holder", "see what process {pid} does while it holds the lock")
OWN_FIRST = template(
    "lock_wait.advice.own_holder",
    "let process {pid}, which this training started, hold the lock shorter, or give it a file of its own",
)
STALE = template("lock_wait.advice.stale", "if no other training uses {path}, it is left over: remove it")
FIND = template("lock_wait.advice.find", "see who holds {path}: lslocks, or the numbers in /proc/locks")
LOCAL = template(
    "lock_wait.advice.local",
    "let one rank fill the cache before the others need it, or give each one of its own on a local disk "
    "(TORCH_EXTENSIONS_DIR, HF_DATASETS_CACHE)",
)
TIMEOUT = template(
    "lock_wait.advice.timeout", "filelock.FileLock(path, timeout=…) fails instead of waiting without end"
)


def _advice(f: AdviceInput) -> list[Message]:
    first = {HOLDER.id: HOLDER_FIRST, OWN_HOLDER.id: OWN_FIRST}
    told = [first[one.key](pid=one.pid) for one in f.evidence if one.key in first]
    paths = [one.path for one in f.evidence if one.path]
    if paths and not told:
        told = [(FIND if f.saw(BLOCKED) or f.saw(WORKER_BLOCKED) else STALE)(path=paths[0])]
    cached = not paths or any(word in paths[0].lower() for word in _CACHES)
    return [*told, *([LOCAL()] if cached else []), TIMEOUT()]


SPEC = CauseSpec(
    "lock_wait",
    kinds=frozenset({Kind.STALL}),
    title="waiting for a file's lock",
    colours=("#7c2d6b", "#e879c6"),
    group=groups.STORAGE_HANG,
    rules=(OrderedRule(claim, stall=115), OrderedRule(claim_worker, stall=116)),
    advice=_advice,
    in_line=LINE_AND,
)
