"""Calls of the driver that do not come back for a while: on a frozen file system, from a peer that does not answer."""

from __future__ import annotations

import fcntl
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

FIFREEZE, FITHAW = 0xC0045877, 0xC0045878  # linux/fs.h


@contextmanager
def frozen(directory: str, seconds: float) -> Iterator[None]:
    """The file system of ``directory`` takes no write until ``seconds`` have passed; needs root, as its mount did."""
    descriptor = os.open(directory, os.O_RDONLY)
    fcntl.ioctl(descriptor, FIFREEZE, 0)
    thaw = threading.Thread(target=_thaw, args=(descriptor, seconds))
    thaw.start()
    try:
        yield
    finally:
        thaw.join()
        os.close(descriptor)


def _thaw(descriptor: int, seconds: float) -> None:
    time.sleep(seconds)
    fcntl.ioctl(descriptor, FITHAW, 0)


def write(directory: str, seconds: float) -> None:
    """A write to a file that is open already."""
    file = os.open(os.path.join(directory, "model.pt"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    try:
        os.write(file, bytes(1 << 20))
        with frozen(directory, seconds):
            os.write(file, bytes(1 << 20))
    finally:
        os.close(file)


def create(directory: str, seconds: float) -> None:
    """The creation of a file: there is no descriptor yet."""
    path = os.path.join(directory, f"model-{time.monotonic_ns()}.pt")
    with frozen(directory, seconds):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o644))
    os.unlink(path)


def rename(directory: str, seconds: float) -> None:
    """The last call of a careful save."""
    path = os.path.join(directory, "model.pt")
    with open(path + ".tmp", "wb") as file:
        file.write(bytes(1 << 20))
    with frozen(directory, seconds):
        os.replace(path + ".tmp", path)


def slow_peer(_directory: str, seconds: float) -> None:
    """A request whose answer takes its time, as a metrics server's does."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        answer = threading.Thread(target=_answer, args=(server, seconds))
        answer.start()
        with socket.create_connection(server.getsockname()) as connection:
            connection.sendall(b"loss 0.5\n")
            connection.recv(16)
        answer.join()


def _answer(server: socket.socket, seconds: float) -> None:
    connection, _ = server.accept()
    with connection:
        time.sleep(seconds)
        connection.sendall(b"ok\n")


HANGS: dict[str, Callable[[str, float], None]] = {maker.__name__: maker for maker in (write, create, rename)}
PEERS: dict[str, Callable[[str, float], None]] = {"slow_peer": slow_peer}
