"""The closed sets of CAUSES: states, causes, kinds, phases. Keys are public (reports, labels, dashboards)."""

from __future__ import annotations

from trainprobe.model.text import StrEnum


class State(StrEnum):
    """What the driving thread did: exclusive, adds up to wall time."""

    COMPUTE = "compute"
    GPU_WAIT = "gpu_wait"
    DATA_WAIT = "data_wait"
    DATA_INLINE = "data_inline"
    CHECKPOINT = "checkpoint"
    LOGGING = "logging"
    MEMORY = "memory"
    FAULT_IO = "fault_io"
    COLLECTIVE = "collective"
    NETWORK = "network"
    RUNQUEUE = "runqueue"
    STOPPED = "stopped"
    LOCK = "lock"
    SLEEP = "sleep"
    OTHER = "other"


class Kind(StrEnum):
    STALL = "stall"
    BOTTLENECK = "bottleneck"
    EVENT = "event"
    PHASE = "phase"
    WARNING = "warning"


class Phase(StrEnum):
    STARTUP = "startup"
    COMPILE = "compile"
    EVALUATION = "evaluation"
    IDLE = "idle"
    ATTACHING = "attaching"
    SHUTDOWN = "shutdown"
    TRAIN = "train"


# Generated (make generated): causes
class Cause(StrEnum):
    DATA_CPU = "data_cpu"
    DATA_STORAGE = "data_storage"
    DATA_INLINE = "data_inline"
    WORKER_STARTUP = "worker_startup"
    WORKER_DEATH = "worker_death"
    OOM_KILL = "oom_kill"
    WORKER_HANG = "worker_hang"
    DEADLOCK = "deadlock"
    CHECKPOINT = "checkpoint"
    CHECKPOINT_UNSAFE = "checkpoint_unsafe"
    DISK_FULL = "disk_full"
    STORAGE_HANG = "storage_hang"
    LOGGING = "logging"
    EVALUATION = "evaluation"
    STARTUP = "startup"
    COMPILE = "compile"
    CPU_BOUND = "cpu_bound"
    GC_PAUSE = "gc_pause"
    FAKE_BATCHING = "fake_batching"
    GPU_MEMORY = "gpu_memory"
    PID_EXHAUSTION = "pid_exhaustion"
    CPU_CONTENTION = "cpu_contention"
    CPU_THROTTLED = "cpu_throttled"
    SWAP = "swap"
    MEMORY_PRESSURE = "memory_pressure"
    FD_EXHAUSTION = "fd_exhaustion"
    SHM_EXHAUSTION = "shm_exhaustion"
    SHM_LEAK = "shm_leak"
    ORPHAN_WORKERS = "orphan_workers"
    GPU_THROTTLE = "gpu_throttle"
    GPU_ERROR = "gpu_error"
    COLLECTIVE_WAIT = "collective_wait"
    NETWORK = "network"
    SUSPENDED = "suspended"
    DRIFT = "drift"
    UNKNOWN = "unknown"
    RECOMPILE = "recompile"
    LOCK_WAIT = "lock_wait"
    IDLE = "idle"


_S, _B, _E, _P, _W = Kind.STALL, Kind.BOTTLENECK, Kind.EVENT, Kind.PHASE, Kind.WARNING
KINDS: dict[Cause, frozenset[Kind]] = {
    Cause.DATA_CPU: frozenset({_S, _B}),
    Cause.DATA_STORAGE: frozenset({_S, _B}),
    Cause.DATA_INLINE: frozenset({_S, _B}),
    Cause.WORKER_STARTUP: frozenset({_S, _B}),
    Cause.WORKER_DEATH: frozenset({_E}),
    Cause.OOM_KILL: frozenset({_E, _W}),
    Cause.WORKER_HANG: frozenset({_S}),
    Cause.DEADLOCK: frozenset({_S}),
    Cause.CHECKPOINT: frozenset({_S, _B}),
    Cause.CHECKPOINT_UNSAFE: frozenset({_W}),
    Cause.DISK_FULL: frozenset({_E, _W}),
    Cause.STORAGE_HANG: frozenset({_S}),
    Cause.LOGGING: frozenset({_S, _B}),
    Cause.EVALUATION: frozenset({_P}),
    Cause.STARTUP: frozenset({_P}),
    Cause.COMPILE: frozenset({_P}),
    Cause.CPU_BOUND: frozenset({_S, _B}),
    Cause.GC_PAUSE: frozenset({_S}),
    Cause.FAKE_BATCHING: frozenset({_B}),
    Cause.GPU_MEMORY: frozenset({_S, _B, _E, _W}),
    Cause.PID_EXHAUSTION: frozenset({_E, _W}),
    Cause.CPU_CONTENTION: frozenset({_S, _B}),
    Cause.CPU_THROTTLED: frozenset({_S, _B}),
    Cause.SWAP: frozenset({_S, _B}),
    Cause.MEMORY_PRESSURE: frozenset({_S, _B}),
    Cause.FD_EXHAUSTION: frozenset({_E, _W}),
    Cause.SHM_EXHAUSTION: frozenset({_E, _W}),
    Cause.SHM_LEAK: frozenset({_W}),
    Cause.ORPHAN_WORKERS: frozenset({_W}),
    Cause.GPU_THROTTLE: frozenset({_S, _B}),
    Cause.GPU_ERROR: frozenset({_E}),
    Cause.COLLECTIVE_WAIT: frozenset({_S, _B}),
    Cause.NETWORK: frozenset({_S, _B}),
    Cause.SUSPENDED: frozenset({_S}),
    Cause.DRIFT: frozenset({_B}),
    Cause.UNKNOWN: frozenset({_S, _B}),
    Cause.RECOMPILE: frozenset({_S, _B}),
    Cause.LOCK_WAIT: frozenset({_S}),
    Cause.IDLE: frozenset({_P}),
}
# End of what is generated

LOST: tuple[Cause, ...] = tuple(c for c, kinds in KINDS.items() if kinds & {Kind.STALL, Kind.BOTTLENECK})
"""Causes that may own lost seconds: their counters exist at 0 from the start."""
