"""A small HTTP/1.1 server that strangers cannot tie up: one loop, no threads, everything bounded.

A connection costs a few kilobytes until a whole request head is there. When all places are taken, the connection that
has waited longest without a request loses its place, so that silent clients cannot keep Prometheus out.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import TypeVar

from trainprobe_exporters.request import MAX_HEAD_BYTES, BadRequestError, Request, parse_head
from trainprobe_exporters.routes import PLAIN, Response

Answer = Callable[[Request], Response]
_Result = TypeVar("_Result")
_BACKLOG = 128  # as many are accepted at once, before any of them can be sent away
_CHUNK = 64 * 1024  # what one slow reader holds at most

_SECURITY = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-store",
}


@dataclass(frozen=True)
class Limits:
    connections: int = 256
    head_seconds: float = 5.0  # for a whole request head, from its first byte; for the first one from the connection
    idle_seconds: float = 75.0  # between two requests of one connection
    write_seconds: float = 10.0  # for a whole response


class Server:
    """Answers on the sockets that it is told to listen on, until it is closed."""

    def __init__(self, answer: Answer, limits: Limits | None = None) -> None:
        self.answer = answer
        self._limits = limits or Limits()
        self._connections: dict[_Connection, None] = {}  # in the order of their waiting
        self._server: asyncio.Server | None = None

    async def listen(self, host: str, port: int) -> tuple[str, int]:
        """Listen there, and nowhere else any more; returns address and port. Raises OSError; then nothing changes."""
        server = await asyncio.start_server(self._serve, host, port, limit=MAX_HEAD_BYTES, backlog=_BACKLOG)
        self._stop_listening()
        self._server = server
        address = server.sockets[0].getsockname()
        return address[0], address[1]

    async def close(self) -> None:
        """Listen no more; what is being answered gets a second to get through."""
        self._stop_listening()
        for connection in list(self._connections):
            if connection.is_waiting:
                connection.abort()
        for _ in range(20):
            if not self._connections:
                return
            await asyncio.sleep(0.05)
        for connection in list(self._connections):
            connection.abort()
        await asyncio.sleep(0)

    def _stop_listening(self) -> None:
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = _Connection(reader, writer, self._limits)
        if not self._has_place():
            connection.abort()
            return
        self._connections[connection] = None
        try:
            while await self._exchange(connection) and connection in self._connections:
                self._connections[connection] = self._connections.pop(connection)  # to the end of the queue
        except (OSError, EOFError, asyncio.TimeoutError, asyncio.IncompleteReadError):
            connection.abort()
        finally:
            self._connections.pop(connection, None)
            writer.close()

    async def _exchange(self, connection: _Connection) -> bool:
        """One request and its response; whether another one may follow."""
        try:
            request = parse_head(await connection.head())
        except BadRequestError as error:
            refusal = Response(error.status, f"{error.reason}\n".encode(), PLAIN)
            await connection.respond(refusal, keeps_alive=False)
            return False
        try:
            response = self.answer(request)
        except Exception as error:
            # The loop lives on, whatever one answer runs into; the log has the reason.
            print(f"{request.path!r}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
            response = Response(500, b"internal error; the exporter's log has the reason\n")
        await connection.respond(response, keeps_alive=request.keeps_alive, with_body=request.method != "HEAD")
        return request.keeps_alive

    def _has_place(self) -> bool:
        if len(self._connections) < self._limits.connections:
            return True
        longest = next((c for c in self._connections if c.is_waiting), None)
        if longest is None:
            return False
        del self._connections[longest]
        longest.abort()
        return True


class _Connection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, limits: Limits) -> None:
        writer.transport.set_write_buffer_limits(high=0)  # so that drain() waits until all is sent
        self.is_waiting = True
        self._is_first = True
        self._reader = reader
        self._writer = writer
        self._limits = limits

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

    async def respond(self, response: Response, *, keeps_alive: bool, with_body: bool = True) -> None:
        """Send it, or raise TimeoutError when the client does not take it in time."""
        headers = {
            "Content-Type": response.content_type,
            "Content-Length": str(len(response.body)),
            "Connection": "keep-alive" if keeps_alive else "close",
            **_SECURITY,
            **response.headers,
        }
        head = f"HTTP/1.1 {response.status} {HTTPStatus(response.status).phrase}\r\n"
        head += "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        body = response.body if with_body else b""
        await _within(self._limits.write_seconds, self._send(head.encode("latin-1") + b"\r\n", memoryview(body)))

    async def _send(self, head: bytes, body: memoryview) -> None:
        self._writer.write(head + body[:_CHUNK])
        await self._writer.drain()
        for start in range(_CHUNK, len(body), _CHUNK):
            self._writer.write(body[start : start + _CHUNK])
            await self._writer.drain()

    def abort(self) -> None:
        self._writer.transport.abort()


async def _within(seconds: float, action: Awaitable[_Result]) -> _Result:
    return await asyncio.wait_for(action, seconds)
