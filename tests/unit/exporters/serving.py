"""A real server on a real socket, in a thread of the test, and clients that behave in all manners."""

from __future__ import annotations

import asyncio
import http.client
import queue
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from trainprobe_exporters.connection import ConnectionLimits
from trainprobe_exporters.http import Answer, Server


@dataclass
class Got:
    status: int
    headers: http.client.HTTPMessage
    body: bytes


@dataclass
class Running:
    """A server that answers until the test is over."""

    port: int

    def send(self, data: bytes = b"") -> socket.socket:
        client = socket.create_connection(("127.0.0.1", self.port), timeout=15)
        client.sendall(data)
        return client

    def get(self, path: str = "/", method: str = "GET") -> Got:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=15)
        connection.request(method, path)
        response = connection.getresponse()
        got = Got(response.status, response.headers, response.read())
        connection.close()
        return got


def rest_of(client: socket.socket) -> bytes:
    """All that still comes until the server closes the connection, or resets it."""
    data = b""
    try:
        while chunk := client.recv(65536):
            data += chunk
    except ConnectionResetError:
        pass
    client.close()
    return data


@contextmanager
def serving(answer: Answer, limits: ConnectionLimits | None = None) -> Iterator[Running]:
    begun: queue.Queue[tuple[int, Callable[[], object]]] = queue.Queue()

    async def run() -> None:
        server = Server(answer, limits)
        _, port = await server.listen("127.0.0.1", 0)
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        begun.put((port, lambda: loop.call_soon_threadsafe(stop.set)))
        await stop.wait()
        await server.close()

    thread = threading.Thread(target=lambda: asyncio.run(run()))
    thread.start()
    port, stop = begun.get(timeout=10)
    try:
        yield Running(port)
    finally:
        stop()
        thread.join(15)
        assert not thread.is_alive(), "the server did not end"
