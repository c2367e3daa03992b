"""One client: its request heads, its responses, and how long it may take for each."""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections.abc import Mapping
from http import HTTPStatus

import h11

from trainprobe.model.dataclass import dataclass
from trainprobe_exporters.request import MAX_HEAD_BYTES, BadRequestError, Request, parse_head
from trainprobe_exporters.routes import Response

_CHUNK = 64 * 1024  # what one slow reader holds at most


@dataclass(frozen=True)
class ConnectionLimits:
    connections: int = 256
    handshake_seconds: float = 5.0  # for TLS
    head_seconds: float = 5.0  # for a whole request head, from its first byte; for the first one from the connection
    idle_seconds: float = 75.0  # between two requests of one connection
    write_seconds: float = 10.0  # for a whole response


class Connection:
    """A socket that was accepted; ``is_local``: on the unix socket, so that the file's group answers for it."""

    def __init__(self, limits: ConnectionLimits, *, is_local: bool) -> None:
        self.is_waiting = True
        self.progressed = 0.0  # when a request was read or its client took a chunk of the answer, CLOCK_MONOTONIC
        self.is_local = is_local
        self._is_first = True
        self._limits = limits
        self._task = asyncio.current_task()
        self._protocol = h11.Connection(h11.SERVER)
        self._reader = asyncio.StreamReader(limit=MAX_HEAD_BYTES)
        self._writer: asyncio.StreamWriter | None = None

    async def open(self, client: socket.socket, tls: ssl.SSLContext | None) -> None:
        """Make it readable, after the handshake where there is one. Raises OSError when that fails or takes long."""
        loop = asyncio.get_running_loop()
        protocol = asyncio.StreamReaderProtocol(self._reader)
        seconds = self._limits.handshake_seconds if tls else None
        transport, _ = await loop.connect_accepted_socket(
            lambda: protocol, client, ssl=tls, ssl_handshake_timeout=seconds
        )
        # So that drain() waits until all is sent. asyncio's TLS takes "at the mark" for "above it": 0 would stop it.
        transport.set_write_buffer_limits(high=1 if tls else 0)
        self._writer = asyncio.StreamWriter(transport, protocol, self._reader, loop)

    async def head(self) -> bytes:
        """The next request's head. Raises BadRequestError, EOFError, TimeoutError."""
        self.is_waiting = True
        begin = b""
        if not self._is_first:
            begin = await asyncio.wait_for(self._reader.readexactly(1), self._limits.idle_seconds)
        self._is_first = False
        try:
            rest = await asyncio.wait_for(self._reader.readuntil(b"\r\n\r\n"), self._limits.head_seconds)
        except asyncio.LimitOverrunError:
            raise BadRequestError(431, f"the request head is larger than {MAX_HEAD_BYTES} bytes") from None
        except asyncio.TimeoutError:
            raise BadRequestError(408, f"no whole request within {self._limits.head_seconds:g} s") from None
        self.is_waiting, self.progressed = False, time.monotonic()
        return begin + rest

    def parse(self, head: bytes) -> Request:
        """What the head asks for. Raises BadRequestError."""
        return parse_head(head, self._protocol, is_local=self.is_local)

    async def respond(self, response: Response, headers: Mapping[str, str], *, with_body: bool = True) -> bool:
        """Send it; whether another request may follow. Raises TimeoutError when the client does not take it in time."""
        told = {
            "Content-Type": response.content_type,
            "Content-Length": str(len(response.body)),
            **headers,
            **response.headers,
        }
        status = HTTPStatus(response.status)
        answer = h11.Response(status_code=status, headers=list(told.items()), reason=status.phrase)
        head = self._protocol.send(answer) or b""
        await asyncio.wait_for(self._send(head, response.body if with_body else b""), self._limits.write_seconds)
        if self._protocol.our_state is not h11.DONE or self._protocol.their_state is not h11.DONE:
            return False
        self._protocol.start_next_cycle()
        return True

    async def close(self) -> None:
        """Let go of the socket once all is sent and TLS has said goodbye, or the time for that is over."""
        if self._writer is None:
            return
        self._writer.close()
        try:
            await asyncio.wait_for(self._writer.wait_closed(), self._limits.write_seconds)
        except (OSError, asyncio.TimeoutError):
            self._writer.transport.abort()

    def abort(self) -> None:
        """End it at once, in a handshake too."""
        if self._writer is not None:
            self._writer.transport.abort()
        elif self._task is not None:
            self._task.cancel()

    async def _send(self, head: bytes, body: bytes) -> None:
        assert self._writer is not None
        for start in range(0, max(1, len(body)), _CHUNK):
            chunk = self._protocol.send(h11.Data(data=body[start : start + _CHUNK])) or b""
            self._writer.write(head + chunk)
            await self._writer.drain()
            head, self.progressed = b"", time.monotonic()
        self._protocol.send(h11.EndOfMessage())
