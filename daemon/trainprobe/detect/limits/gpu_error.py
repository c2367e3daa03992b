"""A GPU of the run is broken, or has told of an error."""

from __future__ import annotations

from collections.abc import Iterator

from trainprobe.detect.limits.base import GpuFault, Notice, Situation
from trainprobe.model.cause import Cause
from trainprobe.model.report import Evidence

_RESET = "drain the node and reset the GPU (nvidia-smi --gpu-reset), or reboot; if it comes back, have it replaced"
_PROGRAM = "look for a wrong index or an illegal address in a kernel: CUDA_LAUNCH_BLOCKING=1, compute-sanitizer"
MEANINGS = {
    "13": ("graphics engine exception: a kernel did something illegal", _PROGRAM),
    "31": ("page fault of the GPU: a kernel touched memory that is not its own", _PROGRAM),
    "43": ("the GPU stopped processing: an error of the program", _PROGRAM),
    "45": ("the program's channels were torn down, after another error or because it was killed", ""),
    "48": ("double bit ECC error: data is lost", _RESET),
    "63": ("a page or row of memory was retired", "restart the training; watch whether there are more"),
    "64": ("a page or row of memory could not be retired", _RESET),
    "74": ("error on NVLink", _RESET),
    "79": ("the GPU has fallen off the bus", _RESET),
    "94": ("contained ECC error: only this program is hit", "restart the training from its last checkpoint"),
    "95": ("uncontained ECC error", _RESET),
    "119": ("the GPU's own processor (GSP) does not answer", _RESET),
}
"""What NVIDIA's list of Xid errors says of those that end trainings."""


def told(s: Situation) -> Iterator[Notice]:
    """One notice per GPU and error."""
    for fault in s.gpu_faults:
        yield _notice(s, fault)


def _notice(s: Situation, fault: GpuFault) -> Notice:
    meaning, remedy = MEANINGS.get(fault.code, ("", "")) if fault.kind == "xid" else ("", "")
    what = {
        "xid": f"Xid {fault.code}" + (f": {meaning}" if meaning else ""),
        "ecc": f"{fault.code} uncorrected ECC errors",
        "lost": "it has fallen off the bus (NVML: GPU is lost)",
    }[fault.kind]
    evidence = [Evidence(what, None, "", None, fault.bus_id or None)]
    if fault.text:
        evidence.append(Evidence("kernel log", fault.text))
    return Notice(
        f"gpu-{fault.uuid or fault.index}-{fault.kind}-{fault.code}",
        Cause.GPU_ERROR,
        fault.at_ns,
        f"GPU {fault.index} ({fault.bus_id or fault.uuid}): {what}",
        happened=True,
        evidence=evidence,
        advice=[remedy or (_RESET if fault.kind != "xid" else "look the Xid up in NVIDIA's list; nvidia-smi -q")],
        pid=s.driver,
    )
