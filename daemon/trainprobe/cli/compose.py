"""Puts kernel, targets, collectors and core together: the same for `run`, `attach` and the daemon."""

from __future__ import annotations

import dataclasses

from trainprobe.bpf.errors import ProbesUnavailable
from trainprobe.bpf.load.loader import Compiling
from trainprobe.bpf.probes import Probes
from trainprobe.cli.compose_core import host, policy
from trainprobe.collect.kernel_log import KernelLog
from trainprobe.collect.nvml import Gpus
from trainprobe.collect.procfs import Proc
from trainprobe.collect.pystack import PyStack
from trainprobe.collect.source import Sources, Unavailable
from trainprobe.config.schema import DaemonConfig
from trainprobe.model.dataclass import dataclass
from trainprobe.model.message import template
from trainprobe.pipeline import Pipeline
from trainprobe.runtime.discovery.targets import Targets
from trainprobe.runtime.discovery.watch_locks import WatchLocks
from trainprobe.runtime.loop import clock
from trainprobe.runtime.loop.budget import CostBudget
from trainprobe.runtime.observer import Observer, Outlets, Parts
from trainprobe.runtime.sampling.samplers import Collectors
from trainprobe.runtime.session import privileges

NO_TRACEPOINTS = template("source.no_tracepoints", "this kernel does not have: {names:, }")
OWN_COMMANDS = ("*/trainprobe run *", "*/trainprobe attach *", "trainprobe run *", "trainprobe attach *")
"""Their arguments may look like a training's; what they start does not match."""


@dataclass(frozen=True, slots=True)
class Assembled:
    probes: Probes
    targets: Targets
    core: Pipeline
    stacks: PyStack
    observer: Observer


def assemble(
    config: DaemonConfig,
    outlets: Outlets,
    *,
    auto: bool,
    claims: WatchLocks | None = None,
    compiling: Compiling | None = None,
    proc: Proc | None = None,
) -> Assembled:
    """Everything, running in the kernel already; ``compiling`` where that was begun before.

    Raises ProbesUnavailable; ``observer.close`` takes it all away.
    """
    if hidden := privileges.pids_hidden():
        raise ProbesUnavailable(hidden, privileges.PIDS_REMEDY)
    proc, sources = proc or Proc(), Sources()
    probes = Probes.start(proc, auto=auto, begun=compiling)
    exclude = config.targets.exclude
    exclude = dataclasses.replace(exclude, commands=(*exclude.commands, *OWN_COMMANDS))
    wanted = dataclasses.replace(config.targets, auto=auto, exclude=exclude)
    targets = Targets(probes, wanted, proc=proc, claims=claims)
    core = Pipeline(policy(config), host())
    stacks = PyStack(config.python_stack.enabled and config.privacy.stacks, config.python_stack.path, proc)
    if lacking := probes.missing():
        sources.record("tracepoints", Unavailable(NO_TRACEPOINTS(names=lacking)), 0)
    if refused := privileges.marks_refused():
        sources.record("uprobes", Unavailable(refused, privileges.MARKS_REMEDY), 0)
    sampler = Collectors(sources, proc, KernelLog(), Gpus())
    parts = Parts(probes, targets, sampler, stacks, core, sources, clock.now)
    observer = Observer(parts, outlets, CostBudget(config.budget.cpu))
    return Assembled(probes, targets, core, stacks, observer)
