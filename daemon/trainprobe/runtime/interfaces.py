"""What the observer is made of: the kernel, the targets, the collectors, the core."""

from __future__ import annotations

from trainprobe.bpf.probes import Probes
from trainprobe.collect.pystack import PyStack
from trainprobe.collect.source import Sources
from trainprobe.model.dataclass import dataclass
from trainprobe.pipeline import Pipeline
from trainprobe.runtime.discovery.targets import Targets
from trainprobe.runtime.loop.clock import Clock
from trainprobe.runtime.sampling.samplers import Collectors


@dataclass(frozen=True, slots=True)
class Parts:
    """What ``Observer`` is built from: one object for each of its sources, and the core."""

    kernel: Probes
    targets: Targets
    sampler: Collectors
    stacks: PyStack
    core: Pipeline
    sources: Sources
    clock: Clock
