"""A virtual machine with a distribution's stock kernel and this host's own files, to run a command in.

qemu without acceleration boots the kernel with a small initramfs: a static busybox and the modules that reach the
host's root through 9p. The guest sees the whole host read-only, at the same paths, with fresh tmpfs where programs
write; so Python, BCC, the checkout and its .venv are there as they are. Nothing is installed on the host: the kernel
and busybox are Debian packages unpacked under .tools/.
"""

from __future__ import annotations

import lzma
import re
import shlex
import stat
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
MODULES = ("virtio_pci", "9pnet_virtio", "9p")
WRITABLE = ("/tmp", "/run", "/var/tmp", "/dev/shm")
DONE = "guest-exit-code="
COUNTED = ("-icount", "shift=0,sleep=off")
COUNTED_CLOCK = "tsc=reliable clocksource=tsc random.trust_cpu=on"

INIT = """\
#!/bin/busybox sh
export PATH=/bin
busybox mkdir -p /proc /sys /dev /host
busybox mount -t proc proc /proc
busybox mount -t sysfs sys /sys
busybox mount -t devtmpfs dev /dev
for module in {modules}; do busybox insmod /$module.ko || echo "insmod $module failed"; done
busybox mount -t 9p -o trans=virtio,version=9p2000.L,msize=262144,cache=loose,ro host /host || busybox poweroff -f
for mount in proc sys dev; do busybox mount --move /$mount /host/$mount; done
busybox mkdir -p /host/dev/shm /checkout
busybox mount --bind /host{checkout} /checkout
for folder in {writable}; do busybox mount -t tmpfs tmpfs /host$folder; done
if [ ! -d /host{checkout} ]; then busybox mkdir -p /host{checkout}; busybox mount --bind /checkout /host{checkout}; fi
busybox mount -t cgroup2 none /host/sys/fs/cgroup
busybox ip link set lo up
busybox hostname guest
export HOME=/tmp PYTHONDONTWRITEBYTECODE=1 PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
/bin/busybox chroot /host /bin/bash -c {command}
code=$?
echo
echo "{done}$code"
/bin/busybox poweroff -f
"""


@dataclass(frozen=True)
class Finished:
    """What a command did in the guest; ``code`` is None when the guest ended without telling."""

    code: int | None
    output: str
    seconds: float


@dataclass(frozen=True)
class Kernel:
    image: Path
    modules: dict[str, bytes]  # by name, in the order to insert them


def stock_kernel(package: str = "linux-image-amd64") -> Kernel:
    """The kernel that a package of the distribution depends on now, unpacked."""
    depends = subprocess.run(["apt-cache", "depends", package], check=True, capture_output=True, text=True)
    found = re.search(r"Depends: (linux-image-\S+)", depends.stdout)
    if not found:
        raise LookupError(f"apt-cache knows no {package}; run apt-get update")
    root = unpacked(found[1])
    return Kernel(next((root / "boot").glob("vmlinuz-*")), dict(_with_dependencies(root, MODULES, {})))


def unpacked(package: str) -> Path:
    subprocess.run([ROOT / "tools" / "unpack-deb", package], check=True)
    return ROOT / ".tools" / package


def run(
    kernel: Kernel, command: str, *, parameters: str = "", memory: str = "3G", timeout: float, counted: bool = False
) -> Finished:
    """Runs ``command`` (bash) as root in a guest with ``parameters`` on its kernel command line.

    ``counted``: on one processor whose clock counts its instructions, one each nanosecond, and nothing else.
    """
    work = ROOT / ".tools" / "machine"
    work.mkdir(parents=True, exist_ok=True)
    initramfs = work / "initramfs"
    initramfs.write_bytes(b"".join(_initramfs(kernel, command)))
    qemu = [
        # One thread for both processors. With one for each, guests locked up at a jump that the kernel had just patched
        # (as it does for each tracepoint that is attached): probably the int3 of the patching, run on as translated.
        *("qemu-system-x86_64", "-accel", "tcg,thread=single", "-cpu", "max", "-smp", "1" if counted else "2"),
        *("-m", memory, *(COUNTED if counted else ())),
        *("-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-serial", "stdio", "-nic", "none"),
        *("-kernel", str(kernel.image), "-initrd", str(initramfs)),
        *(
            "-append",
            f"console=ttyS0 loglevel=5 softlockup_panic=1 panic=-1 {COUNTED_CLOCK if counted else ''} {parameters}",
        ),
        *("-virtfs", "local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap"),
    ]
    began = time.monotonic()
    try:
        done = subprocess.run(qemu, stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout)
        output = done.stdout + done.stderr
    except subprocess.TimeoutExpired as expired:
        output = expired.stdout or b""
    text = output.decode(errors="replace").replace("\r\n", "\n")
    code = re.search(rf"^{DONE}(\d+)$", text, re.MULTILINE)
    return Finished(int(code[1]) if code else None, text, time.monotonic() - began)


def _with_dependencies(root: Path, names: tuple[str, ...], into: dict[str, bytes]) -> Iterator[tuple[str, bytes]]:
    for name in names:
        if name in into:
            continue
        file = next((root / "lib" / "modules").glob(f"*/kernel/**/{name}.ko*"), None)
        if file is None:
            continue  # built in
        data = lzma.decompress(file.read_bytes()) if file.suffix == ".xz" else file.read_bytes()
        into[name] = data
        depends = re.search(rb"\0depends=([^\0]*)\0", data)
        needed = tuple(depends[1].decode().split(",")) if depends and depends[1] else ()
        yield from _with_dependencies(root, needed, into)
        yield name, data


def _initramfs(kernel: Kernel, command: str) -> Iterator[bytes]:
    """A cpio archive ("newc"), as the kernel unpacks it."""
    busybox = unpacked("busybox-static") / "bin" / "busybox"
    script = INIT.format(
        modules=" ".join(kernel.modules),
        writable=" ".join(WRITABLE),
        checkout=shlex.quote(str(ROOT)),
        command=shlex.quote(f"cd {shlex.quote(str(ROOT))} && {command}"),
        done=DONE,
    )
    yield _entry("bin", stat.S_IFDIR | 0o755, b"")
    yield _entry("bin/busybox", stat.S_IFREG | 0o755, busybox.read_bytes())
    yield _entry("init", stat.S_IFREG | 0o755, script.encode())
    for name, data in kernel.modules.items():
        yield _entry(f"{name}.ko", stat.S_IFREG | 0o644, data)
    yield _entry("TRAILER!!!", 0, b"")


def _entry(name: str, mode: int, data: bytes) -> bytes:
    fields = (0, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name) + 1, 0)
    head = b"070701" + b"".join(b"%08x" % field for field in fields) + name.encode() + b"\0"
    return _padded(head) + _padded(data)


def _padded(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % 4)
