"""Python lines of ordinary steps, by rare samples: code that costs a little in every step, such as a norm of all
gradients or a value fetched for a log."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import field
from operator import attrgetter

from trainprobe.derive.memo import Memo
from trainprobe.derive.python.evaluators import is_named
from trainprobe.derive.python.frameworks import is_own, library
from trainprobe.derive.python.stacks import (
    asks_iterator,
    at_socket,
    inside_loop,
    is_idle,
    is_idle_worker,
    reads_network,
    takes_from_queue,
)
from trainprobe.derive.python.trackers import reports
from trainprobe.model.dataclass import dataclass
from trainprobe.model.event import PythonThread

KEEP = 1024
ENOUGH = 2  # stacks
EVERYWHERE = 0.95
"""A line on this share of the stacks is the loop itself."""
_LOADERS = frozenset({"ffcv", "torchdata", "litdata", "streaming", "webdataset", "grain", "batchgenerators"})
"""Libraries that fill a queue by a thread of their own."""
SAMPLES, MOST = 3, 0.8
"""A function on this share of so many stacks at least is one that the steps are made in."""


def waits_for_replicas(stack: Sequence[str]) -> bool:
    """Whether it is a driver's whose threads run the model on several GPUs (torch.nn.DataParallel)."""
    return any(library(frame)[1] == "parallel_apply.py" for frame in stack)


@dataclass(slots=True)
class WorkerStacks:
    """Of workers that made a batch while the driver waited for one; ``asked``: idle ones too."""

    asked: int = 0
    seen: int = 0
    taken: deque[tuple[str, ...]] = field(default_factory=lambda: deque(maxlen=32))
    blocked: list[tuple[str, ...]] = field(default_factory=list)  # of those that made a batch, on no CPU
    reading: int = 0  # of `seen`: from a network

    def add(self, frames: tuple[str, ...], *, running: bool) -> None:
        if not frames:
            return
        counted = self.seen < KEEP
        self.seen += counted
        self.reading += counted and reads_network(frames)
        if is_idle_worker(frames):
            return
        self.taken.append(frames)
        if inside_loop(frames) and counted and not running:
            self.blocked.append(frames)


def in_one_function(threads: Sequence[PythonThread]) -> Sequence[PythonThread]:
    """Those that run code of the user's, or of a library that loads data, and do not wait in a queue themselves; none
    where they run several functions: nobody knows which of them is waited for."""
    users = [one for one in threads if is_own(one.frame) or (one.caller and not is_idle([one.frame])) or _loads(one)]
    return users if len({(one.caller or one.frame).rpartition(":")[0] for one in users}) == 1 else []


def _loads(thread: PythonThread) -> bool:
    return library(thread.frame)[0].partition("/")[0] in _LOADERS


@dataclass(slots=True)
class Feeders:
    """What the user's one other thread did where the driver was found to wait in a queue: it fills that. Of several in
    one function, a pool, the first stands for all."""

    stacks: int = 0  # of the driver
    waits: Counter[PythonThread] = field(default_factory=Counter)

    def add(self, frames: Sequence[str], others: Sequence[PythonThread]) -> None:
        self.stacks += 1
        users = in_one_function(others)
        if frames and is_idle(frames) and users:
            self.waits[min(users, key=attrgetter("own_tid"))] += 1

    def most(self) -> PythonThread | None:
        """The thread that most of the stacks show, where it was found most; None: no thread."""
        hits: Counter[int] = Counter()
        for one, count in self.waits.items():
            hits[one.own_tid] += count
        own_tid, count = max(hits.items(), key=lambda pair: pair[1], default=(0, 0))
        if count < max(ENOUGH, self.stacks / 2):
            return None
        return max((one for one in self.waits if one.own_tid == own_tid), key=lambda one: self.waits[one])

    def reads_network(self, thread: PythonThread) -> bool:
        """Whether that thread was mostly found at a socket."""
        found = [(one, hits) for one, hits in self.waits.items() if one.own_tid == thread.own_tid]
        return 2 * sum(hits for one, hits in found if at_socket(one.frame)) > sum(hits for _, hits in found)


@dataclass(slots=True)
class PythonLines:
    samples: int = 0
    replicas: bool = False  # the driver was seen to wait for its threads that run the model's replicas
    feeders: Feeders = field(default_factory=Feeders)
    evaluated: int = 0  # of the samples: named like an evaluation
    reported: int = 0  # of them: with figures on their way to a tracker
    queued: int = 0  # of them: it takes from a queue
    slept: int = 0  # of them: it was found asleep
    polled: int = 0  # of these: where it asks an iterator for what comes next
    _hits: dict[str, int] = field(default_factory=dict)
    _memo: Memo = field(default_factory=Memo)

    def add(self, frames: Sequence[str], others: Sequence[PythonThread] = (), *, asleep: bool = False) -> None:
        """One stack, with the other threads of the interpreter that did something; a line counts once in it."""
        self.feeders.add(frames, others)
        self.samples += 1
        self.evaluated += is_named(frames)
        self.reported += reports(frames)
        self.queued += bool(frames) and takes_from_queue(frames)
        self.slept += asleep
        self.polled += asleep and asks_iterator(frames)
        self._memo.clear()
        for frame in dict.fromkeys(frames):
            if frame in self._hits or len(self._hits) < KEEP:
                self._hits[frame] = self._hits.get(frame, 0) + 1

    @property
    def in_queue(self) -> bool:
        """Whether it was found to take from a queue."""
        return self.queued >= ENOUGH

    @property
    def polls(self) -> bool:
        """Whether its sleeps are mostly those of a loader that asks again and again whether a batch is there."""
        return self.polled >= ENOUGH and 2 * self.polled > self.slept

    @property
    def evaluates(self) -> bool | None:
        """Whether an evaluation comes with the steps; None: too few samples."""
        return self.evaluated > 0 if self.samples >= SAMPLES else None

    @property
    def functions(self) -> set[str]:
        """All functions that were seen, as ``name (file``."""
        return {frame.rpartition(":")[0] for frame in self._hits}

    @property
    def loop(self) -> Collection[str]:
        """The functions that the training's steps are made in, as ``name (file``; none before three samples."""
        return self._memo.get(_loop, self._hits, self.samples)

    def top(self) -> list[tuple[str, int]]:
        """The ten lines that were seen most, the loop's own left out; nothing before three samples."""
        if self.samples < SAMPLES:
            return []
        told = [(frame, hits) for frame, hits in self._hits.items() if hits < EVERYWHERE * self.samples]
        return sorted(told, key=lambda pair: -pair[1])[:10]


def _loop(hits: Mapping[str, int], samples: int) -> Collection[str]:
    found: Counter[str] = Counter()
    for frame, count in hits.items():
        found[frame.rpartition(":")[0]] += count
    return {one for one, count in found.items() if samples >= SAMPLES and count >= MOST * samples}
