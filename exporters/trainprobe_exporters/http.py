"""A small HTTP/1.1 server that strangers cannot tie up: one loop, no threads, everything bounded.

A connection costs a few kilobytes until a whole request head is there, in a TLS handshake too. When all places are
taken, a newcomer evicts a connection: the one that has waited longest without a request, or, where few wait, the
writer whose client has taken nothing for longest. So neither silent clients nor slow readers keep Prometheus out.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

from trainprobe_exporters.connection import Connection, ConnectionLimits
from trainprobe_exporters.protection import ServerTls
from trainprobe_exporters.request import BadRequestError, Request
from trainprobe_exporters.routes import PLAIN, Response

Answer = Callable[[Request], Response]
Recognise = Callable[[Request], Awaitable[Request]]
"""Finds out who asks, which may take a while; raises BadRequestError to refuse."""
_BACKLOG = 4096
"""Clients that may wait for the loop; the kernel takes no more than ``net.core.somaxconn``. One who finds the queue
full is not told: he tries again after a second, and a scrape took a second longer beside a burst of 170 clients."""
_RETRY_SECONDS = 0.1
KEPT_SHARE = 4  # of the places, one in so many is kept for connections whose request has not been read yet

_SECURITY = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-store",
}


class Server:
    """Answers on the sockets that it is told to listen on, until it is closed."""

    def __init__(self, answer: Answer, limits: ConnectionLimits | None = None) -> None:
        self.answer = answer
        self.recognise: Recognise | None = None
        self.tls: ServerTls | None = None  # for connections to come, except those of the unix socket
        self.headers: Mapping[str, str] = {}  # of every response
        self.address = "", 0  # of the latest listening
        self._limits = limits or ConnectionLimits()
        self._connections: dict[Connection, None] = {}  # in the order of their waiting
        self._listeners: list[asyncio.Task[None]] = []
        self._local: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def listen(self, host: str, port: int) -> tuple[str, int]:
        """Listen there, and nowhere else any more; returns address and port. Raises OSError; then nothing changes."""
        try:
            sockets = await _bound(host, port)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or port != self.address[1]:
                raise
            # It may be in our own way: 0.0.0.0 holds the same port as 127.0.0.1.
            before = self.address
            await self._stop_listening()
            try:
                sockets = await _bound(host, port)
            except OSError:
                self._begin_listening(await _bound(*before))
                raise
        await self._stop_listening()
        self._begin_listening(sockets)
        return self.address

    def _begin_listening(self, sockets: Sequence[socket.socket]) -> None:
        self.address = sockets[0].getsockname()[:2]
        self._listeners = [asyncio.create_task(self._accept(listener, is_local=False)) for listener in sockets]

    async def listen_local(self, path: Path) -> None:
        """Listen on a unix socket beside the rest, for the user and the group of this process. Raises OSError."""
        listener = _bound_local(path)
        if self._local is not None:
            self._local.cancel()
        self._local = asyncio.create_task(self._accept(listener, is_local=True))

    async def close(self) -> None:
        """Listen no more; what is being answered gets a second to get through."""
        await self._stop_listening()
        if self._local is not None:
            self._local.cancel()
        for connection in list(self._connections):
            if connection.is_waiting:
                connection.abort()
        for _ in range(20):
            if not self._tasks:
                return
            await asyncio.sleep(0.05)
        for connection in list(self._connections):
            connection.abort()
        await asyncio.sleep(0)

    async def _stop_listening(self) -> None:
        """When it returns, the sockets are closed."""
        for task in self._listeners:
            task.cancel()
        await asyncio.gather(*self._listeners, return_exceptions=True)

    async def _accept(self, listener: socket.socket, *, is_local: bool) -> None:
        loop = asyncio.get_running_loop()
        with listener:
            while True:
                try:
                    client, _ = await loop.sock_accept(listener)
                except OSError:
                    # Out of descriptors, say: somebody gives way.
                    self._evict()
                    await asyncio.sleep(_RETRY_SECONDS)
                    continue
                task = asyncio.create_task(self._serve(client, is_local))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
                await asyncio.sleep(0)  # sock_accept does not, while clients are queueing

    async def _serve(self, client: socket.socket, is_local: bool) -> None:
        connection = Connection(self._limits, is_local=is_local)
        if len(self._connections) >= self._limits.connections:
            self._evict()
        self._connections[connection] = None
        try:
            await connection.open(client, self.tls.context() if self.tls and not is_local else None)
            while await self._exchange(connection) and connection in self._connections:
                self._connections[connection] = self._connections.pop(connection)  # to the end of the queue
        except (OSError, EOFError, asyncio.TimeoutError, asyncio.IncompleteReadError):
            connection.abort()
        finally:
            await connection.close()
            self._connections.pop(connection, None)

    async def _exchange(self, connection: Connection) -> bool:
        """One request and its response; whether another one may follow."""
        headers = {**_SECURITY, **self.headers}
        try:
            request = connection.parse(await connection.head())
            if self.recognise is not None:
                request = await self.recognise(request)
        except BadRequestError as error:
            refusal = Response(error.status, f"{error.reason}\n".encode(), PLAIN)
            return await connection.respond(refusal, {**headers, "Connection": "close"})
        try:
            response = self.answer(request)
        except Exception as error:
            # The loop lives on, whatever one answer runs into; the log has the reason.
            print(f"{request.path!r}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
            response = Response(500, b"internal error; the exporter's log has the reason\n")
        return await connection.respond(response, headers, with_body=request.method != "HEAD")

    def _evict(self) -> None:
        """End the connection that has waited longest, or the slowest writer where no more wait than have kept places.

        A scrape that has just connected is one of those that wait: kept places are what it has until its request is
        read, however many write.
        """
        waiting = [connection for connection in self._connections if connection.is_waiting]
        writing = [connection for connection in self._connections if not connection.is_waiting]
        if writing and len(waiting) <= self._limits.connections // KEPT_SHARE:
            evicted = min(writing, key=lambda connection: connection.progressed)
        elif waiting:
            evicted = waiting[0]
        else:
            return
        del self._connections[evicted]
        evicted.abort()


async def _bound(host: str, port: int) -> list[socket.socket]:
    """Sockets that listen on every address of ``host``. Raises OSError."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE | socket.AI_NUMERICHOST)
    except socket.gaierror:  # a name: resolved in a thread
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    sockets: list[socket.socket] = []
    try:
        for family, address in dict.fromkeys((info[0], info[4]) for info in found):
            if sockets and port == 0:
                break  # each would get a port of its own
            listener = socket.socket(family, socket.SOCK_STREAM)
            sockets.append(listener)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listener.bind(address)
            listener.listen(_BACKLOG)
            listener.setblocking(False)
    except OSError:
        for listener in sockets:
            listener.close()
        raise
    return sockets


def _bound_local(path: Path) -> socket.socket:
    """A unix socket that listens at ``path`` and replaces what a former exporter left there."""
    if path.is_socket():
        path.unlink()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        before = os.umask(0o117)  # rw for user and group from the first moment on
        try:
            listener.bind(str(path))
        finally:
            os.umask(before)
        listener.listen(_BACKLOG)
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    return listener
