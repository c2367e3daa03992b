"""How causes, states and phases are called and coloured wherever trainprobe shows them to people. Pure data.

A colour says the family (blue: data, orange: checkpoints, green: CPU, violet: memory, magenta: GPU, cyan: network and
other ranks, yellow: logs, grey: unknown); the name says the rest, so nothing is told by colour alone.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainprobe.model.cause import Cause, Phase, State
from trainprobe.text.saying import word


@dataclass(frozen=True, slots=True)
class Look:
    """A name in a few words, and the colour on a light and on a dark ground."""

    title: str
    light: str
    dark: str


# Generated (make generated): looks
CAUSES: dict[Cause, Look] = {
    Cause.DATA_CPU: Look("loading data (workers busy on the CPU)", "#2563eb", "#6ea8fe"),
    Cause.DATA_STORAGE: Look("loading data from slow storage", "#1e40af", "#4c7df0"),
    Cause.DATA_INLINE: Look("loading data in the training thread", "#3b82c4", "#8bc4ff"),
    Cause.WORKER_STARTUP: Look("starting DataLoader workers", "#0284c7", "#38bdf8"),
    Cause.WORKER_DEATH: Look("a DataLoader worker died", "#b91c1c", "#f87171"),
    Cause.OOM_KILL: Look("killed for want of memory", "#991b1b", "#ff6b6b"),
    Cause.WORKER_HANG: Look("a DataLoader worker that hangs", "#155e75", "#22b8cf"),
    Cause.DEADLOCK: Look("a deadlock", "#7f1d1d", "#fa5252"),
    Cause.CHECKPOINT: Look("saving a checkpoint", "#c2570c", "#ff9f45"),
    Cause.CHECKPOINT_UNSAFE: Look("no complete checkpoint for a while", "#9a3412", "#fdba74"),
    Cause.DISK_FULL: Look("disk full", "#b91c1c", "#f87171"),
    Cause.STORAGE_HANG: Look("storage that does not answer", "#9f1239", "#fb7185"),
    Cause.LOGGING: Look("writing logs", "#a16207", "#facc15"),
    Cause.EVALUATION: Look("evaluation", "#0f766e", "#5eead4"),
    Cause.STARTUP: Look("start-up", "#64748b", "#94a3b8"),
    Cause.COMPILE: Look("compiling", "#78716c", "#a8a29e"),
    Cause.CPU_BOUND: Look("Python work on the CPU", "#15803d", "#4ade80"),
    Cause.GC_PAUSE: Look("garbage collection", "#4d7c0f", "#a3e635"),
    Cause.FAKE_BATCHING: Look("fetching samples one by one", "#4f7cac", "#93b7de"),
    Cause.GPU_MEMORY: Look("allocating GPU memory", "#be185d", "#f472b6"),
    Cause.PID_EXHAUSTION: Look("no more threads or processes", "#b45309", "#fcd34d"),
    Cause.CPU_CONTENTION: Look("waiting for a CPU", "#3f6212", "#bef264"),
    Cause.CPU_THROTTLED: Look("throttling by the CPU quota", "#166534", "#86efac"),
    Cause.SWAP: Look("swapping", "#7e22ce", "#c084fc"),
    Cause.MEMORY_PRESSURE: Look("memory pressure", "#9333ea", "#d8b4fe"),
    Cause.FD_EXHAUSTION: Look("too many open files", "#92400e", "#fbbf24"),
    Cause.SHM_EXHAUSTION: Look("shared memory full", "#6b21a8", "#e879f9"),
    Cause.SHM_LEAK: Look("leaked shared memory", "#86198f", "#f0abfc"),
    Cause.ORPHAN_WORKERS: Look("workers without a trainer", "#475569", "#cbd5e1"),
    Cause.GPU_THROTTLE: Look("a GPU that is throttled", "#db2777", "#f9a8d4"),
    Cause.GPU_ERROR: Look("GPU error", "#9d174d", "#ff5c9e"),
    Cause.COLLECTIVE_WAIT: Look("waiting for other ranks", "#0e7490", "#67e8f9"),
    Cause.NETWORK: Look("waiting for the network", "#0891b2", "#22d3ee"),
    Cause.SUSPENDED: Look("a stop from outside", "#334155", "#e2e8f0"),
    Cause.DRIFT: Look("slowing down over time", "#854d0e", "#fde047"),
    Cause.UNKNOWN: Look("an unknown cause", "#6b7280", "#9ca3af"),
    Cause.RECOMPILE: Look("compiling again", "#9a6700", "#e3b341"),
    Cause.LOCK_WAIT: Look("waiting for a file's lock", "#7c2d6b", "#e879c6"),
}
# End of what is generated

STATES: dict[State, Look] = {
    State.COMPUTE: Look(word("computing on a CPU"), "#8fbf9f", "#3f7d58"),
    State.GPU_WAIT: Look(word("waiting for the GPU's work"), "#5fa8a0", "#2c7a7b"),
    State.DATA_WAIT: Look(word("waiting for data"), "#2563eb", "#6ea8fe"),
    State.DATA_INLINE: Look(word("loading data itself"), "#3b82c4", "#8bc4ff"),
    State.CHECKPOINT: Look(word("writing a checkpoint"), "#c2570c", "#ff9f45"),
    State.LOGGING: Look(word("writing logs"), "#ca8a04", "#facc15"),
    State.MEMORY: Look(word("waiting for memory"), "#7e22ce", "#c084fc"),
    State.FAULT_IO: Look(word("page faults on mapped files"), "#4338ca", "#a5b4fc"),
    State.COLLECTIVE: Look(word("waiting for other ranks"), "#0e7490", "#67e8f9"),
    State.NETWORK: Look(word("on a socket"), "#0891b2", "#22d3ee"),
    State.RUNQUEUE: Look(word("runnable, but without a CPU"), "#65a30d", "#bef264"),
    State.STOPPED: Look(word("stopped"), "#334155", "#e2e8f0"),
    State.LOCK: Look(word("in a lock"), "#a855f7", "#d8b4fe"),
    State.SLEEP: Look(word("asleep by its own wish"), "#9ca3af", "#6b7280"),
    State.OTHER: Look(word("blocked elsewhere"), "#d1a5a5", "#a87878"),
}

PHASES: dict[Phase, Look] = {
    Phase.STARTUP: Look(word("start-up"), "#94a3b8", "#64748b"),
    Phase.COMPILE: Look(word("compiling"), "#a8a29e", "#78716c"),
    Phase.EVALUATION: Look(word("evaluation"), "#2dd4bf", "#0f766e"),
    Phase.ATTACHING: Look(word("attaching"), "#cbd5e1", "#475569"),
    Phase.SHUTDOWN: Look(word("shutdown"), "#94a3b8", "#64748b"),
    Phase.TRAIN: Look(word("training"), "#8fbf9f", "#3f7d58"),
}
