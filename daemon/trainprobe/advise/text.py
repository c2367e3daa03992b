"""Sentences of advice by cause, each with measured numbers where the cause has some."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil

from trainprobe.advise.loader import Loader
from trainprobe.advise.numbers import interval_for_share
from trainprobe.language.amounts import seconds
from trainprobe.model.cause import Cause

SHARE = 0.01
"""Of a run: what something that the training could do without may cost."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What was measured, as far as it was (0: not)."""

    share: float = 0.0  # of the run, lost to the cause
    each: float = 0.0  # seconds of one occurrence, median
    every: int | None = None  # steps between occurrences
    step_seconds: float = 0.0  # ordinary step
    period: float = 0.0  # seconds between occurrences that recur by steps or by the clock
    where: str = ""  # Python line
    where_told: str = ""  # the same with its samples
    loader_starts: bool = False  # the workers that were started were a DataLoader's
    saved_beside: bool = False  # the longest save was another thread's or process's, and the driver waited for it
    sync_share: float = 0.0  # of a checkpoint's time, in fsync
    writes_per_step: float = 0.0  # to logs
    fetching: bool = False  # a DataLoader is seen to fetch
    loader: Loader | None = None  # what making its batches costs, as far as measured


def advice(cause: Cause, facts: Facts) -> list[str]:
    """What to change, the first first; empty where nothing measured supports any."""
    maker = _COMPUTED.get(cause)
    return maker(facts) if maker else list(_PLAIN.get(cause, ()))


_KILL, _ABORT, _BUS, _FAULT = 9, 6, 7, 11
_MEMORY_KEEPERS = ("earlyoom", "systemd-oomd", "oomd", "nohang")


def worker_death(signal: int | None, sender: tuple[int, str] | None) -> list[str]:
    """What to do after a loader worker died so. ``sender``: pid and name of who sent the signal, where it is known."""
    if sender is not None:
        return _sent(*sender)
    if signal == _BUS:
        return ["signal 7 comes of a /dev/shm that is too small: docker run --shm-size=8g, or fewer workers"]
    if signal in (_ABORT, _FAULT):
        return [
            "native code crashed (a decoder, OpenCV, the dataset's own extension): python -X faulthandler shows where",
            "run with num_workers=0 once: the same sample then crashes the main process, where a debugger sees it",
        ]
    if signal == _KILL:
        return ["no process sent this signal, the kernel did: look into dmesg, and at the container's memory limit"]
    return ["run with num_workers=0 once to see the exception in the main process"]


def _sent(pid: int, name: str) -> list[str]:
    if name in _MEMORY_KEEPERS:
        return [f"{name} kills to keep memory free: lower num_workers, prefetch_factor or the batch size"]
    who = f"{name} (pid {pid})" if name else f"pid {pid}"
    return [
        (
            f"the training did not fail by itself: ask who runs {who} why it kills workers "
            "(a scheduler, a clean-up script, a person)"
        )
    ]


def _checkpoint(f: Facts) -> list[str]:
    out = []
    if f.every and f.each and f.step_seconds:
        better = interval_for_share(f.each, f.every, f.step_seconds)
        if better > f.every:
            out.append(
                f"save every {better} steps instead of every {f.every}: "
                f"saving then takes 1 % of the run, not {f.share:.1%}"
            )
    if f.saved_beside:
        out.append(
            "the save runs beside the steps already: wait for it later, or save from another process (a thread holds "
            "the interpreter while it serialises)"
        )
    else:
        out.append("save from another process or thread (asynchronously), so that the steps go on while it is written")
    if f.sync_share > 0.5:
        out.append(f"{f.sync_share:.0%} of a save is fsync: write to a faster local disk and move the file afterwards")
    else:
        out.append("leave the optimizer's state out of the saves that nobody resumes from")
    return out


def _data_cpu(f: Facts) -> list[str]:
    load = f.loader
    if load is not None and load.workers and not load.keeps_up:  # all batches are dear: none are made ahead
        return _workers(load) or [
            (
                f"a batch costs a worker {seconds(load.each)}: more workers would share the same {load.cpus} CPUs; "
                "make the samples cheaper (decode, resize, cache)"
            )
        ]
    if f.fetching:
        return ["prefetch_factor=4 lets cheap batches pay for a dear one; find the samples that cost most"]
    return ["make batches further ahead (a deeper queue): cheap ones pay for a dear one; find what costs most"]


def _data_storage(f: Facts) -> list[str]:
    more = _workers(f.loader) if f.loader is not None and f.loader.workers else []
    return [
        *more,
        "copy the data to a local SSD, or pack it into larger shards that are read in order",
        "more workers hide latency (not bandwidth): each adds one read in flight",
    ]


def _unknown(f: Facts) -> list[str]:
    """Where workers are blocked in each batch, more of them are blocked at the same time."""
    load = f.loader
    return _workers(load) if load is not None and not load.keeps_up and load.blocked > load.cpu else []


def _workers(load: Loader) -> list[str]:
    """More of them, where that is worth it."""
    best = load.best()
    if best <= load.workers or load.gain(best) < SHARE * (load.own + load.wait):
        return []
    why = f"a batch costs a worker {seconds(load.each)}, a step without waiting takes {seconds(load.own)}"
    return [f"num_workers={best} instead of {load.workers}: {why}"]


def _data_inline(f: Facts) -> list[str]:
    workers = f.loader.best() if f.loader is not None else 1
    return [
        (f"num_workers={workers} in the DataLoader: the loading then runs beside the step ({f.share:.0%} of the run)")
    ]


