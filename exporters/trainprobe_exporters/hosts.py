"""The host names that a client may ask for.

A web page whose name was rebound to this address (DNS rebinding) sends another name. A browser
sends the name of the page's address, so an IP address itself is never rebound.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase

REMEDY = "ask by address or by this host's name, or add the name to allowed_hosts in /etc/trainprobe/exporter.yaml"


class Hosts:
    """The names of this host, the one that is listened on, and ``allowed``, which are shell patterns."""

    def __init__(self, listen: str, allowed: Sequence[str] = ()) -> None:
        own = socket.gethostname()
        self._names = {"localhost", _name(listen), own.lower(), own.partition(".")[0].lower()}
        self._allowed = tuple(pattern.lower() for pattern in allowed)

    def learn_name(self, full_name: Callable[[], str] = socket.getfqdn) -> None:
        """Learn the host's full name, by DNS too, which may take many seconds."""
        self._names.add(full_name().lower())

    def allow(self, host: str) -> bool:
        """Whether a request with this Host header is for us; one without is no browser's."""
        name = _name(host)
        return (
            not name
            or _is_address(name)
            or name in self._names
            or name.endswith(".localhost")
            or any(fnmatchcase(name, pattern) for pattern in self._allowed)
        )


def _name(host: str) -> str:
    """Without port, brackets and the final dot."""
    name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    return name.rstrip(".").lower()


def _is_address(name: str) -> bool:
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, name.partition("%")[0])
            return True
        except OSError:
            continue
    return False
