"""What a frame holds of a rank, taken in in time order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from trainprobe.derive.files.logs import longest
from trainprobe.derive.python.code_lines import PythonLines, waits_for_replicas
from trainprobe.derive.python.evaluators import is_named
from trainprobe.derive.steps.wait_baseline import WaitBaseline
from trainprobe.derive.trend.drift import BATCH
from trainprobe.derive.trend.resource_timeline import TimelinePoint
from trainprobe.model.cause import State
from trainprobe.model.cells import COMPUTING, Leaf, Level, Region, RowKind, ThreadState, cell
from trainprobe.model.event import FileLooked, MarkRow, ProcessEvent, ProcessEventKind, StackSeen, ThreadSample
from trainprobe.model.moment import NS
from trainprobe.model.sample import HostSample, Inspection, ProcessSample
from trainprobe.pipeline.rank.ending import end
from trainprobe.pipeline.rank.lives import Sender
from trainprobe.pipeline.rank.phases import Phases
from trainprobe.pipeline.rank.state import RankState
from trainprobe.pipeline.rank.steps import end_step
from trainprobe.pipeline.stalls import StallBook

_OF_STEPS = frozenset({RowKind.OPTIMIZER, RowKind.BACKWARD, RowKind.GPU, RowKind.RHYTHM})
_COMPUTES = tuple(cell(region, leaf) for region in Region for leaf in COMPUTING - {Leaf.FILE_GAP})
_RECENT_NS = 60 * NS
"""A save that began so long ago may have ended just now."""


def add_row(rank: RankState, row: MarkRow) -> None:
    ledger = rank.ledger
    if row.tid != rank.tid and not _takes_over(rank, row):
        return
    if ledger.latest is None and rank.open.sample is None and row.tid == rank.seen.pid and not rank.resumed:
        rank.start_ns = row.opened_ns or rank.start_ns
    ledger.add_row(row)
    rank.memory.batch_bytes.add_row(row)
    if row.kind == RowKind.EXIT:
        rank.lives.exit_row = row  # the exit event that follows has the code
        return
    if row.kind == RowKind.FINALIZE:
        rank.lives.finalize_row = rank.lives.finalize_row or row
        return
    if not rank.stepped and row.kind in _OF_STEPS:
        _first_step(rank, row)
    for boundary in rank.progress.clock.add_row(row):
        end_step(rank, boundary)


def _first_step(rank: RankState, row: MarkRow) -> None:
    """The rank has marks: what was judged second by second until now was the start-up."""
    rank.stepped = True
    rank.files.saves.begin_steps(row.at_ns)
    rank.ordinary.lines = PythonLines()
    if rank.progress.wait_baseline.cells:
        rank.progress.wait_baseline, rank.phases = WaitBaseline(), Phases()
        rank.stalls = StallBook(box=rank.stalls.box)


def _takes_over(rank: RankState, row: MarkRow) -> bool:
    """Whether the thread of this row is the driver, in the place of the main thread that was taken for it."""
    if rank.stepped or row.kind == RowKind.EXIT:
        return False
    ledger = rank.ledger
    before = ledger.latest or rank.open.sample
    if before is not None:  # the main thread's time up to here stays in the ledger
        rank.close_interval(before.cells, ledger.pool)
    ledger.cells = row.cells
    if before is None:
        rank.start_ns = row.at_ns - sum(row.cells)
    else:
        unknown = max(0, row.at_ns - rank.start_ns - sum(before.cells))
        ledger.states[State.LOCK] = ledger.states.get(State.LOCK, 0.0) + unknown
    rank.tid = row.tid
    rank.files.saves.drives(row.tid)
    ledger.rows.clear()
    rank.open.sample = None
    return True


def add_process_event(rank: RankState, event: ProcessEvent, by: Sender = Sender.OUTSIDE) -> None:
    """Birth, death or signal of a process of the rank; ``by``: who sent the signal."""
    limit = rank.limit_ns()
    rank.lives.add_event(event, by=by, late=limit is not None and event.at_ns > limit)
    if event.kind == ProcessEventKind.EXIT and event.pid == rank.seen.pid:
        end(rank, event.at_ns)
    elif event.kind == ProcessEventKind.EXIT:
        rank.forget(event.pid)


def add_stack(rank: RankState, event: StackSeen) -> None:
    """A Python stack of the driver or of a worker, of an ordinary step or asked for by an open stall."""
    own, boundary = event.pid == rank.seen.pid, rank.progress.boundary
    if own and event.others:
        rank.open.python_threads = frozenset(one.own_tid for one in event.others)
    if own:
        rank.open.framework.add(event.frames, event.versions)
        _note_replicas(rank, event.frames)
    if own and event.at_ns == rank.ordinary.lines_ns:
        if event.frames:
            sample = rank.open.sample
            asleep = sample is not None and sample.leaf == Leaf.SLEEP
            rank.ordinary.lines.add(event.frames, event.others, asleep=asleep)
        return
    if not own:  # asked in a late step or not, it was waited for
        rank.ordinary.of_workers.add(event.frames, running=event.running)
    if event.at_ns == rank.ordinary.lines_ns:
        return
    if event.frames and boundary is not None and event.at_ns >= boundary.at_ns:
        rank.open.add_stack(event, rank.seen.pid)


def _note_replicas(rank: RankState, frames: Sequence[str]) -> None:
    """An evaluation may run the model in threads, and the training not."""
    lines = rank.ordinary.lines
    lines.replicas = lines.replicas or (waits_for_replicas(frames) and not is_named(frames, lines.loop))


def add_inspection(rank: RankState, seen: Inspection, at_ns: int) -> None:
    if seen.tid == rank.tid:
        rank.open.add_inspection(seen, at_ns)
    elif seen.pid != rank.seen.pid:
        rank.open.late.inspect_worker(seen)


def add_look(rank: RankState, event: FileLooked) -> None:
    if event.tid == rank.tid:
        rank.open.late.add_file(event.path, event.at_ns)


def add_host_sample(rank: RankState, host: HostSample, at_ns: int) -> None:
    rank.stalls.box.host(at_ns, host)
    latest = rank.ledger.latest
    known = [p.major_faults for p in rank.memory.live_workers() if p.major_faults is not None]
    faults = latest.major_faults if latest is not None else None
    rank.surroundings.swapping.add_counts(host.swap_in_pages, faults, sum(known) if known else None, at_ns)


def add_thread_sample(rank: RankState, sample: ThreadSample, at_ns: int) -> None:
    if sample.tid == rank.tid:
        if rank.open.sample is None and rank.resumed:
            _fill_gap(rank, sample)
        elif rank.open.sample is None and rank.ledger.latest is None:
            rank.start_ns = at_ns - sum(sample.cells)
        if rank.end_ns is None:
            rank.open.add_driver_sample(sample, at_ns)
            if not rank.stepped:
                computed = sum(sample.cells[place] for place in _COMPUTES)
                saves = rank.files.saved_in(rank.tid, at_ns - _RECENT_NS, at_ns)
                rank.files.seconds.add_reading(at_ns, computed, saves)
                rank.files.saves.changed(saves)
            rank.files.add_read(sample, at_ns)
    elif sample.level == Level.COARSE and sample.pid != rank.seen.pid and sample.pid in rank.lives.workers.live:
        rank.open.worker_samples[sample.pid] = sample
        if rank.lives.workers.live[sample.pid].role == "worker":
            rank.open.add_worker_sample(sample, at_ns, rank.progress.clock.count, rank.turns())
        rank.files.slow.add_sample(sample, at_ns)


def _fill_gap(rank: RankState, sample: ThreadSample) -> None:
    """What nobody watched of the step that goes on was spent in the wait that its driver is found in."""
    begun, place = rank.progress.boundary, cell(sample.region, sample.leaf)
    if begun is None or any(begun.cells) or sample.run is not ThreadState.BLOCKED:
        return
    gap = sample.since_ns - begun.at_ns
    if gap > 0 and sum(sample.cells) == sample.cells[place]:  # it has not left that wait since the watching began
        rank.ledger.cells = (*begun.cells[:place], -gap, *begun.cells[place + 1 :])
        rank.progress.boundary = replace(begun, cells=rank.ledger.cells)


def add_process_sample(rank: RankState, sample: ProcessSample) -> None:
    """Memory and descriptors of one of its processes; ``end_reading`` follows the last one of a frame."""
    rank.memory.add_sample(sample)
    if sample.pid == rank.seen.pid and sample.cpu_ns is not None and rank.progress.baseline.stands:
        rank.memory.add_cpu(sample.cpu_ns, rank.progress.clock.count)


def end_reading(rank: RankState, at_ns: int, used: int | None) -> None:
    """Its processes have been read: a point of the rank's course. ``used``: bytes of the run's memory limit."""
    if rank.end_ns is not None:
        return
    memory, saves, workers = rank.memory, rank.files.saves, rank.lives.workers.count
    memory.read(rank.seen.started_ns, at_ns)
    pss = memory.proportional()
    driver = memory.processes.get(rank.seen.pid)
    if driver is not None:
        if driver.cpu_ns is not None and rank.progress.baseline.stands:
            rank.surroundings.threads.add_reading(driver.cpu_ns, sum(rank.ledger.cells[place] for place in _COMPUTES))
        rank.stalls.box.sample(at_ns, workers, pss)
        figures = {
            "pss_bytes": pss,
            "open_fds": driver.open_fds,
            "threads": driver.threads,
            "workers": workers,
            "log_bytes": saves.logs.bytes,
            BATCH: memory.batch_bytes.latest(),
        }
        rank.ordinary.growth.add_counters({name: float(v) for name, v in figures.items() if v is not None})
    rank.files.longest_logs = longest(saves.all_logs())
    utilization = rank.surroundings.gpu_utilization()
    memory.course.add(TimelinePoint(at_ns, pss, memory.summed("swap_bytes"), workers, utilization))
    if used is not None:
        memory.add_used(used)
