"""The messages between the two halves of `run` and `attach`: the caller's, and the one that is root."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from typing import Any

from trainprobe.model.dataclass import dataclass

VERSION = 1
FRAME = b'{"frame":'
LOADED, READY, LIVE, ENDED, TEXT, FAILED = "loaded", "ready", "live", "ended", "text", "failed"
FILE, WHOLE = "file", "whole"  # a piece of the report's file; there are no more
PIECE = 1 << 20  # characters


@dataclass(frozen=True, slots=True)
class Order:
    """Watch this. A command is started only when the programs are in the kernel, so that no waiting for them is in
    the life of its process: the order then comes without a pid, and the pid follows."""

    pid: int  # of what runs already; 0: of a child that follows
    command: list[str] = field(default_factory=list)  # of a child that will become it; empty: attach
    record: bool = False  # send every line of a recording
    live: bool = False  # send a status line every second
    config: dict[str, Any] = field(default_factory=dict)
    language: str = "en"  # of the status line


def encode(order: Order) -> bytes:
    return json.dumps({"order": VERSION, **dataclasses.asdict(order)}).encode()


def decode(line: bytes) -> Order:
    """Raises WireError."""
    from trainprobe.wire import codec  # the caller's half does not need it, and each half starts on somebody's time
    from trainprobe.wire.codec import WireError

    value = codec.loads(line)
    if not isinstance(value, dict) or value.get("order") != VERSION:
        raise WireError("not an order of this version")
    order: Order = codec.decode(Order, value)
    return order


def child(pid: int) -> bytes:
    return json.dumps({"child": pid}).encode()


def child_of(line: bytes) -> int:
    """Raises WireError."""
    from trainprobe.wire import codec
    from trainprobe.wire.codec import WireError

    value = codec.loads(line)
    pid = value.get("child") if isinstance(value, dict) else None
    if not isinstance(pid, int) or isinstance(pid, bool) or pid <= 0:
        raise WireError("not the pid of a child")
    return pid


def end(terminal: Mapping[str, Any], *, file: bool) -> bytes:
    """Make the report: its text for ``terminal``, and with ``file`` what is written to one, in pieces."""
    return json.dumps({"end": dict(terminal), "file": file}).encode()


def end_of(lines: Iterable[bytes]) -> tuple[dict[str, Any], bool]:
    """The last line's terminal, and whether a file is wanted; ({}, False): whoever would have said so is gone."""
    for line in lines:
        try:
            value = json.loads(line)
            if isinstance(value["end"], dict):
                return value["end"], bool(value.get("file"))
        except (ValueError, TypeError, KeyError):
            pass
    return {}, False


def frame_message(line: str) -> bytes:
    """A line of a recording as a message; it is JSON already and is taken out again unread."""
    return FRAME + line.encode("ascii") + b"}"


def frame_of(message: bytes) -> bytes | None:
    return message[len(FRAME) : -1] if message.startswith(FRAME) else None


def file_messages(pieces: Iterable[str]) -> Iterator[bytes]:
    """What goes into the report's file, of any length."""
    for piece in pieces:
        for at in range(0, len(piece), PIECE):
            yield message(FILE, piece[at : at + PIECE])
    yield message(WHOLE, True)


def message(kind: str, value: Any) -> bytes:
    return json.dumps({kind: value}, ensure_ascii=True, allow_nan=False).encode()
