"""Closed sets and constants that daemon, exporter, dashboards and docs share, besides those of ``model.cause``.

Members are public: label values of metrics and keys of reports.
"""

from __future__ import annotations

import re

from trainprobe.model.text import StrEnum

MAPS_LIMIT = 16 << 20
"""Bytes that are read of /proc/PID/maps: a text of this length may be cut off."""

CHECKPOINT_OUTCOMES = ("complete", "error", "unsafe")
CHECKPOINT_OPERATIONS = ("write", "fsync", "rename", "serialize", "other")
BLOCKING = ("true", "false")  # whether the driver waited for the checkpoint's operation
LOG_KINDS = ("tensorboard", "wandb", "stdout", "log")
EXIT_REASONS = ("finished", "oom_kill", "killed", "crashed", "exited")  # of a DataLoader worker


class Ending(StrEnum):
    FINISHED = "finished"
    EXCEPTION = "exception"  # an exit code other than 0, a crash, or an abort
    KILLED = "killed"  # by a signal from outside
    OWN_KILL = "own_kill"  # by a signal of a process of the run
    INTERRUPTED = "interrupted"  # SIGINT
    TIMEOUT = "timeout"  # by a program or a limit that ends what takes too long
    WATCHDOG = "watchdog"  # by the watchdog of a process group, or by torchrun
    OOM = "oom"  # for lack of memory
    RUNNING = "running"


MODEL_LIBRARIES = re.compile(rb"/(libjax_common|xla_extension|(lib)?_pywrap_(tfe|tensorflow\w*))\.so$", re.MULTILINE)
"""Libraries in which JAX and TensorFlow release the interpreter's lock to run a model: the end of a path."""
DESCRIPTOR_ERRORS = {0: "MSG_CTRUNC", 23: "ENFILE", 24: "EMFILE"}
"""Calls that failed for want of descriptors, by errno; 0: a message whose descriptors were cut off."""
MEMORY_SCOPES = ("cgroup", "host")
RESOURCES = ("cpu", "memory", "io")  # of pressure stall information
PRESSURE_KINDS = ("some", "full")
GPU_ERRORS = ("xid", "ecc", "lost")
PASSES_ON = "trainprobe"
"""The name of the process that passes its signals on to the command which it watches."""

REPORT_PAUSE_SECONDS = 31.0
"""The longest pause between two reports of a daemon at work: while all steps are even, and nobody reads them."""
REPORT_STALE_SECONDS = 45.0
"""The daemon of an older report does not run: a pause and half of one."""
