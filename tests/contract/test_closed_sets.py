"""Causes, states and phases are labels, lanes and keys that others build on: closed sets that only grow."""

from __future__ import annotations

from trainprobe.model.cause import KINDS, LOST, Cause, Phase, State

STATES = (
    "compute gpu_wait data_wait data_inline checkpoint logging memory fault_io collective network runqueue stopped "
    "lock sleep other"
)
PHASES = "startup compile evaluation attaching shutdown train"
CAUSES = {
    "stall bottleneck": (
        "data_cpu data_storage data_inline logging cpu_bound cpu_contention cpu_throttled swap memory_pressure "
        "gpu_throttle collective_wait network unknown"
    ),
    "stall": "worker_startup worker_hang deadlock checkpoint storage_hang gc_pause suspended",
    "bottleneck": "fake_batching drift",
    "stall bottleneck event": "gpu_memory",
    "event": "worker_death gpu_error",
    "event warning": "oom_kill disk_full pid_exhaustion fd_exhaustion shm_exhaustion",
    "warning": "checkpoint_unsafe shm_leak orphan_workers",
    "phase": "evaluation startup compile",
}
EXPECTED = {cause: set(kinds.split()) for kinds, causes in CAUSES.items() for cause in causes.split()}


def test_states() -> None:
    assert {str(state) for state in State} == set(STATES.split())


def test_phases() -> None:
    assert {str(phase) for phase in Phase} == set(PHASES.split())


def test_causes_and_where_each_may_appear() -> None:
    assert {str(cause): {str(kind) for kind in KINDS[cause]} for cause in Cause} == EXPECTED


def test_what_may_own_lost_seconds_is_a_stall_or_a_bottleneck() -> None:
    assert {str(cause) for cause in LOST} == {c for c, kinds in EXPECTED.items() if kinds & {"stall", "bottleneck"}}
