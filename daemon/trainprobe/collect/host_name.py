"""What the host is called in reports and metrics."""

from __future__ import annotations

import contextlib
import os

from trainprobe.collect.procfs import SMALL, read_file


def host_name(root: str = "/", first: str = "/proc/2/root/") -> str:
    """TRAINPROBE_HOST_NAME; in a container /etc/hostname as the kernel's threads see it; else uname's name."""
    if given := os.environ.get("TRAINPROBE_HOST_NAME", ""):
        return given
    with contextlib.suppress(OSError):
        if not os.path.samestat(os.stat(root), os.stat(first)):
            found = (read_file(f"{first}etc/hostname", SMALL) or b"").decode("utf-8", "replace").split()
            if found:
                return found[0]
    return os.uname().nodename
