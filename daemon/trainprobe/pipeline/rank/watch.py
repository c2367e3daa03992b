"""Observes a late step, so that rules can tell a hang from a slow step."""

from __future__ import annotations

from dataclasses import replace

from trainprobe.causes.policy import Policy
from trainprobe.derive.host.devices import Devices
from trainprobe.derive.steps.late_step import FROZEN_WAITS, Wait, waiting
from trainprobe.derive.steps.ledger import WRITES
from trainprobe.model.cells import Leaf, ThreadState
from trainprobe.model.event import ThreadSample
from trainprobe.pipeline.rank.open_step import OpenStep

_ON_FILES = WRITES | {Leaf.FILE_READ, Leaf.FAULT}
_REMOTE = ("nfs", "rpc_", "fuse", "request_wait_answer", "cifs", "smb", "ceph", "lustre", "ptlrpc", "gpfs", "p9_")


def hanging(sample: ThreadSample, devices: Devices, policy: Policy, now_ns: int, wchan: str = "") -> Wait | None:
    """The thread's present wait, where it is a call on a file that does not come back.

    Slow is not hung: while its device moves bytes, a long fsync is an fsync. Where the device is not known (a network
    file system, an overlay) the kernel's function that it sleeps in decides, or, after a while, the length of the wait.
    """
    if sample.leaf not in _ON_FILES or sample.run != ThreadState.BLOCKED:
        return None
    here = waiting(sample, 0, now_ns)
    if here.ns < policy.storage_hang_ns:
        return None
    here.wchan = wchan
    if wchan in FROZEN_WAITS:
        return here
    still = devices.still_ns(sample.dev, sample.since_ns, writing=sample.leaf in WRITES) if sample.dev else None
    if still is not None:
        here.still_ns = still
        return here if still >= policy.storage_hang_ns else None
    known = sample.dev and devices.of(sample.dev) is not None
    if known:
        return None
    remote = wchan.startswith(_REMOTE)
    return here if here.ns >= (policy.hang_ns if remote else policy.blind_hang_ns) else None


def observe(step: OpenStep, workers: list[ThreadSample], devices: Devices, policy: Policy, since_ns: int) -> None:
    """Take the latest samples of a late step that began at ``since_ns`` into its observations."""
    late, driver, now_ns = step.late, step.sample, step.sample_ns
    if driver is None:
        return
    late.looks += 1
    late.queued += driver.run == ThreadState.RUNNABLE
    if driver.run == ThreadState.BLOCKED and driver.leaf == Leaf.SLEEP:
        late.pauses.add(driver.since_ns)
    late.see_workers(workers, since_ns, now_ns)
    seen = late.inspection
    own = seen if seen is not None and seen.tid == driver.tid else None
    found = hanging(_named(driver, own.path if own else ""), devices, policy, now_ns, own.wchan if own else "")
    if found is None:
        found = next((w for s in workers if (w := hanging(s, devices, policy, now_ns))), None)
    if found is not None and (late.hang is None or found.ns >= late.hang.ns):
        late.hang = found


def _named(sample: ThreadSample, path: str) -> ThreadSample:
    """An open that hangs has no descriptor: its path is what the call was given."""
    return sample if sample.path or not path else replace(sample, path=path)
