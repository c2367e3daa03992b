"""What watching costs: the processor time of this process and its ended children, and its resident memory."""

from __future__ import annotations

import resource

from trainprobe.collect.procfs import parse_stat, read_file
from trainprobe.model.sample import CostSample


def read(
    bpf_seconds: float | None = None,
    bpf_runs: dict[str, int] | None = None,
    *,
    helpers: float = 0.0,
    stacks: float | None = None,
) -> CostSample:
    """The BPF figures are the kernel's (``Probes.cost()``), None where it does not count them. ``helpers``: seconds of
    children that have not ended. ``stacks``: seconds of those that read stacks, ended ones."""
    seconds = helpers
    for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
        usage = resource.getrusage(who)
        seconds += usage.ru_utime + usage.ru_stime
    stat = parse_stat((read_file("/proc/self/stat", 4096) or b"").decode("ascii", "replace"))
    rss = stat.rss_bytes if stat else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    return CostSample(seconds, rss, bpf_seconds, bpf_runs, stacks)