def _worker_startup(f: Facts) -> list[str]:
    if not f.loader_starts:
        return [
            "keep the processes (a pool, a queue) instead of starting new ones: a fork copies the driver's page tables"
        ]
    each = f"; saves {f.each:.1f} s per epoch" if f.each else ""
    return [f"persistent_workers=True keeps the workers between epochs{each}"]


def _logging(f: Facts) -> list[str]:
    rate = f" ({f.writes_per_step:.1f} writes per step)" if f.writes_per_step else ""
    out = _rarer(f, "log")
    if not out and f.share > SHARE:
        out = [
            f"log every {ceil(f.share / SHARE)} steps instead of every step{rate}: 1 % of the run, not {f.share:.0%}"
        ]
    out.append("do not flush or fsync each line; flush_secs=120 for TensorBoard")
    return out


def _cpu_bound(f: Facts) -> list[str]:
    where = f" in {f.where_told or f.where}" if f.where else ""
    every = f", every {f.every} steps" if f.every else ""
    out = [
        (
            f"the driver computes on one core{where}{every}: "
            "move it into a worker or another process, vectorise it, or do it less often"
        )
    ]
    if not f.where:
        out.append(
            "no Python line was seen in it: the garbage collector is a candidate "
            "(gc.freeze() after start-up, gc.collect() at a time of your choosing)"
        )
    return [*out, *_rarer(f, "do it")]


def _network(f: Facts) -> list[str]:
    return [*_rarer(f, "send"), "send from another thread or process, so that the step does not wait for the answer"]


def _rarer(f: Facts, verb: str) -> list[str]:
    """The interval at which something that recurs by steps takes 1 % of the run."""
    if not (f.every and f.each and f.step_seconds):
        return []
    better = interval_for_share(f.each, f.every, f.step_seconds, SHARE)
    if better <= f.every:
        return []
    return [f"{verb} every {better} steps instead of every {f.every}: 1 % of the run, not {f.share:.1%}"]


def _gc_pause(f: Facts) -> list[str]:
    rest = "gc.freeze() after the start-up takes what is there by then out of every later collection"
    if f.every and f.each:
        rhythm = f"it ran every {f.every} steps, {f.each:.2f} s"
        return [rest, f"gc.disable(), and gc.collect() where the training waits anyway: {rhythm}"]
    return [rest, "gc.disable(), and gc.collect() where the training waits anyway (evaluation, a save)"]


def _worker_hang(facts: Facts) -> list[str]:
    if facts.every and facts.each:
        return [
            (
                f"the worker goes on by itself after {seconds(facts.each)}, every {facts.every} steps: see its call "
                "above for sleeps, retries and locks, and take them out of the samples"
            )
        ]
    if facts.fetching:
        return ["see the worker's call above; a DataLoader timeout= turns a hang into an error"]
    return ["see the worker's call above; waiting with a time limit (timeout= of get() or result()) makes it an error"]


_COMPUTED: dict[Cause, Callable[[Facts], list[str]]] = {
    Cause.CHECKPOINT: _checkpoint,
    Cause.DATA_CPU: _data_cpu,
    Cause.DATA_STORAGE: _data_storage,
    Cause.DATA_INLINE: _data_inline,
    Cause.UNKNOWN: _unknown,
    Cause.WORKER_STARTUP: _worker_startup,
    Cause.LOGGING: _logging,
    Cause.CPU_BOUND: _cpu_bound,
    Cause.NETWORK: _network,
    Cause.GC_PAUSE: _gc_pause,
    Cause.WORKER_HANG: _worker_hang,
}
_MEMORY = ("lower batch size, workers or prefetch_factor until the run fits its memory",)
_PLAIN: dict[Cause, tuple[str, ...]] = {
    Cause.CHECKPOINT_UNSAFE: (
        "write to a temporary name in the same directory, fsync, then rename over the old one; keep the last two",
    ),
    Cause.DRIFT: (
        (
            "something is kept from step to step: look for lists and graphs that grow (append loss.item(), not loss), "
            "logs that are read again, and what grew with it above"
        ),
    ),
    Cause.DEADLOCK: (
        "a lock that was held at the fork is never given back: multiprocessing_context='spawn' or 'forkserver'",
        "cv2.setNumThreads(0), OMP_NUM_THREADS=1 and TOKENIZERS_PARALLELISM=false in the workers",
    ),
    Cause.COLLECTIVE_WAIT: ("make the rank named above faster: the others wait for it, whatever they do themselves",),
    Cause.STORAGE_HANG: (
        "the storage did not answer: look at the device or server named above (kernel log, mount, quota, frozen?)",
        "save to a local disk and copy from there, so that the training does not wait for a file system that hangs",
    ),
    Cause.FAKE_BATCHING: (
        "set batch_size in the DataLoader and let its workers put the batch together, instead of next() in a loop",
    ),
    Cause.CPU_CONTENTION: (
        "fewer workers or threads: OMP_NUM_THREADS, cv2.setNumThreads(0); see which processes compete",
        "check the CPU affinity (Cpus_allowed_list)",
    ),
    Cause.CPU_THROTTLED: ("raise the container's CPU limit, or lower threads and workers to fit it",),
    Cause.GPU_MEMORY: (
        "no torch.cuda.empty_cache() in the loop; shapes that repeat, so that the allocator can use its blocks again",
        "near full memory its retries free everything: smaller batch, PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
    ),
    Cause.GPU_THROTTLE: (
        "the reason says what to mend: cooling and air flow for heat, the power supply or its limit for power",
        "nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER shows it; until then use another GPU",
    ),
    Cause.SUSPENDED: ("somebody stopped the process: a debugger, SIGSTOP, a job scheduler or the cgroup freezer",),
    Cause.SWAP: _MEMORY,
    Cause.MEMORY_PRESSURE: _MEMORY,
}
