# SPDX-License-Identifier: Apache-2.0
"""Descriptors from the compiler's child to the parent, over a SOCK_SEQPACKET socket.

Every packet is JSON: ``{"kind", "names"}`` with that many descriptors, at last ``{"done", "missing"}`` or
``{"refused", "remedy"}``. The kernel takes at most 253 descriptors in one packet.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping, Sequence

from trainprobe.bpf.errors import ProbesUnavailable

BATCH = 200
_PACKET = 1 << 16


def channel() -> tuple[socket.socket, socket.socket]:
    """Two ends of a socket that keeps packets apart: the parent's and the child's."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


class ChildGone(Exception):
    """The child ended without a last word."""


def send(channel: socket.socket, groups: Mapping[str, Mapping[str, int]], missing: Sequence[str]) -> None:
    """Hand all descriptors over, group by group."""
    for kind, descriptors in groups.items():
        names = list(descriptors)
        for start in range(0, len(names), BATCH):
            batch = names[start : start + BATCH]
            text = json.dumps({"kind": kind, "names": batch}).encode()
            socket.send_fds(channel, [text], [descriptors[name] for name in batch])
    channel.send(json.dumps({"done": True, "missing": list(missing)}).encode())


def refuse(channel: socket.socket, reason: str, remedy: str) -> None:
    """Say why there will be none."""
    channel.send(json.dumps({"refused": reason[-4000:], "remedy": remedy}).encode())


def receive(channel: socket.socket) -> tuple[dict[str, dict[str, int]], list[str]]:
    """All groups and what is missing; raises ProbesUnavailable, or ChildGone. Closes what it got when it raises."""
    groups: dict[str, dict[str, int]] = {}
    try:
        while True:
            text, descriptors, _, _ = socket.recv_fds(channel, _PACKET, 253)
            if not text:
                raise ChildGone
            packet = json.loads(text)
            if "refused" in packet:
                raise ProbesUnavailable(packet["refused"], packet["remedy"])
            if "done" in packet:
                return groups, packet["missing"]
            groups.setdefault(packet["kind"], {}).update(zip(packet["names"], descriptors))
            if len(packet["names"]) != len(descriptors):
                raise ProbesUnavailable("too few file descriptors for the probes", "ulimit -n 1024")
    except BaseException:
        for descriptor in (fd for group in groups.values() for fd in group.values()):
            os.close(descriptor)
        raise
