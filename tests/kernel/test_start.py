# SPDX-License-Identifier: Apache-2.0
"""Starting, and leaving nothing behind."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks import pace
from tests.kernel.observing import await_true, observe
from trainprobe.bpf.load.kernel_calls import KernelCalls
from trainprobe.bpf.probes import Probes, ProbesUnavailable
from trainprobe.collect.procfs import Proc

CHECKOUT = Path(__file__).parents[2]
START = "from trainprobe.bpf.probes import Probes, ProbesUnavailable\nfrom trainprobe.collect.procfs import Proc\n"


def run(body: str, *before: str, path: str = "") -> subprocess.CompletedProcess[str]:
    """Run Python that imports the product, behind a command like unshare."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [path, str(CHECKOUT / "daemon")]))}
    command = [*before, sys.executable, "-c", START + body]
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False, timeout=90)


REFUSAL = """
try:
    Probes.start(Proc(), auto=False)
except ProbesUnavailable as e:
    print('REASON', e.reason)
    print('REMEDY', e.remedy)
"""


def test_the_ring_delivers_after_the_compilers_child_is_gone(probes: Probes) -> None:
    """The child exits when the marks are there, too; what its programs tell still comes."""
    probes.await_marks()
    children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()
    assert not [pid for pid in children if "compile" in Path(f"/proc/{pid}/cmdline").read_text()]
    told = observe(probes, "import os\nif os.fork() == 0: os._exit(0)\nos.wait()")
    assert len(told.processes()) == 3  # fork, two exits


def test_a_command_starts_when_the_marks_are_compiled() -> None:
    """Its first steps may else come before them, where the compiler has to share its processor."""
    seen = """
import os
from pathlib import Path
def field(pid, at): return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[at])
for path in Path("/proc").glob("[0-9]*/cmdline"):
    try:
        if "trainprobe.bpf.compile.child" in path.read_text().split("\\0"):
            parent = field(path.parent.name, 1)
            print("COMPILES", os.getppid() in (parent, field(parent, 1)))
    except OSError:
        pass
"""
    command = [sys.executable, "-m", "trainprobe.cli", "run", "--", sys.executable, "-c", seen]
    paths = os.pathsep.join((str(CHECKOUT / "daemon"), str(CHECKOUT / "exporters")))
    environment = {**os.environ, "PYTHONPATH": paths, "TRAINPROBE_CACHE": "off"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False, timeout=90)
    assert done.returncode == 0, done.stderr
    assert "COMPILES True" not in done.stdout


def test_the_parent_stays_small_and_has_no_compiler() -> None:
    done = run(
        "p = Probes.start(Proc(), auto=True)\nmaps = open('/proc/self/maps').read()\n"
        "print([name for name in ('LLVM', 'libbcc', 'libstdc++') if name in maps])\n"
        "print(next(l for l in open('/proc/self/status') if l.startswith('VmRSS')).split()[1])\np.close()"
    )
    compiler, kilobytes = done.stdout.strip().split("\n")
    assert compiler == "[]"
    assert int(kilobytes) < 22_000


def program_ids(probes: Probes) -> list[int]:
    """The kernel's ids of our programs."""
    probes.await_marks()
    libc, ids = ctypes.CDLL(None), []
    bpf = KernelCalls._NUMBERS[os.uname().machine][0]
    for descriptor in probes._loaded.programs.values():
        info = ctypes.create_string_buffer(256)
        attributes = ctypes.create_string_buffer(struct.pack("=IIQ", descriptor, 256, ctypes.addressof(info)), 128)
        assert libc.syscall(bpf, 15, attributes, 128) == 0
        ids.append(struct.unpack_from("=I", info.raw, 4)[0])
    return ids


def exists(program: int) -> bool:
    attributes = ctypes.create_string_buffer(struct.pack("=I", program), 128)
    descriptor = ctypes.CDLL(None).syscall(KernelCalls._NUMBERS[os.uname().machine][0], 13, attributes, 128)
    if descriptor >= 0:
        os.close(descriptor)
    return descriptor >= 0


def test_close_is_quick_and_leaves_no_program() -> None:
    probes = Probes.start(Proc(), auto=True)
    ids = program_ids(probes)
    assert all(exists(program) for program in ids)
    began = time.monotonic()
    probes.close()
    assert pace.within(time.monotonic() - began, 1.0)
    probes.close()
    await_true(lambda: not any(exists(program) for program in ids), "the programs to go", limit=30)


def test_killed_it_leaves_no_program() -> None:
    body = (
        f"import sys\nsys.path.insert(0, {str(CHECKOUT)!r})\nfrom tests.kernel.test_start import program_ids\n"
        "p = Probes.start(Proc(), auto=False)\nprint(*program_ids(p), flush=True)\ninput()"
    )
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT / "daemon")}
    process = subprocess.Popen(
        [sys.executable, "-c", START + body], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    )
    assert process.stdout
    ids = [int(word) for word in process.stdout.readline().split()]
    assert ids
    assert all(exists(program) for program in ids)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    await_true(lambda: not any(exists(program) for program in ids), "the programs to go", limit=30)


def test_tracefs_is_mounted_when_it_is_missing() -> None:
    body = (
        "import os\nassert not os.path.isdir('/sys/kernel/tracing/events')\n"
        "p = Probes.start(Proc(), auto=False)\nprint('fine')\np.close()"
    )
    script = f'umount -l /sys/kernel/tracing /sys/kernel/debug 2>/dev/null; exec "{sys.executable}" -c "$0"'
    done = run_in_mounts(script, START + body)
    assert done.stdout == "fine\n", done.stderr


