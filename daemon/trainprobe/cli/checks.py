"""The facts that decide what works on a host. Each check looks itself and says state, reason and remedy."""

from __future__ import annotations

import ctypes.util
import importlib.util
import shutil
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from trainprobe.bpf.compile import kernel_types
from trainprobe.bpf.errors import APT_BCC
from trainprobe.cli import Refusal, published
from trainprobe.collect.pystack import find
from trainprobe.collect.source import Unavailable
from trainprobe.model.dataclass import dataclass
from trainprobe.runtime.publishing import rundir
from trainprobe.runtime.publishing.owner_reports import REMEDY, without_acls
from trainprobe.runtime.session import privileges
from trainprobe.text.saying import Text, saying, word

OK, DEGRADED, MISSING = word("ok"), word("degraded"), word("missing")
"""Works; works without what this would give; nothing can be watched without it."""
SHARES = ("slots", "libraries", "processes")
"""Sources that say for whom a daemon has no room."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the answer. ``why``: what it is needed for."""

    name: str
    state: str
    what: Text
    why: Text
    remedy: Text = ""


def all_checks() -> Iterable[Finding]:
    """Every check, in the order in which a person would mend things."""
    checks: tuple[Callable[[], Finding | list[Finding]], ...] = (
        rights, btf, tracefs, uprobes, lockdown, kallsyms, bcc, libbcc, pid_namespace, psi, acls, py_spy, nvml, swap,
        shares, failed_sources,
    )  # fmt: skip
    for check in checks:
        try:
            found = check()
            yield from [found] if isinstance(found, Finding) else found
        except Exception as error:
            yield Finding(check.__name__, DEGRADED, saying("cannot be told: {error}", error=error), "")


def rights() -> Finding:
    missing = privileges.missing()
    why = word("eBPF programs are loaded with these rights")
    if not missing:
        return Finding(word("rights"), OK, word("all capabilities are there"), why)
    if shutil.which("sudo"):
        what = saying("not root ({names} missing); run and attach will ask sudo for them", names=", ".join(missing))
        return Finding(word("rights"), DEGRADED, what, why, word("run it as root for the daemon"))
    what = saying("not root ({names} missing), and no sudo", names=", ".join(missing))
    return Finding(word("rights"), MISSING, what, why, word("run it as root"))


def btf(path: Path = Path("/sys/kernel/btf/vmlinux")) -> Finding:
    why = word("tells where the fields of kernel structures are")
    if path.exists():
        return Finding("BTF", OK, str(path), why)
    remedy = word("a kernel with CONFIG_DEBUG_INFO_BTF=y (Debian 11+, Ubuntu 20.10+ and RHEL 8.2+ have it)")
    return Finding("BTF", MISSING, saying("{path} does not exist", path=path), why, remedy)


def tracefs(mounts: Path = Path("/proc/self/mounts")) -> Finding:
    why = word("names the tracepoints and the layout of their records")
    for line in mounts.read_text(errors="replace").splitlines():
        words = line.split()
        if len(words) > 2 and words[2] == "tracefs":
            return Finding("tracefs", OK, saying("mounted on {place}", place=words[1]), why)
    if not privileges.missing():
        return Finding("tracefs", OK, word("not mounted; trainprobe mounts it by itself when it starts"), why)
    return Finding("tracefs", DEGRADED, word("not mounted"), why, "mount -t tracefs none /sys/kernel/tracing")


def uprobes(path: Path = Path("/sys/bus/event_source/devices/uprobe/type")) -> Finding:
    why = word("mark the steps of a training inside libtorch")
    if path.exists():
        refused = None if privileges.missing() else privileges.marks_refused()
        if refused:
            return Finding("uprobes", DEGRADED, refused, why, privileges.MARKS_REMEDY)
        return Finding("uprobes", OK, word("the kernel has them"), why)
    return Finding(
        "uprobes", DEGRADED, word("the kernel has none: steps cannot be told"), why, "CONFIG_UPROBE_EVENTS=y"
    )


def lockdown(path: Path = Path("/sys/kernel/security/lockdown")) -> Finding:
    why = word("may forbid eBPF to read kernel memory")
    text = path.read_text() if path.exists() else ""
    if "[confidentiality]" not in text:
        return Finding("lockdown", OK, word("does not forbid it"), why)
    return Finding(
        "lockdown", MISSING, word("confidentiality mode"), why, word("boot with lockdown=integrity, or without it")
    )


def kallsyms(path: str = "/proc/kallsyms") -> Finding:
    why = word("tells a page that is swapped in from other page faults")
    if kernel_types.function_ranges(kernel_types.read_kallsyms(path)):
        return Finding("kallsyms", OK, saying("{path} shows the kernel's addresses", path=path), why)
    if privileges.missing():
        return Finding("kallsyms", DEGRADED, word("not tried: not root"), why, "sudo trainprobe check")
    what = saying(
        "{path} hides the kernel's addresses: every page fault that waits for no file counts as swap", path=path
    )
    remedy = "sysctl kernel.kptr_restrict=1, with CAP_SYSLOG for the daemon; then systemctl restart trainprobe"
    return Finding("kallsyms", DEGRADED, what, why, remedy)


