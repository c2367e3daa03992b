"""The speed at which a run's cgroup lets it use a device, beside what is slow on that device."""

from __future__ import annotations

from trainprobe.causes.advice import AdviceInput
from trainprobe.causes.base import Window
from trainprobe.model.message import Message, template
from trainprobe.model.report import Evidence
from trainprobe.model.sample import IoLimitSample

READS = template("io_limit.reads", "its cgroup {cgroup} lets the run read {rate:MB/s} from {device}")
WRITES = template("io_limit.writes", "its cgroup {cgroup} lets the run write {rate:MB/s} to {device}")
READ_CALLS = template("io_limit.read_calls", "its cgroup {cgroup} lets the run read {device} {calls} times a second")
WRITE_CALLS = template("io_limit.write_calls", "its cgroup {cgroup} lets the run write {device} {calls} times a second")
LIMIT = template("io_limit.limit", "speed limit of the cgroup")
CALLS_LIMIT = template("io_limit.calls_limit", "limit of the cgroup, calls a second")
RAISE = template(
    "io_limit.advice.raise",
    "raise the cgroup's limit of the device (io.max, blkio.throttle; docker run --device-read-bps, "
    "--device-write-bps): the disk itself may be faster",
)
_REACHED = 0.5
"""Of the limit: a device that moves less is slow by itself."""


def found(window: Window, dev: int, *, writing: bool) -> tuple[list[Message], list[Evidence]]:
    """The limit that the file's device has reached, and its figures; nothing where there is none."""
    limit, device = of_device(window, dev), window.devices.of(dev)
    if limit is None or device is None:
        return [], []
    rate, calls = (limit.write_bytes, limit.writes) if writing else (limit.read_bytes, limit.reads)
    moved = device.write_rate if writing else device.read_rate
    if rate is not None and moved is not None and moved >= _REACHED * rate:
        told = (WRITES if writing else READS)(cgroup=limit.cgroup, rate=rate, device=device.name)
        return [told], [Evidence.of(LIMIT(), round(rate / 1e6, 1), "MB/s", None, limit.cgroup)]
    if calls is not None:
        told = (WRITE_CALLS if writing else READ_CALLS)(cgroup=limit.cgroup, calls=calls, device=device.name)
        return [told], [Evidence.of(CALLS_LIMIT(), calls, "", None, limit.cgroup)]
    return [], []


def is_reached(f: AdviceInput) -> bool:
    """Whether ``found`` had told one."""
    return f.saw(LIMIT) or f.saw(CALLS_LIMIT)


def of_device(window: Window, dev: int) -> IoLimitSample | None:
    """The cgroup's limit of a device; None: there is none, or the device is not known."""
    device = window.devices.of(dev)
    limits = (one for one in window.io_limits if device is not None and _is_of(one, window, device.name))
    return next(limits, None)


def _is_of(limit: IoLimitSample, window: Window, name: str) -> bool:
    """Whether it is that of the device or of the disk that the device is a part of."""
    disk = window.devices.of(limit.dev)
    if disk is None:
        return False
    apart = "p" if disk.name[-1:].isdecimal() else ""  # sda1, nvme0n1p1
    return name == disk.name or name.removeprefix(f"{disk.name}{apart}").isdecimal()
