"""A GPU of the run is broken, or has told of an error."""

from __future__ import annotations

from collections.abc import Iterator

from trainprobe.causes import groups
from trainprobe.causes.situation import GpuFault, Notice, Situation
from trainprobe.causes.spec import CauseSpec, OrderedCheck
from trainprobe.model.cause import Cause, Kind
from trainprobe.model.message import Message, template
from trainprobe.model.report import Evidence

_RESET = template(
    "gpu_error.reset",
    "drain the node and reset the GPU (nvidia-smi --gpu-reset), or reboot; if it comes back, have it replaced",
)()
_PROGRAM = template(
    "gpu_error.program",
    "look for a wrong index or an illegal address in a kernel: CUDA_LAUNCH_BLOCKING=1, compute-sanitizer",
)()
_RESTART = template("gpu_error.restart", "restart the training; reset the GPU at the next chance")()
_RESUME = template(
    "gpu_error.resume", "restart the training from its last checkpoint; reset the GPU at the next chance"
)()
_LOOK_UP = template("gpu_error.look_up", "look the Xid up in NVIDIA's list; nvidia-smi -q")()
XID = template("gpu_error.xid", "Xid {code}{meaning}")
MEANING = template("gpu_error.meaning", ": {meaning}")
ECC = template("gpu_error.ecc", "{count:# uncorrected ECC error|# uncorrected ECC errors}")
LOST = template("gpu_error.lost", "it has fallen off the bus (NVML: GPU is lost)")
SUMMARY = template("gpu_error.summary", "GPU {gpu} ({place}): {what}")
KERNEL_LOG = template("gpu_error.kernel_log", "kernel log")
MEANINGS: dict[str, tuple[Message, Message | None]] = {
    "13": (template("gpu_error.xid_13", "graphics engine exception: a kernel did something illegal")(), _PROGRAM),
    "31": (
        template("gpu_error.xid_31", "page fault of the GPU: a kernel touched memory that is not its own")(),
        _PROGRAM,
    ),
    "43": (template("gpu_error.xid_43", "the GPU stopped processing: an error of the program")(), _PROGRAM),
    "45": (
        template(
            "gpu_error.xid_45", "the program's channels were torn down, after another error or because it was killed"
        )(),
        None,
    ),
    "48": (template("gpu_error.xid_48", "double bit ECC error: data is lost")(), _RESET),
    "63": (template("gpu_error.xid_63", "a page or row of memory was retired")(), _RESTART),
    "64": (template("gpu_error.xid_64", "a page or row of memory could not be retired")(), _RESET),
    "74": (template("gpu_error.xid_74", "error on NVLink")(), _RESET),
    "79": (template("gpu_error.xid_79", "the GPU has fallen off the bus")(), _RESET),
    "94": (template("gpu_error.xid_94", "contained ECC error: only this program is hit")(), _RESUME),
    "95": (template("gpu_error.xid_95", "uncontained ECC error")(), _RESET),
    "119": (template("gpu_error.xid_119", "the GPU's own processor (GSP) does not answer")(), _RESET),
    "120": (template("gpu_error.xid_120", "the GPU's own processor (GSP) failed")(), _RESET),
}
"""What NVIDIA's list of Xid errors says of those that end trainings."""


def check(s: Situation) -> Iterator[Notice]:
    """One notice per GPU and error."""
    for fault in s.gpu_faults:
        yield _notice(s, fault)


def _notice(s: Situation, fault: GpuFault) -> Notice:
    meaning, remedy = MEANINGS.get(fault.code, (None, None)) if fault.kind == "xid" else (None, None)
    what = {
        "xid": XID(code=fault.code, meaning=MEANING(meaning=meaning) if meaning else None),
        "ecc": ECC(count=fault.code),
        "lost": LOST(),
    }[fault.kind]
    evidence = [Evidence.of(what, None, "", None, fault.bus_id or None)]
    if fault.text:
        evidence.append(Evidence.of(KERNEL_LOG(), fault.text))
    return Notice(
        f"gpu-{fault.uuid or fault.index}-{fault.kind}-{fault.code}",
        Cause.GPU_ERROR,
        fault.at_ns,
        SUMMARY(gpu=fault.index, place=fault.bus_id or fault.uuid, what=what),
        happened=True,
        evidence=evidence,
        advice=[remedy or (_RESET if fault.kind != "xid" else _LOOK_UP)],
        pid=s.driver,
    )


SPEC = CauseSpec(
    "gpu_error",
    kinds=frozenset({Kind.EVENT}),
    title="GPU error",
    colours=("#9d174d", "#ff5c9e"),
    group=groups.GPU,
    checks=(OrderedCheck(check, 10),),
    gpu_works=True,
)
