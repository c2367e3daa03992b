# SPDX-License-Identifier: Apache-2.0
"""Descriptors from the compiler's child to the parent, over a SOCK_SEQPACKET socket.

Every packet is JSON: ``{"kind", "names"}`` with that many descriptors, at last ``{"done", "missing", "notes"}`` or
``{"refused", "remedy"}`` (messages: ``{"id", "params"}``); then the next lot may follow. The kernel takes at most 253
descriptors in one packet.
"""

from __future__ import annotations

import dataclasses
import json
import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from trainprobe.bpf import errors
from trainprobe.bpf.errors import ProbesUnavailable
from trainprobe.model.dataclass import dataclass
from trainprobe.model.message import Message

BATCH = 200
_PACKET = 1 << 16


def channel() -> tuple[socket.socket, socket.socket]:
    """Two ends of a socket that keeps packets apart: the parent's and the child's."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


class ChildGone(Exception):
    """The child ended without a last word."""


@dataclass
class DescriptorBatch:
    """What came at once: descriptors by group and name, what this kernel does not have, and what a person is told."""

    groups: dict[str, dict[str, int]] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def send(
    channel: socket.socket, groups: Mapping[str, Mapping[str, int]], missing: Sequence[str], notes: Sequence[str] = ()
) -> None:
    """Hand a lot over, group by group."""
    for kind, descriptors in groups.items():
        names = list(descriptors)
        for start in range(0, len(names), BATCH):
            batch = names[start : start + BATCH]
            text = json.dumps({"kind": kind, "names": batch}).encode()
            socket.send_fds(channel, [text], [descriptors[name] for name in batch])
    channel.send(json.dumps({"done": True, "missing": list(missing), "notes": list(notes)}).encode())


def refuse(channel: socket.socket, reason: Message | str, remedy: Message | str) -> None:
    """Say why there will be none."""
    channel.send(json.dumps({"refused": reason, "remedy": remedy}, default=dataclasses.asdict).encode())


def receive(channel: socket.socket) -> DescriptorBatch:
    """The next lot; raises ProbesUnavailable, or ChildGone. Closes what it got when it raises."""
    lot = DescriptorBatch()
    try:
        while True:
            text, descriptors, _, _ = socket.recv_fds(channel, _PACKET, 253)
            if not text:
                raise ChildGone
            packet = json.loads(text, object_hook=_message)
            if "refused" in packet:
                raise ProbesUnavailable(packet["refused"], packet["remedy"])
            if "done" in packet:
                lot.missing, lot.notes = packet["missing"], packet["notes"]
                return lot
            lot.groups.setdefault(packet["kind"], {}).update(zip(packet["names"], descriptors))
            if len(packet["names"]) != len(descriptors):
                raise ProbesUnavailable(errors.FEW_DESCRIPTORS(), "ulimit -n 1024")
    except BaseException:
        for descriptor in (fd for group in lot.groups.values() for fd in group.values()):
            os.close(descriptor)
        raise


def _message(found: dict[str, Any]) -> Message | dict[str, Any]:
    return Message(**found) if found.keys() == {"id", "params"} else found
