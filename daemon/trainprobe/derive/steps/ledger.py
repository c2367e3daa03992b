"""From cells to states: (region, leaf, file) -> what the driver did. Exclusive; the sum is kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

from trainprobe.derive.files.purpose import FileClass
from trainprobe.model.cause import State
from trainprobe.model.cells import CELLS, LEAVES, Leaf, Region, cell
from trainprobe.model.dataclass import dataclass
from trainprobe.model.event import StepFile

Item = tuple[State, Region, Leaf]
"""One addend of a step: its state, and the cell that it came from (which tells the cause)."""

_REGIONS = tuple(Region)
_LEAVES = tuple(Leaf)
WRITES = frozenset({Leaf.FILE_WRITE, Leaf.FILE_SYNC, Leaf.FILE_META})
_ALWAYS: Mapping[Leaf, State] = {
    Leaf.RUNQUEUE: State.RUNQUEUE,
    Leaf.THROTTLED: State.RUNQUEUE,
    Leaf.STOPPED: State.STOPPED,
    Leaf.RECLAIM: State.MEMORY,
    Leaf.SWAP: State.MEMORY,
    Leaf.FAULT: State.FAULT_IO,
    Leaf.GPU: State.GPU_WAIT,
}
_ELSEWHERE: Mapping[Leaf, State] = {
    Leaf.CPU: State.COMPUTE,
    Leaf.COLLECTOR: State.COMPUTE,
    Leaf.FILE_READ: State.DATA_INLINE,
    Leaf.READ_CPU: State.DATA_INLINE,
    Leaf.STREAM_OUT: State.LOGGING,
    Leaf.LOCK: State.LOCK,
    Leaf.SLEEP: State.SLEEP,
}
QUEUE = (Leaf.PIPE_READ, Leaf.POLL)
"""Where a training waits for its workers' batches."""
STATE_OF_CLASS: Mapping[FileClass, State] = {
    FileClass.CHECKPOINT: State.CHECKPOINT,
    FileClass.LOG: State.LOGGING,
    FileClass.OTHER: State.OTHER,
}
"""The state of a write-class call, by what it writes."""


@dataclass(frozen=True, slots=True)
class WaitContext:
    """Facts about the driver that name its waits."""

    workers: bool = False  # it has live worker processes
    inline: bool = False  # its loader fetches without workers
    ranks: bool = False  # other ranks belong to the run
    fetched: bool = False  # its workers' batches are seen to be fetched: it waits for them there, and nowhere else


@lru_cache(maxsize=16)
def wait_context_of(workers: bool, inline: bool, ranks: bool, fetched: bool) -> WaitContext:
    """Cached: each step needs one."""
    return WaitContext(workers, inline, ranks, fetched)


def state_of(region: Region, leaf: Leaf, context: WaitContext) -> State:
    """The state of a cell whose time was not spent on a written file."""
    always = _ALWAYS.get(leaf)
    if always is not None:
        return always
    if region == Region.FETCH:  # another loader of the step may have workers
        return State.DATA_INLINE if context.inline and not (context.workers and leaf in QUEUE) else State.DATA_WAIT
    if context.ranks and (leaf == Leaf.LOCK or (leaf in (Leaf.SOCKET, Leaf.POLL) and region == Region.BACKWARD)):
        return State.COLLECTIVE  # DDP waits on a condition, in the callbacks that come when the backward has ended
    if leaf in QUEUE:
        return State.DATA_WAIT if context.workers and not context.fetched else State.OTHER
    if leaf == Leaf.SOCKET:
        return State.COLLECTIVE if context.ranks else State.NETWORK
    return _ELSEWHERE.get(leaf, State.OTHER)


@lru_cache(maxsize=64)
def states_of_cells(context: WaitContext, written: FileClass | None, saving: bool) -> tuple[State | None, ...]:
    """The state of each cell in the order of the cells, None for an unknown cell: the result of ``flatten`` where all
    written files are of one class (None: none took time), and the time between their writes is, or is not, all of
    checkpoints."""
    states: list[State | None] = [None] * CELLS
    for region in Region:
        for leaf in Leaf:
            if leaf in (*WRITES, Leaf.FILE_GAP) and region == Region.FETCH and context.inline:
                state = State.DATA_INLINE
            elif leaf in WRITES:
                state = STATE_OF_CLASS[written] if written else State.OTHER
            elif leaf == Leaf.FILE_GAP:
                state = State.CHECKPOINT if saving else state_of(region, Leaf.CPU, context)
            else:
                state = state_of(region, leaf, context)
            states[cell(region, leaf)] = state
    return tuple(states)


def _shares(files: Sequence[tuple[StepFile, FileClass]], gap: bool) -> dict[FileClass, float]:
    """What part of the write-class time each class of file has."""
    total = 0
    parts: dict[FileClass, int] = {}
    for use, of in files:
        ns = use.gap_ns if gap else use.io_ns
        parts[of] = parts.get(of, 0) + ns
        total += ns
    return {of: ns / total for of, ns in parts.items() if ns} if total else {}


def flatten(cells: Sequence[int], files: Sequence[tuple[StepFile, FileClass]], context: WaitContext) -> dict[Item, int]:
    """Nanoseconds by item of an interval's cells (differences of two rows).

    ``files`` are the interval's written files with their classes. Time of write-class calls goes to its file's
    class, the CPU time between two such calls to `checkpoint` only for checkpoints (for a log it is the program's
    own work).
    """
    out: dict[Item, int] = {}
    io = gap = None
    for index, ns in enumerate(cells):
        if not ns:
            continue
        at, leaf_number = divmod(index, LEAVES)
        if at >= len(_REGIONS) or leaf_number >= len(_LEAVES):
            continue
        region, leaf = _REGIONS[at], _LEAVES[leaf_number]
        if leaf in (*WRITES, Leaf.FILE_GAP) and region == Region.FETCH and context.inline:
            _add(out, (State.DATA_INLINE, region, leaf), ns)  # a data set's cache
        elif leaf in WRITES:
            io = _shares(files, gap=False) if io is None else io
            _split(out, ns, region, leaf, {STATE_OF_CLASS[of]: part for of, part in io.items()} or {State.OTHER: 1.0})
        elif leaf == Leaf.FILE_GAP:
            gap = _shares(files, gap=True) if gap is None else gap
            saving = gap.get(FileClass.CHECKPOINT, 0.0)
            rest = state_of(region, Leaf.CPU, context)
            _split(out, ns, region, leaf, {State.CHECKPOINT: saving, rest: 1.0 - saving})
        else:
            _add(out, (state_of(region, leaf, context), region, leaf), ns)
    return out


def _split(out: dict[Item, int], ns: int, region: Region, leaf: Leaf, parts: Mapping[State, float]) -> None:
    left = ns
    states = [state for state, part in parts.items() if part > 0]
    for state in states[:-1]:
        taken = int(ns * parts[state])
        _add(out, (state, region, leaf), taken)
        left -= taken
    _add(out, (states[-1], region, leaf), left)


def _add(out: dict[Item, int], item: Item, ns: int) -> None:
    if ns:
        out[item] = out.get(item, 0) + ns


def by_state(items: Mapping[Item, float]) -> dict[State, float]:
    out: dict[State, float] = {}
    for (state, _, _), value in items.items():
        out[state] = out.get(state, 0) + value
    return out
