"""What systemd wants to hear (sd_notify), said to the socket that it names."""

from __future__ import annotations

import os
import socket


def notify(state: str) -> None:
    """Tell systemd, if it asked: "READY=1", "RELOADING=1", "STOPPING=1", "STATUS=…"; several with newlines."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel:
        try:
            channel.sendto(state.encode(), address.replace("@", "\0", 1) if address[0] == "@" else address)
        except OSError:
            pass  # systemd will say that it heard nothing