def test_no_tracefs_and_no_way_to_mount_it_says_how() -> None:
    script = (
        "umount -l /sys/kernel/tracing /sys/kernel/debug 2>/dev/null; mount -t tmpfs none /sys/kernel; "
        "mkdir -p /sys/kernel/btf; "
        f'exec "{sys.executable}" -c "$0"'
    )
    done = run_in_mounts(script, START + REFUSAL)
    assert "tracefs is not mounted" in done.stdout, done.stdout + done.stderr
    assert "REMEDY mount -t tracefs none /sys/kernel/tracing" in done.stdout


UNMOUNTED = """
import os, subprocess, sys
from trainprobe.model.event import FileEvent, FileEventKind, ProcessEvent, ProcessEventKind
p = Probes.start(Proc(), auto=True)
for place in ("/sys/kernel/tracing", "/sys/kernel/debug"):
    subprocess.run(["umount", "-l", place], stderr=subprocess.DEVNULL)
assert not os.path.isdir("/sys/kernel/tracing/events")
body = "import os, sys; sys.stdin.read(); open(sys.argv[1], 'wb').write(bytes(1 << 20)); "
body += "os.fork() or os._exit(0); os.wait()"
child = subprocess.Popen([sys.executable, "-S", "-c", body, sys.argv[1]], stdin=subprocess.PIPE)
p.watch(child.pid)
p.fault_tracing(True)
child.communicate()
p.fault_tracing(False)
told = p.drain()
closed = [e for e in told if isinstance(e, FileEvent) and e.kind is FileEventKind.CLOSED]
print(sum(e.bytes for e in closed if e.path == sys.argv[1]))
seen = [e for e in told if isinstance(e, ProcessEvent) and child.pid in (e.pid, e.ppid)]
print([e.kind.value for e in seen if e.kind is not ProcessEventKind.EXEC])  # told after Popen returns, sometimes
print({name: count for name, count in p.lost().items() if count})
p.close()
"""


def test_tracefs_unmounted_while_it_watches_changes_nothing(tmp_path: Path) -> None:
    script = f'exec "{sys.executable}" -c "$0" {tmp_path / "file"}'
    done = run_in_mounts(script, START + UNMOUNTED)
    assert done.stdout == f"{1 << 20}\n['fork', 'exit', 'exit']\n{{}}\n", done.stdout + done.stderr


def test_no_btf_says_so() -> None:
    script = (
        f'export TRAINPROBE_CACHE=off; mount --bind /dev/null /sys/kernel/btf/vmlinux; exec "{sys.executable}" -c "$0"'
    )
    done = run_in_mounts(script, START + REFUSAL)
    assert "no type information" in done.stdout, done.stdout + done.stderr
    assert "CONFIG_DEBUG_INFO_BTF" in done.stdout


def run_in_mounts(script: str, body: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT / "daemon")}
    command = ["unshare", "-m", "--propagation", "private", "sh", "-c", script, body]
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False, timeout=90)


def test_without_permission_it_names_the_capability() -> None:
    done = run(REFUSAL, "setpriv", "--bounding-set=-sys_admin,-bpf,-perfmon", "--inh-caps=-all")
    assert "CAP_PERFMON and CAP_BPF missing" in done.stdout, done.stdout + done.stderr
    assert "REMEDY run as root" in done.stdout


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        ("raise ImportError('not installed')", "BCC cannot be imported"),
        ("crystal = 1", "not the BPF compiler"),
        ("import os; os.kill(os.getpid(), 9)", "died with status -9"),
        ("print('last words', flush=True)\nimport os; os._exit(4)", "died with status 4\nlast words"),
        (
            "class BPF:\n    def __init__(s, **k): print('text above'); raise Exception('does not compile')",
            "does not compile",
        ),
    ],
    ids=["missing", "another package", "killed", "exits", "does not compile"],
)
def test_a_broken_bcc_is_a_reason_not_a_crash(tmp_path: Path, module: str, reason: str) -> None:
    (tmp_path / "bcc.py").write_text(module)
    done = run(REFUSAL, path=str(tmp_path))
    assert reason in done.stdout, done.stdout + done.stderr
    assert "REMEDY" in done.stdout


def test_refusal_is_an_exception_with_reason_and_remedy() -> None:
    error = ProbesUnavailable("no BTF", "another kernel")
    assert (error.reason, error.remedy, str(error)) == ("no BTF", "another kernel", "no BTF (another kernel)")


def test_check_is_strict_about_hidden_kernel_addresses() -> None:
    """Nothing else fails then: the programs load, and swap-ins cannot be told from other page faults."""
    script = 'mount --bind /dev/null /proc/kallsyms && exec "$@"'
    command = [
        "unshare",
        "--mount",
        "sh",
        "-c",
        script,
        "sh",
        sys.executable,
        "-m",
        "trainprobe.cli",
        "check",
        "--strict",
    ]
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT / "daemon")}
    done = subprocess.run([*command, "--json"], capture_output=True, text=True, env=environment, timeout=90)
    (finding,) = [one for one in json.loads(done.stdout) if one["name"] == "kallsyms"]
    assert (done.returncode, finding["state"]) == (1, "degraded")
    assert "kptr_restrict" in finding["remedy"]
