"""What systemd wants to hear (sd_notify), without its library."""

from __future__ import annotations

import os
import socket


class Notifier:
    """Tells the service manager; says nothing where there is none."""

    def __init__(self, address: str = "", watchdog_usec: int = 0) -> None:
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self.watchdog_ns = watchdog_usec * 1000 // 3
        """How often ``WATCHDOG=1`` is due: three times within the limit; 0: nobody waits for it."""

    @classmethod
    def of_environment(cls) -> Notifier:
        """As systemd set it up; the variables are taken out, so that children do not speak in our name."""
        address = os.environ.pop("NOTIFY_SOCKET", "")
        usec = os.environ.pop("WATCHDOG_USEC", "0")
        pid = os.environ.pop("WATCHDOG_PID", "")
        meant = pid in ("", str(os.getpid()))
        return cls(address, int(usec) if usec.isdigit() and meant else 0)

    def notify(self, *lines: str) -> None:
        if not self._address:
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
            try:
                sender.sendto("\n".join(lines).encode(), self._address)
            except OSError:
                pass  # the manager is restarting; the next message will do
