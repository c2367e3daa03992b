"""A recording: JSON lines, ``{"trainprobe_recording": 1, …}`` first, then every frame that the core was told."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from io import BufferedIOBase
from typing import Any

from trainprobe.model.dataclass import dataclass
from trainprobe.model.frame import Frame
from trainprobe.model.moment import Moment
from trainprobe.model.report import Host
from trainprobe.text.saying import saying, word
from trainprobe.wire import codec, frame
from trainprobe.wire.codec import WireError

VERSION = 1
LINE_LIMIT = 16 << 20  # bytes of one frame; the largest ones (many workers, many open files) have some 100 KB


@dataclass(frozen=True, slots=True)
class Header:
    """What replaying needs beside the frames: the host, and the thresholds that were in force."""

    host: Host = field(default_factory=Host)
    policy: dict[str, Any] = field(default_factory=dict)
    program: str = ""


def encode_header(header: Header) -> str:
    """The first line, without its newline."""
    line = {"trainprobe_recording": VERSION, "program": header.program, "host": header.host, "policy": header.policy}
    return codec.dumps(line)


def read_header(lines: BufferedIOBase) -> Header:
    """Raises WireError when this is no recording, or one of a version that is newer than this program."""
    value = codec.loads(_line(lines) or b"null")
    version = value.get("trainprobe_recording") if isinstance(value, dict) else None
    if not isinstance(version, int) or isinstance(version, bool):
        raise WireError(word("not a trainprobe recording (its first line has no trainprobe_recording)"))
    if version > VERSION:
        raise WireError(
            saying(
                "recording of version {version}; this program reads up to version {known}",
                version=version,
                known=VERSION,
            )
        )
    header: Header = codec.decode(Header, value)
    return header


def read_frames(lines: BufferedIOBase) -> Iterator[Frame]:
    """The frames, one at a time, in time order. What was cut short ends them, as a last line, or a compressed file
    whose writer was killed; any other bad line is a WireError."""
    number, latest = 1, Moment(-codec.LIMIT, 0)
    while data := _line_or_end(lines):
        number += 1
        try:
            found = frame.decode(data)
            if found.at.monotonic_ns < latest.monotonic_ns:
                raise WireError(word("it is older than the line before it"))
            latest = found.at
        except WireError as error:
            if not data.endswith(b"\n"):
                return
            raise error.within(f"line {number}") from None
        yield found


def _line_or_end(lines: BufferedIOBase) -> bytes:
    try:
        return _line(lines)
    except EOFError:  # gzip's, where the end of the stream is missing
        return b""


def _line(lines: BufferedIOBase) -> bytes:
    data = lines.readline(LINE_LIMIT + 1)
    if len(data) > LINE_LIMIT:
        raise WireError(f"a line of more than {LINE_LIMIT} bytes")
    return data
