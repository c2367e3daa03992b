"""The core as the configuration, or a recording, wants it. Nothing here needs rights or loads anything."""

from __future__ import annotations

import dataclasses
import os

from trainprobe import __version__
from trainprobe.causes.policy import Policy
from trainprobe.collect.host_name import host_name
from trainprobe.config.schema import DaemonConfig
from trainprobe.derive.files.purpose import CHECKPOINT_PATTERNS, FileRules
from trainprobe.model.moment import NS
from trainprobe.model.report import Host
from trainprobe.pipeline import Pipeline
from trainprobe.wire import codec
from trainprobe.wire.recording import Header


def policy(config: DaemonConfig) -> Policy:
    return Policy(
        stall_factor=config.thresholds.stall_factor,
        stall_minimum_ns=round(config.thresholds.stall_minimum_seconds * NS),
        files=FileRules((*CHECKPOINT_PATTERNS, *config.checkpoints.patterns)),
    )


def host() -> Host:
    uname = os.uname()
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return Host(name=host_name(), kernel=uname.release, cpus=os.cpu_count() or 0, memory_bytes=memory)


def header(config: DaemonConfig) -> Header:
    """What a recording must say for its replay to judge alike."""
    return Header(host(), dataclasses.asdict(policy(config)), __version__)


def recorded_core(recorded: Header) -> Pipeline:
    """The core that a recording was made for. Raises WireError."""
    return Pipeline(codec.decode(Policy, recorded.policy), recorded.host)
