"""Every threshold of the judgement, with its unit, in one place."""

from __future__ import annotations

from dataclasses import field

from trainprobe.derive.files.purpose import FileRules
from trainprobe.model.dataclass import dataclass
from trainprobe.model.moment import NS


@dataclass(frozen=True, slots=True)
class Policy:
    """Frozen for a run; the configuration may replace single values."""

    stall_factor: float = 1.5  # x baseline
    stall_minimum_ns: int = 50_000_000  # over the baseline
    edge_ns: int = 10_000_000  # the same for the step after one that stalled by its quota, if it was throttled too
    open_cpu_ns: int = (
        7 * NS // 10
    )  # an open stall on the CPU may be the end of the training: wait so much longer before it is published
    open_end_ns: int = 3 * NS  # the same when its workers have just gone, or its interpreter finalizes
    interrupted_end_ns: int = 30 * NS  # the same once it was interrupted: torch gives each worker 5 s to end, in turn
    merge_steps: int = 2  # stalled steps of one cause so close together are one stall
    minor_share: float = 0.08  # of a stall: smaller claims go to its main cause
    minor_contention: float = 0.35  # the same for waiting for a CPU: every wake-up from another wait has some
    stolen_share: float = 0.1  # of the processors, from which on the hypervisor may have taken the driver's
    evaluation_fetches: float = 2.0  # fetches beyond an ordinary step's that make an evaluation
    storage_hang_ns: int = 4 * NS // 5  # a file's call that waits so long on a device that moves no byte hangs
    blind_hang_ns: int = 10 * NS  # the same where nothing is known of the device
    deadlock_ns: int = 4 * NS // 5  # a worker waits so long for a lock, the driver for data, and nobody does anything
    hang_ns: int = 5 * NS  # one worker on the CPU so long, its siblings idle, hangs
    fake_fetches: float = 4.0  # fetches per backward from which a batch is put together by hand
    starved_share: float = 0.2  # of the training's time in stalls for data, from which …
    starved_bottleneck: float = 0.03  # … so much of an ordinary step is enough
    data_bottleneck: float = 0.05  # share of ordinary steps
    blocked_bottleneck: float = 0.03  # the same in waits for data, without what the driver computes in fetches
    inline_bottleneck: float = 0.05
    checkpoint_bottleneck: float = 0.02
    logging_bottleneck: float = 0.015  # its files are known: a few lines in each step take less
    runqueue_bottleneck: float = 0.05
    throttled_bottleneck: float = 0.03
    wait_bottleneck: float = 0.02  # in any other wait
    rest_bottleneck: float = 0.05  # in all waits together that are below their limits
    wake_up_ns: int = 100_000  # in each ordinary step: waits so short are wake-ups
    gpu_bottleneck: float = 0.05  # lost to a lowered clock, or in allocating and freeing the GPU's memory
    gpu_patience_ns: int = 30 * NS  # a step waits so long for its GPU beyond the usual before that may hang
    reclaim_per_fault_ns: int = 60_000  # a page is freed for each that is read back from swap: more is for others
    ranks_bottleneck: float = 0.1  # beyond the least wait among the ranks
    freeze_ns: int = NS  # a stall so long keeps what came before it
    rhythm_window_ns: int = 9 * NS // 10  # looks come each second
    rhythm_after_ns: int = 10 * NS  # of a process whose steps nothing marked yet: what comes then is compared
    rhythm_least_ns: int = 3 * NS // 10  # of new waits in a second make a stall
    rhythm_edge_ns: int = NS // 20  # of them make its first or last second
    drift_least: float = 0.005
    death_stalls_ns: int = 60 * NS  # a wait that begins so soon after a worker's death is for its batch
    death_explains_ns: int = 120 * NS  # a run that ends in error so soon after a worker's death ended by it
    files: FileRules = field(default_factory=FileRules)


def stall_limit_ns(policy: Policy, baseline_ns: float) -> float:
    return max(policy.stall_factor * baseline_ns, baseline_ns + policy.stall_minimum_ns)
