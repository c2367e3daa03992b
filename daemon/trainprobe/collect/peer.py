"""The other end of a process's socket, as its own network namespace sees it."""

from __future__ import annotations

import sys
from typing import NamedTuple

from trainprobe.collect.lines import lines_of
from trainprobe.collect.procfs import Proc
from trainprobe.model.sample import SentBytes

TABLE = 1 << 20  # bytes of a socket table that are read; a busy host's is longer, and then there may be no answer
_TCP = ("tcp", "tcp6")
_KINDS = (*_TCP, "udp", "udp6")
PIDFD_GETFD = 438  # on each architecture


class Peer(NamedTuple):
    """``name``: "address:port", "unix:path"; "" where the descriptor is no socket or the tables do not have it.
    ``unsent``: whether there are bytes that the other end has not acknowledged."""

    name: str = ""
    unsent: bool = False
    sent: SentBytes | None = None


def peer_of(proc: Proc, pid: int, fd: int) -> Peer:
    link = proc.link(pid, f"fd/{fd}")
    if not link.startswith("socket:["):
        return Peer()
    inode = link[len("socket:[") : -1]
    for kind in _KINDS:
        found = in_table(_table(proc, pid, kind), inode)
        if found.name:
            return found._replace(sent=proc.sent_bytes(pid, fd, PIDFD_GETFD)) if kind in _TCP else found
    return Peer(in_unix_table(_table(proc, pid, "unix"), inode))


def in_table(text: str, inode: str) -> Peer:
    """Of an inode in /proc/PID/net/{tcp,udp}{,6}; without a name where it is not there or not connected."""
    for line in lines_of(text)[1:]:
        words = line.split()
        if len(words) > 9 and words[9] == inode:
            return Peer(_address(words[2]), not words[4].startswith("00000000:"))
    return Peer()


def in_unix_table(text: str, inode: str) -> str:
    """ "unix:" and the path of the socket; the peer of an unnamed one cannot be told."""
    for line in lines_of(text)[1:]:
        words = line.split(None, 7)
        if len(words) > 6 and words[6] == inode:
            return f"unix:{words[7]}" if len(words) > 7 else "unix"
    return ""


def _table(proc: Proc, pid: int, kind: str) -> str:
    return (proc.read(pid, f"net/{kind}", TABLE) or b"").decode("utf-8", "surrogateescape")


def _address(text: str) -> str:
    """The kernel writes an address as 32-bit words in the host's byte order."""
    host, colon, port = text.partition(":")
    try:
        raw = bytes.fromhex(host)
        number = int(port, 16)
    except ValueError:
        return ""
    if not colon or len(raw) not in (4, 16) or not 0 < number < 1 << 16:
        return ""
    if sys.byteorder == "little":
        raw = b"".join(raw[at : at + 4][::-1] for at in range(0, len(raw), 4))
    import ipaddress  # seldom needed, and a third of a megabyte

    address = ipaddress.ip_address(raw)
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    address = mapped or address
    return f"[{address}]:{number}" if address.version == 6 else f"{address}:{number}"
