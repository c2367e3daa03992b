"""What the caller's half of `run` tells the half that is root, and what it hears back."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from typing import Any

from trainprobe.wire import codec
from trainprobe.wire.codec import WireError

VERSION = 1
FRAME = b'{"frame":'
READY, LIVE, ENDED, REPORT, FAILED = "ready", "live", "ended", "report", "failed"
END = b'{"end":true}'


@dataclass(frozen=True, slots=True)
class Order:
    """Watch this."""

    pid: int
    command: list[str] = field(default_factory=list)  # of a child that is about to become it; empty: attach
    record: bool = False  # send every line of a recording
    live: bool = False  # send a status line every second
    config: dict[str, Any] = field(default_factory=dict)


def encode(order: Order) -> bytes:
    return json.dumps({"order": VERSION, **dataclasses.asdict(order)}).encode()


def decode(line: bytes) -> Order:
    """Raises WireError."""
    value = codec.loads(line)
    if not isinstance(value, dict) or value.get("order") != VERSION:
        raise WireError("not an order of this version")
    order: Order = codec.decode(Order, value)
    return order


def frame_message(line: str) -> bytes:
    """A line of a recording as a message; it is JSON already and is taken out again unread."""
    return FRAME + line.encode("ascii") + b"}"


def frame_of(message: bytes) -> bytes | None:
    return message[len(FRAME) : -1] if message.startswith(FRAME) else None


def message(kind: str, value: Any) -> bytes:
    return codec.dumps({kind: value}).encode()
