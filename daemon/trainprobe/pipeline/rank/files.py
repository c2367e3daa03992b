"""The files of a rank: what its processes write, what they read slowly, whether its checkpoints are safe."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field, replace

from trainprobe.derive.files.beside_saves import BESIDE, StepsBesideSaves
from trainprobe.derive.files.logs import LogUse
from trainprobe.derive.files.purpose import FileClass, is_output, is_restored, may_belong
from trainprobe.derive.files.safety import Safety
from trainprobe.derive.files.save import Save
from trainprobe.derive.files.save_spans import SavingSteps, Seconds
from trainprobe.derive.files.saves import Saves
from trainprobe.derive.files.slow_files import READS, SlowFiles
from trainprobe.derive.files.words import Holds, holds
from trainprobe.derive.steps.interval import Files as ClassedFiles
from trainprobe.derive.steps.ledger import WRITES
from trainprobe.model.cells import Region, ThreadState
from trainprobe.model.dataclass import dataclass
from trainprobe.model.event import FileEvent, StepFile, ThreadSample
from trainprobe.model.moment import NS

LATE_NS = NS // 2
"""The close of a small file may be known so much later than that of another one."""


@dataclass(slots=True)
class FileActivity:
    saves: Saves
    safety: Safety = field(default_factory=Safety)
    slow: SlowFiles = field(default_factory=SlowFiles)
    saving_steps: SavingSteps = field(default_factory=SavingSteps)
    beside_saves: StepsBesideSaves = field(default_factory=StepsBesideSaves)
    seconds: Seconds = field(default_factory=Seconds)  # of a driver whose steps nothing marks
    longest_logs: list[LogUse] = field(default_factory=list)
    restored: tuple[int, str] = (0, "")  # when the driver was found reading a checkpoint of the run last, and its path

    def add_event(self, event: FileEvent) -> None:
        self.saves.add_event(event)
        self.safety.add_event(event, self.saves)

    def add_read(self, sample: ThreadSample, at_ns: int) -> None:
        """A sample of the driver. A checkpoint of the run that it reads back outside of fetches is no data."""
        reads = sample.leaf in READS and sample.run == ThreadState.BLOCKED and sample.region != Region.FETCH
        if reads and self._saved(sample):
            self.restored = at_ns, sample.path
            sample = replace(sample, path="")
        self.slow.add_sample(sample, at_ns)

    def _saved(self, sample: ThreadSample) -> bool:
        """Whether the run wrote the file as a checkpoint, or it lies beside its checkpoints and is called like them."""
        if not sample.path:
            return False
        if sample.ino and self.saves.class_of(sample.dev, sample.ino, 0)[0] == FileClass.CHECKPOINT:
            return True
        named = is_restored(sample.path, self.saves.rules)
        saved = (one.path for one in self.saves.closed_checkpoints())
        return any(path == sample.path or (named and _is_beside(sample.path, path)) for path in saved)

    def restored_in(self, start_ns: int, end_ns: int) -> str:
        """The checkpoint that the driver was found reading in an interval; "": none was."""
        at_ns, path = self.restored
        return path if start_ns < at_ns <= end_ns else ""

    def classed(self, uses: Iterable[StepFile], tid: int, since_ns: int) -> ClassedFiles:
        """What the files are for that a thread used since then."""
        uses = list(uses)
        full = any(not use.ino for use in uses)
        slots = [use for use in uses if use.ino and (not full or (use.dev, use.ino) in self.saves.names)]
        named = [(use, *self.saves.class_of(use.dev, use.ino, use.bytes)) for use in slots]
        if full:
            others = [use for use in uses if use not in slots]
            io_ns, gap_ns = sum(use.io_ns for use in others), sum(use.gap_ns for use in others)
            rest = StepFile(0, 0, io_ns, gap_ns, sum(use.bytes for use in others), sum(use.calls for use in others))
            named += self._by_records(rest, named, tid, since_ns)
        return _with_saves(self._with_removals(named, tid, since_ns))

    def _by_records(self, rest: StepFile, named: ClassedFiles, tid: int, since_ns: int) -> ClassedFiles:
        """The files that no longer have a slot of their own, or a name: saves and others have what their records say,
        what is left is taken to be like the largest ``named`` one, or like most of those."""
        largest = max(named, key=lambda one: one[0].io_ns, default=None)
        like = largest[1] if largest is not None else FileClass.OTHER
        known, most_ns, out = {(one.dev, one.ino) for one, _, _ in named}, 0, []
        for of in (FileClass.CHECKPOINT, FileClass.OTHER):
            written = [one for one in self._written_by(tid, since_ns, of) if one.key[1:] not in known]
            io_ns, gap_ns = sum(one.io_ns for one in written), sum(one.gap_ns for one in written)
            if io_ns > most_ns and (largest is None or of == FileClass.OTHER):
                like = of
            io, gap, most_ns = min(rest.io_ns, io_ns), min(rest.gap_ns, gap_ns), max(most_ns, io_ns)
            if written:
                out.append((replace(rest, io_ns=io, gap_ns=gap), of, written[-1].path))
            rest = replace(rest, io_ns=rest.io_ns - io, gap_ns=rest.gap_ns - gap)
        return [*out, (rest, like, "")]

    def _with_removals(self, files: ClassedFiles, tid: int, since_ns: int) -> ClassedFiles:
        """The files of one step, where the removal of checkpoints counts as one. The kernel enters its time for what
        the thread wrote last: the save, a log, or a file that has no name."""
        left = sum(one.ns for one in self.saves.removals if one.tid == tid and one.start_ns >= since_ns)
        if not left:
            return files
        known = {save.key[1:]: save.io_ns for save in self._written_by(tid, since_ns)}
        saved = (use for use, of, _ in files if of == FileClass.CHECKPOINT)
        left -= sum(max(0, use.io_ns - known.get((use.dev, use.ino), 0)) for use in saved)
        out = []
        for use, of, path in files:
            moved = min(use.io_ns, max(0, left)) if of != FileClass.CHECKPOINT else 0
            left -= moved
            if moved:
                out.append((StepFile(0, 0, moved, 0, 0), FileClass.CHECKPOINT, ""))
            out.append((replace(use, io_ns=use.io_ns - moved), of, path))
        return out

    def _since(self, since_ns: int) -> list[Save]:
        """All that are open or have been closed since, the latest first; and some that were closed just before."""
        out = list(self.saves.open.values())
        for save in reversed(self.saves.closed):
            if (save.end_ns or since_ns) < since_ns - LATE_NS:
                break
            out.append(save)
        return out

    def _written_by(self, tid: int, since_ns: int, of: FileClass = FileClass.CHECKPOINT) -> list[Save]:
        """The checkpoints, or others but logs, that a thread has open or has closed since; the latest come last."""
        own = (save for save in reversed(self._since(since_ns)) if save.tid == tid)
        return [one for one in own if (one.end_ns or since_ns) >= since_ns and one.kind_of(self.saves.rules) == of]

    def saved_in(self, tid: int, start_ns: int, end_ns: int) -> list[Save]:
        """The checkpoints that a thread began to write in an interval that has just ended."""
        closed = self.saves.closed
        if not self.saves.open and not (closed and (closed[-1].end_ns or end_ns) >= start_ns - LATE_NS):
            return []
        return [save for save in self._written_by(tid, start_ns) if start_ns <= save.start_ns < end_ns]

    def saved_beside(self, pid: int, tid: int, start_ns: int, end_ns: int) -> list[Save]:
        """The checkpoints that other threads of a driver's process wrote for a good part of an interval that has just
        ended."""
        others = [one for one in self._since(start_ns) if one.key[0] == pid and one.tid != tid]
        part = BESIDE * (end_ns - start_ns)
        long = [one for one in others if min(end_ns, one.end_ns or end_ns) - max(start_ns, one.start_ns) >= part]
        return [save for save in long if save.kind_of(self.saves.rules) == FileClass.CHECKPOINT]

    @property
    def saving(self) -> bool:
        return any(save.kind_of(self.saves.rules) == FileClass.CHECKPOINT for save in self.saves.open.values())

    def written_by(self, tid: int, since_ns: int, call: ThreadSample | None, at_ns: int) -> ClassedFiles:
        """The saves that a thread has open or has closed since, with its call in flight at ``at_ns``; their proportions
        count, not their sums."""
        out = []
        for save in [*self.saves.open.values(), *self.saves.closed[-4:]]:
            if save.tid != tid or (save.end_ns is not None and save.end_ns < since_ns):
                continue
            spent = save.write_ns + save.sync_ns + save.meta_ns + 1
            if call is not None and (call.dev, call.ino) == save.key[1:] and call.leaf in WRITES:
                spent += max(0, at_ns - call.since_ns)
            use = StepFile(save.key[1], save.key[2], spent, save.gap_ns + 1, save.bytes)
            out.append((use, save.kind_of(self.saves.rules), save.path))
        return out


def _is_beside(path: str, saved: str) -> bool:
    """Whether a file may be another checkpoint of who saved that one: data may be in the same formats, and its folder
    may hold the folder of the checkpoints."""
    folder, _, name = path.rpartition("/")
    of, _, saved_name = saved.rpartition("/")
    alike = of == folder and name.rpartition(".")[2] == saved_name.rpartition(".")[2]
    return alike or (holds(name) == Holds.MODEL and saved.startswith(f"{folder}/"))


def _with_saves(files: ClassedFiles) -> ClassedFiles:
    """The files of one step, where all of a save counts as one: what lies beside its file or above the folder and is no
    log (``last_checkpoint``, ``latest``, an index, a mark of completeness), and in its very folder also text that is
    called neither a log nor output (config.json, tokenizer.json, README.md)."""
    saved = {path.rpartition("/")[0] for _, of, path in files if of == FileClass.CHECKPOINT}
    if not saved:
        return files
    folders = {*saved, *(folder.rpartition("/")[0] for folder in saved)} - {""}
    return [
        (use, FileClass.CHECKPOINT, path) if _belongs(of, path, saved, folders) else (use, of, path)
        for use, of, path in files
    ]


def _belongs(of: FileClass, path: str, saved: set[str], folders: set[str]) -> bool:
    folder = path.rpartition("/")[0]
    if of == FileClass.LOG or (of == FileClass.OTHER and is_output(path)):
        return folder in saved and may_belong(path)
    return of == FileClass.OTHER and folder in folders
