"""How causes, states and phases are called and coloured wherever trainprobe shows them to people. Pure data.

A colour says the family (blue: data, orange: checkpoints, green: CPU, violet: memory, magenta: GPU, cyan: network and
other ranks, yellow: logs, grey: unknown); the name says the rest, so nothing is told by colour alone.
"""

from __future__ import annotations

from trainprobe.model.cause import Cause, Phase, State
from trainprobe.model.dataclass import dataclass
from trainprobe.text.saying import word


@dataclass(frozen=True, slots=True)
class Appearance:
    """A name in a few words, and the colour on a light and on a dark ground."""

    title: str
    light: str
    dark: str


# Generated (make generated): looks
CAUSES: dict[Cause, Appearance] = {
    Cause.DATA_CPU: Appearance("loading data (workers busy on the CPU)", "#2563eb", "#6ea8fe"),
    Cause.DATA_STORAGE: Appearance("loading data from slow storage", "#1e40af", "#4c7df0"),
    Cause.DATA_INLINE: Appearance("loading data in the training thread", "#3b82c4", "#8bc4ff"),
    Cause.WORKER_STARTUP: Appearance("starting DataLoader workers", "#0284c7", "#38bdf8"),
    Cause.WORKER_DEATH: Appearance("a DataLoader worker died", "#b91c1c", "#f87171"),
    Cause.OOM_KILL: Appearance("killed for want of memory", "#991b1b", "#ff6b6b"),
    Cause.WORKER_HANG: Appearance("a DataLoader worker that hangs", "#155e75", "#22b8cf"),
    Cause.DEADLOCK: Appearance("a deadlock", "#7f1d1d", "#fa5252"),
    Cause.CHECKPOINT: Appearance("saving a checkpoint", "#c2570c", "#ff9f45"),
    Cause.CHECKPOINT_UNSAFE: Appearance("no complete checkpoint for a while", "#9a3412", "#fdba74"),
    Cause.DISK_FULL: Appearance("disk full", "#b91c1c", "#f87171"),
    Cause.STORAGE_HANG: Appearance("storage that does not answer", "#9f1239", "#fb7185"),
    Cause.LOGGING: Appearance("writing logs", "#a16207", "#facc15"),
    Cause.EVALUATION: Appearance("evaluation", "#0f766e", "#5eead4"),
    Cause.STARTUP: Appearance("start-up", "#64748b", "#94a3b8"),
    Cause.COMPILE: Appearance("compiling", "#78716c", "#a8a29e"),
    Cause.CPU_BOUND: Appearance("Python work on the CPU", "#15803d", "#4ade80"),
    Cause.GC_PAUSE: Appearance("garbage collection", "#4d7c0f", "#a3e635"),
    Cause.FAKE_BATCHING: Appearance("fetching samples one by one", "#4f7cac", "#93b7de"),
    Cause.GPU_MEMORY: Appearance("allocating GPU memory", "#be185d", "#f472b6"),
    Cause.PID_EXHAUSTION: Appearance("no more threads or processes", "#b45309", "#fcd34d"),
    Cause.CPU_CONTENTION: Appearance("waiting for a CPU", "#3f6212", "#bef264"),
    Cause.CPU_THROTTLED: Appearance("throttling by the CPU quota", "#166534", "#86efac"),
    Cause.SWAP: Appearance("swapping", "#7e22ce", "#c084fc"),
    Cause.MEMORY_PRESSURE: Appearance("memory pressure", "#9333ea", "#d8b4fe"),
    Cause.FD_EXHAUSTION: Appearance("too many open files", "#92400e", "#fbbf24"),
    Cause.SHM_EXHAUSTION: Appearance("shared memory full", "#6b21a8", "#e879f9"),
    Cause.SHM_LEAK: Appearance("leaked shared memory", "#86198f", "#f0abfc"),
    Cause.ORPHAN_WORKERS: Appearance("workers without a trainer", "#475569", "#cbd5e1"),
    Cause.GPU_THROTTLE: Appearance("a GPU that is throttled", "#db2777", "#f9a8d4"),
    Cause.GPU_ERROR: Appearance("GPU error", "#9d174d", "#ff5c9e"),
    Cause.COLLECTIVE_WAIT: Appearance("waiting for other ranks", "#0e7490", "#67e8f9"),
    Cause.NETWORK: Appearance("waiting for the network", "#0891b2", "#22d3ee"),
    Cause.SUSPENDED: Appearance("a stop from outside", "#334155", "#e2e8f0"),
    Cause.DRIFT: Appearance("slowing down over time", "#854d0e", "#fde047"),
    Cause.UNKNOWN: Appearance("an unknown cause", "#6b7280", "#9ca3af"),
    Cause.RECOMPILE: Appearance("compiling again", "#9a6700", "#e3b341"),
    Cause.LOCK_WAIT: Appearance("waiting for a file's lock", "#7c2d6b", "#e879c6"),
    Cause.IDLE: Appearance("waiting for input", "#57534e", "#d6d3d1"),
}
# End of what is generated

STATES: dict[State, Appearance] = {
    State.COMPUTE: Appearance(word("computing on a CPU"), "#8fbf9f", "#3f7d58"),
    State.GPU_WAIT: Appearance(word("waiting for the GPU's work"), "#5fa8a0", "#2c7a7b"),
    State.DATA_WAIT: Appearance(word("waiting for data"), "#2563eb", "#6ea8fe"),
    State.DATA_INLINE: Appearance(word("loading data itself"), "#3b82c4", "#8bc4ff"),
    State.CHECKPOINT: Appearance(word("writing a checkpoint"), "#c2570c", "#ff9f45"),
    State.LOGGING: Appearance(word("writing logs"), "#ca8a04", "#facc15"),
    State.MEMORY: Appearance(word("waiting for memory"), "#7e22ce", "#c084fc"),
    State.FAULT_IO: Appearance(word("page faults on mapped files"), "#4338ca", "#a5b4fc"),
    State.COLLECTIVE: Appearance(word("waiting for other ranks"), "#0e7490", "#67e8f9"),
    State.NETWORK: Appearance(word("on a socket"), "#0891b2", "#22d3ee"),
    State.RUNQUEUE: Appearance(word("runnable, but without a CPU"), "#65a30d", "#bef264"),
    State.STOPPED: Appearance(word("stopped"), "#334155", "#e2e8f0"),
    State.LOCK: Appearance(word("in a lock"), "#a855f7", "#d8b4fe"),
    State.SLEEP: Appearance(word("asleep by its own wish"), "#9ca3af", "#6b7280"),
    State.OTHER: Appearance(word("blocked elsewhere"), "#d1a5a5", "#a87878"),
}

PHASES: dict[Phase, Appearance] = {
    Phase.STARTUP: Appearance(word("start-up"), "#94a3b8", "#64748b"),
    Phase.COMPILE: Appearance(word("compiling"), "#a8a29e", "#78716c"),
    Phase.EVALUATION: Appearance(word("evaluation"), "#2dd4bf", "#0f766e"),
    Phase.IDLE: Appearance(word("waiting for input"), "#d6d3d1", "#57534e"),
    Phase.ATTACHING: Appearance(word("attaching"), "#cbd5e1", "#475569"),
    Phase.SHUTDOWN: Appearance(word("shutdown"), "#94a3b8", "#64748b"),
    Phase.TRAIN: Appearance(word("training"), "#8fbf9f", "#3f7d58"),
}
