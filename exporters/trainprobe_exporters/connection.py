"""One client: its request heads, its responses, and how long it may take for each."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import TypeVar

from trainprobe_exporters.request import MAX_HEAD_BYTES, BadRequestError
from trainprobe_exporters.routes import Response

_Result = TypeVar("_Result")
_CHUNK = 64 * 1024  # what one slow reader holds at most


@dataclass(frozen=True)
class Limits:
    connections: int = 256
    handshake_seconds: float = 5.0  # for TLS
    head_seconds: float = 5.0  # for a whole request head, from its first byte; for the first one from the connection
    idle_seconds: float = 75.0  # between two requests of one connection
    write_seconds: float = 10.0  # for a whole response


class Connection:
    """A socket that was accepted; ``is_local``: on the unix socket, so that the file's group answers for it."""

    def __init__(self, limits: Limits, *, is_local: bool) -> None:
        self.is_waiting = True
        self.is_local = is_local
        self._is_first = True
        self._limits = limits
        self._task = asyncio.current_task()
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
            begin = await _within(self._limits.idle_seconds, self._reader.readexactly(1))
        self._is_first = False
        try:
            rest = await _within(self._limits.head_seconds, self._reader.readuntil(b"\r\n\r\n"))
        except asyncio.LimitOverrunError:
            raise BadRequestError(431, f"the request head is larger than {MAX_HEAD_BYTES} bytes") from None
        except asyncio.TimeoutError:
            raise BadRequestError(408, f"no whole request within {self._limits.head_seconds:g} s") from None
        self.is_waiting = False
        return begin + rest

    async def respond(
        self, response: Response, headers: Mapping[str, str], *, keeps_alive: bool, with_body: bool = True
    ) -> None:
        """Send it, or raise TimeoutError when the client does not take it in time."""
        told = {
            "Content-Type": response.content_type,
            "Content-Length": str(len(response.body)),
            "Connection": "keep-alive" if keeps_alive else "close",
            **headers,
            **response.headers,
        }
        head = f"HTTP/1.1 {response.status} {HTTPStatus(response.status).phrase}\r\n"
        head += "".join(f"{name}: {value}\r\n" for name, value in told.items())
        body = response.body if with_body else b""
        await _within(self._limits.write_seconds, self._send(head.encode("latin-1") + b"\r\n", memoryview(body)))

    async def close(self) -> None:
        """Let go of the socket once all is sent and TLS has said goodbye, or the time for that is over."""
        if self._writer is None:
            return
        self._writer.close()
        try:
            await _within(self._limits.write_seconds, self._writer.wait_closed())
        except (OSError, asyncio.TimeoutError):
            self._writer.transport.abort()

    def abort(self) -> None:
        """End it at once, in a handshake too."""
        if self._writer is not None:
            self._writer.transport.abort()
        elif self._task is not None:
            self._task.cancel()

    async def _send(self, head: bytes, body: memoryview) -> None:
        assert self._writer is not None
        self._writer.write(head + body[:_CHUNK])
        await self._writer.drain()
        for start in range(_CHUNK, len(body), _CHUNK):
            self._writer.write(body[start : start + _CHUNK])
            await self._writer.drain()


async def _within(seconds: float, action: Awaitable[_Result]) -> _Result:
    return await asyncio.wait_for(action, seconds)
