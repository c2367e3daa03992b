"""Which files are read slowly, by sampling: a thread found waiting for a file has waited since the last pass."""

from __future__ import annotations

from dataclasses import field

from trainprobe.model.cells import Leaf, ThreadState
from trainprobe.model.dataclass import dataclass
from trainprobe.model.event import ThreadSample
from trainprobe.model.moment import NS

KEEP = 256
LONGEST = 2 * NS
"""The most time that a pass stands for: threads are read each second, each two while a training steps evenly, and more
often while a step is late."""
READS = frozenset({Leaf.FILE_READ, Leaf.FAULT})


@dataclass(slots=True)
class SlowRead:
    """A file that threads were found waiting for. Time in ns, estimated from the passes."""

    path: str
    dev: int = 0
    reads: int = 0  # waits that were seen
    ns: int = 0


@dataclass(slots=True)
class SlowFiles:
    """The files that cost most, of a bounded number."""

    files: dict[str, SlowRead] = field(default_factory=dict)
    _seen: dict[int, int] = field(default_factory=dict)  # tid -> the last pass
    _waits: dict[int, int] = field(default_factory=dict)  # tid -> begin of the wait seen last

    def add_sample(self, sample: ThreadSample, at_ns: int) -> None:
        before = self._seen.get(sample.tid)
        self._seen[sample.tid] = at_ns
        if sample.leaf not in READS or sample.run != ThreadState.BLOCKED or not sample.path or before is None:
            return
        use = self.files.get(sample.path)
        if use is None:
            self._make_room()
            use = self.files[sample.path] = SlowRead(sample.path, sample.dev)
        use.ns += max(0, min(at_ns - before, LONGEST))
        if self._waits.get(sample.tid) != sample.since_ns:
            self._waits[sample.tid] = sample.since_ns
            use.reads += 1

    def forget(self, tid: int) -> None:
        """The thread is gone."""
        self._seen.pop(tid, None)
        self._waits.pop(tid, None)

    def slowest(self, count: int = 20) -> list[SlowRead]:
        """The most expensive first."""
        return sorted(self.files.values(), key=lambda use: -use.ns)[:count]

    def _make_room(self) -> None:
        if len(self.files) >= KEEP:
            del self.files[min(self.files, key=lambda path: self.files[path].ns)]