def bcc() -> Finding:
    why = word("compiles the eBPF programs")
    found = importlib.util.find_spec("bcc")
    if found is None or not found.origin:
        what = word("this Python has no bcc module")
        remedy = saying("{command} (and a venv made with --system-site-packages)", command=APT_BCC)
        return Finding("bcc", MISSING, what, why, remedy)
    # PyPI's "bcc" is about crystal lattices.
    if not (Path(found.origin).parent / "libbcc.py").exists():
        other = saying("{origin} is another program of that name", origin=found.origin)
        return Finding("bcc", MISSING, other, why, f"pip uninstall bcc; {APT_BCC}")
    return Finding("bcc", OK, str(Path(found.origin).parent), why)


def libbcc() -> Finding:
    why = word("loads programs and reads their ring buffer without the compiler")
    name = ctypes.util.find_library("bcc_bpf") or ctypes.util.find_library("bcc")
    for library in filter(None, (name, "libbcc_bpf.so.0", "libbcc.so.0")):
        try:
            ctypes.CDLL(library)
        except OSError:
            continue
        return Finding("libbcc", OK, library, why)
    return Finding("libbcc", MISSING, word("libbcc.so.0 cannot be loaded"), why, APT_BCC)


def pid_namespace(proc: str = "/proc") -> Finding:
    why = word("the kernel names processes as the host does")
    if hidden := privileges.pids_hidden(proc):
        return Finding(word("pid namespace"), MISSING, hidden, why, privileges.PIDS_REMEDY)
    return Finding(word("pid namespace"), OK, word("the host's"), why)


def psi(path: Path = Path("/proc/pressure/io")) -> Finding:
    why = word("tells pressure on CPU, memory and I/O of the whole host")
    try:
        path.read_bytes()
    except OSError:
        return Finding("PSI", DEGRADED, word("the kernel does not count pressure"), why, word("boot with psi=1"))
    return Finding("PSI", OK, word("counted"), why)


def acls(directories: Sequence[Path] = (rundir.DIRECTORY, rundir.STATE)) -> Finding:
    why = word("let each user read the report of his own runs, and nobody change it")
    for directory in directories:
        there = next(path for path in (directory, *directory.parents) if path.exists())
        if not rundir.has_acls(there):
            return Finding("ACLs", DEGRADED, without_acls(directory), why, REMEDY)
    return Finding("ACLs", OK, word("the file systems of the reports have them"), why)


def py_spy() -> Finding:
    why = word("tells the Python function in which a training is stalled")
    found = find()
    if isinstance(found, Unavailable):
        return Finding("py-spy", DEGRADED, found.reason, why, found.remedy)
    return Finding("py-spy", OK, found, why)


def nvml() -> Finding:
    why = word("tells what the GPUs do")
    cards = sorted(Path("/proc/driver/nvidia/gpus").glob("*")) if Path("/proc/driver/nvidia").exists() else []
    if not cards:
        return Finding("NVML", OK, word("no NVIDIA GPU here"), why)
    try:
        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        remedy = word("install the driver's libnvidia-ml1, or start the container with the utility capability")
        return Finding(
            "NVML", DEGRADED, saying("{number} GPUs and no libnvidia-ml.so.1", number=len(cards)), why, remedy
        )
    return Finding("NVML", OK, saying("{number} GPUs", number=len(cards)), why)


def swap(path: Path = Path("/proc/swaps")) -> Finding:
    why = word("a training that is swapped out stalls; without swap it is killed instead")
    areas = path.read_text().splitlines()[1:]
    what = saying("{number} in use", number=len(areas)) if areas else word("none")
    return Finding("swap", OK, what, why)


def failed_sources(directory: Path = rundir.DIRECTORY) -> list[Finding]:
    """Of a running daemon."""
    why = word("what depends on it is missing, and causes may be unknown")
    try:
        sources = published.read(directory).sources
    except Refusal:
        return []
    return [
        Finding(name, DEGRADED, source.reason, why, source.remedy)
        for name, source in sources.items()
        if source.state == "error" and name not in SHARES
    ]


def shares(directory: Path = rundir.DIRECTORY) -> Finding:
    """What a running daemon says of users for whom there is no room, and of processes that do not answer."""
    why = word("each user has a part of what the daemon can watch")
    try:
        report = published.read(directory)
    except Refusal:
        return Finding("shares", OK, word("no daemon's report to be read here"), why)
    for name in SHARES:
        source = report.sources.get(name)
        if source is not None and source.state != "up":
            return Finding("shares", DEGRADED, source.reason, why, source.remedy)
    return Finding("shares", OK, word("there is room for all"), why)
