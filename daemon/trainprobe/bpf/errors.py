# SPDX-License-Identifier: Apache-2.0
"""Why there are no probes, and what mends it."""

from __future__ import annotations

from trainprobe.model.message import Message, template

NO_TYPES = template("probes.no_types", "the kernel has no type information: {error}")
NO_MEMBER = template("probes.no_member", "this kernel has no {member}")
NO_RIGHTS = template("probes.no_rights", "no permission for eBPF: {names: and } missing")
NO_BPF = template("probes.no_bpf", "cannot tell where time goes because bpf() is refused here: {error}")
BY_FILTER = template("probes.by_filter", "{refused}, by a seccomp filter")
NO_TRACEFS = template("probes.no_tracefs", "tracefs is not mounted and cannot be: {error}")
NO_BCC = template("probes.no_bcc", "BCC cannot be imported: {error}")
OTHER_BCC = template("probes.other_bcc", "the module bcc is not the BPF compiler")
NO_LIBRARY = template("probes.no_library", "libbpf cannot be loaded: {error}")
NOT_COMPILED = template("probes.not_compiled", "compiling the probes failed: {error}")
DIED = template("probes.died", "the probes' compiler died with status {status}")
LACKING = template("probes.lacking", "the compiled programs lack {name}")
NO_MAP = template("probes.no_map", "the kernel refused the map {name}: {error}")
NO_ENTRY = template("probes.no_entry", "the kernel refused an entry of the map {name}")
NO_PROGRAM = template("probes.no_program", "the kernel refused the program {name}: {error}")
NO_EVENT = template("probes.no_event", "the kernel refused to attach {event}")
NO_RING = template("probes.no_ring", "the ring buffer cannot be mapped")
FEW_DESCRIPTORS = template("probes.few_descriptors", "too few file descriptors for the probes")
WITH_OUTPUT = template("probes.with_output", "{reason}\n{output}")

AS_ROOT = template("probes.as_root", "run as root")
AS_ROOT_OR_LOG = template("probes.as_root_or_log", "run as root; see the kernel log")
BOOT_TYPES = template("probes.boot_types", "boot a kernel with CONFIG_DEBUG_INFO_BTF=y")
BOOT_BPF = template("probes.boot_bpf", "boot a kernel with CONFIG_BPF_SYSCALL=y")
TELL_VERSION = template("probes.tell_version", "report this kernel's version to the project")
TELL = template("probes.tell", "report this to the project")
OUTSIDE = template(
    "probes.outside",
    "run trainprobe on the host, beside the container; else allow bpf and perf_event_open: in docker or podman "
    "--security-opt seccomp=unconfined, in a systemd unit SystemCallFilter=bpf perf_event_open",
)
SEE_LOCKDOWN = template("probes.see_lockdown", "see /sys/kernel/security/lockdown, ulimit -l and the kernel log")
INSTALL_BCC = template("probes.install_bcc", "{command}, and run with the distribution's /usr/bin/python3")
REPLACE_BCC = template("probes.replace_bcc", "uninstall PyPI's bcc; {command}")
SEE_ABOVE = template("probes.see_above", "see the text above; is the kernel older than 5.15?")
SEE_LIMIT = template("probes.see_limit", "see ulimit -l and the kernel log")
SEE_LOG = template("probes.see_log", "see the kernel log")
SEE_MEMORY = template("probes.see_memory", "see the memory limits of this process")
TRY_AGAIN = template("probes.try_again", "try again; see dmesg")
APT_BCC = "apt-get install python3-bpfcc"


class ProbesUnavailable(Exception):
    """The kernel cannot be watched: ``reason`` in one sentence, ``remedy`` what a person can do about it, a sentence
    too or a command."""

    def __init__(self, reason: Message | str, remedy: Message | str) -> None:
        super().__init__(f"{reason} ({remedy})" if remedy else str(reason))
        self.reason = reason
        self.remedy = remedy
