"""The data's storage is slow: workers, or the driver itself, are blocked in reads and in faults on mapped files."""

from __future__ import annotations

from trainprobe.causes import groups, io_limit, waiting
from trainprobe.causes.advice import AdviceInput, more_workers, use_workers, with_made_ahead
from trainprobe.causes.base import Claim, Items, Window, pool_ns, seconds, take_items
from trainprobe.causes.spec import CauseSpec, OrderedRule
from trainprobe.model.cause import Cause, Kind, State
from trainprobe.model.cells import Leaf
from trainprobe.model.message import Message, template
from trainprobe.model.report import Evidence

SUMMARY = template("data_storage.summary", "reading data from slow storage{where}")
ON_FILE = template("data_storage.on_file", " on {path}")
READS = template("data_storage.reads", "training thread reads its data")
WORKER_READS = template("data_storage.worker_reads", "worker {pid} in read on {path}")
WAITED_SECONDS = template("data_storage.waited_seconds", "training thread waited for storage")
BLOCKED_SECONDS = template("data_storage.blocked_seconds", "workers blocked in reads and file faults")
DEVICE_RATE = template("data_storage.device_rate", "device read")
DEVICE_BUSY = template("data_storage.device_busy", "device busy")
_OWN = 0.6
"""The driver's own loading is storage's fault when it is blocked for so much of it."""


def claim(window: Window, left: Items) -> Claim | None:
    """The wait's share in which workers were blocked on storage; the driver's own loading where it mostly was."""
    taken = take_items(left, states=[State.FAULT_IO])
    part = waiting.shares(window).storage
    if part > 0:
        taken |= waiting.waited(window, left, part)
    inline = take_items(left, states=[State.DATA_INLINE])
    blocked = take_items(inline, leaves=[Leaf.FILE_READ, Leaf.FAULT])
    if blocked and sum(blocked.values()) >= _OWN * sum(inline.values()):
        taken |= inline
    if not taken:
        return None
    evidence = [Evidence.of(WAITED_SECONDS(), seconds(sum(taken.values())), "s", window.driver_pid)]
    pool = pool_ns(window, *waiting.STORAGE)
    if pool > 0:
        evidence.append(Evidence.of(BLOCKED_SECONDS(), seconds(pool), "s"))
    chain, path = _chain(window, own=bool(inline) and part == 0, evidence=evidence)
    where = ON_FILE(path=path) if path else None
    evidence += [*waiting.new_epoch(window), *waiting.outside(window, taken)]
    return Claim(Cause.DATA_STORAGE, taken, SUMMARY(where=where), chain, evidence)


def _chain(window: Window, *, own: bool, evidence: list[Evidence]) -> tuple[list[Message], str]:
    """Driver, worker, file, device: as far as the waiting was seen; and the file."""
    seen = window.late.worker
    worker = waiting.slowest(window, *waiting.STORAGE)
    pid, path, dev = window.driver_pid, "", 0
    if seen is not None and seen.leaf in waiting.STORAGE:
        pid, path, dev = seen.pid, seen.path, seen.dev
        evidence.append(Evidence.of(waiting.WORKER_BLOCKED(), seconds(seen.ns), "s", pid, path or None))
    elif worker is not None:
        pid, path, dev = worker.pid, worker.path, worker.dev
        evidence.append(
            Evidence.of(waiting.WORKER_BLOCKED(), seconds(window.end_ns - worker.since_ns), "s", pid, path or None)
        )
    elif window.slow_files:
        path, dev = window.slow_files[0].path, window.slow_files[0].dev
    chain = [READS()] if own else [waiting.WAITS_FOR_WORKERS()]
    if pid != window.driver_pid:
        chain = [waiting.WAITS_FOR_WORKER(pid=pid), WORKER_READS(pid=pid, path=path or waiting.A_FILE())]
    device = window.devices.of(dev) if dev else None
    if device is not None:
        chain.append(device.message())
        rate = device.read_rate
        evidence.append(
            Evidence.of(DEVICE_RATE(), None if rate is None else round(rate / 1e6, 1), "MB/s", None, device.name)
        )
        if device.busy_share is not None:
            evidence.append(Evidence.of(DEVICE_BUSY(), round(device.busy_share, 3), "ratio", None, device.name))
    limit, figures = io_limit.found(window, dev, writing=False)
    chain += limit
    evidence += figures
    return chain, path


LOCAL_COPY = template(
    "data_storage.advice.local_copy",
    "copy the data to a local SSD, or pack it into larger shards that are read in order",
)
HIDE_LATENCY = template(
    "data_storage.advice.hide_latency", "more workers hide latency (not bandwidth): each adds one read in flight"
)


def _advice(f: AdviceInput) -> list[Message]:
    if io_limit.is_reached(f):
        return [*with_made_ahead(f, io_limit.RAISE()), LOCAL_COPY()]
    if f.saw(waiting.OUTSIDE):
        return [waiting.ELSEWHERE(), LOCAL_COPY()]
    load = f.loader
    if load is not None and not load.workers and f.best_workers:
        return [*use_workers(f), LOCAL_COPY(), HIDE_LATENCY()]
    more = more_workers(f) if load is not None and load.workers else []
    return [*more, *with_made_ahead(f, LOCAL_COPY()), HIDE_LATENCY()]


SPEC = CauseSpec(
    "data_storage",
    kinds=frozenset({Kind.STALL, Kind.BOTTLENECK}),
    title="loading data from slow storage",
    colours=("#1e40af", "#4c7df0"),
    group=groups.DATA,
    rules=(OrderedRule(claim, stall=130, ordinary=70),),
    advice=_advice,
    worker_stack=True,
    makes_batches=True,
    is_input=True,
)
