"""A loader worker died: by a signal, and whose, or by an error of its own."""

from __future__ import annotations

from trainprobe.causes import groups
from trainprobe.causes.spec import CauseSpec
from trainprobe.derive.workers import Death
from trainprobe.model.cause import Cause, Kind
from trainprobe.model.message import Message, template
from trainprobe.model.moment import NS, Moment
from trainprobe.model.report import Evidence, Warning_

LIVED = template("worker_death.lived", "worker lived")
SIGNAL = template("worker_death.signal", "signal")
EXIT_CODE = template("worker_death.exit_code", "exit code")
SENT_BY = template("worker_death.sent_by", "signal sent by {sender}")
A_PROCESS = template("worker_death.a_process", "a process")
_KILL, _ABORT, _BUS, _FAULT = 9, 6, 7, 11
MEMORY_KEEPERS = ("earlyoom", "systemd-oomd", "oomd", "nohang")


def cause_of(death: Death) -> Cause:
    """A kill for want of memory has a cause of its own."""
    return Cause.OOM_KILL if death.reason == "oom_kill" else Cause.WORKER_DEATH


def warning(death: Death, at: Moment) -> Warning_:
    evidence = [Evidence.of(LIVED(), round(death.lived_ns / NS, 3), "s", death.pid)]
    if death.signal is not None:
        evidence.append(Evidence.of(SIGNAL(), death.signal, "", death.pid))
    elif death.code is not None:
        evidence.append(Evidence.of(EXIT_CODE(), death.code, "", death.pid))
    if death.sender_pid:
        sender = death.sender_comm or A_PROCESS()
        evidence.append(Evidence.of(SENT_BY(sender=sender), None, "", death.sender_pid))
    cause = cause_of(death)
    advice = _advice(death) if cause == Cause.WORKER_DEATH else []
    return Warning_.of(death.message(), cause.value, at.wall_of(death.at_ns), None, evidence, advice)


KEEPER = template(
    "worker_death.advice.keeper",
    "{name} kills to keep memory free: lower num_workers, prefetch_factor or the batch size",
)
ASK_SENDER = template(
    "worker_death.advice.ask_sender",
    "the training did not fail by itself: ask who runs {who} why it kills workers (a scheduler, a clean-up script, "
    "a person)",
)
TRAINING_SENT = template(
    "worker_death.advice.training_sent",
    "the training itself (pid {pid}) sent the signal: look in its code and its libraries for os.kill, kill() and "
    "terminate()",
)
SENDER = template("worker_death.advice.sender", "{name} (pid {pid})")
SENDER_PID = template("worker_death.advice.sender_pid", "pid {pid}")
SHM_TOO_SMALL = template(
    "worker_death.advice.shm_too_small",
    "signal 7: /dev/shm was full (docker run --shm-size=8g, fewer workers), or a mapped data file was cut short or "
    "replaced while it was read",
)
NATIVE_CRASH = template(
    "worker_death.advice.native_crash",
    "native code crashed (a decoder, OpenCV, the dataset's own extension): python -X faulthandler shows where",
)
CRASH_IN_MAIN = template(
    "worker_death.advice.crash_in_main",
    "run with num_workers=0 once: the same sample then crashes the training process, where a debugger sees it",
)
KERNEL_SENT = template(
    "worker_death.advice.kernel_sent",
    "no process sent this signal, the kernel did: look into dmesg, and at the container's memory limit",
)
SEE_EXCEPTION = template(
    "worker_death.advice.see_exception",
    "see its stderr for what ended it (sys.exit, os._exit, unpickling under spawn); num_workers=0 runs the same code "
    "in the training process",
)


def _advice(death: Death) -> list[Message]:
    if death.sender is not None:
        return [TRAINING_SENT(pid=death.sender_pid) if death.by_training else _of_sender(*death.sender)]
    if death.signal == _BUS:
        return [SHM_TOO_SMALL()]
    if death.signal in (_ABORT, _FAULT):
        return [NATIVE_CRASH(), CRASH_IN_MAIN()]
    return [KERNEL_SENT() if death.signal == _KILL else SEE_EXCEPTION()]


def _of_sender(pid: int, name: str) -> Message:
    if name in MEMORY_KEEPERS:
        return KEEPER(name=name)
    return ASK_SENDER(who=SENDER(name=name, pid=pid) if name else SENDER_PID(pid=pid))


SPEC = CauseSpec(
    "worker_death",
    kinds=frozenset({Kind.EVENT}),
    title="a DataLoader worker died",
    colours=("#b91c1c", "#f87171"),
    group=groups.WORKERS,
)
