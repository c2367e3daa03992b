"""HTTP clients that take their time: ``slow_clients.py HOST PORT CLIENTS``, until it is killed.

A third says nothing, a third sends a byte of its request now and then, a third reads next to nothing of the answer.
Each comes again as soon as it is sent away.
"""

from __future__ import annotations

import socket
import sys
import time

REQUEST = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 4000
WHOLE = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"
PAUSE_SECONDS = 0.25
LITTLE = 2048  # bytes that wait to be read


class Client:
    def __init__(self, place: tuple[str, int], kind: int) -> None:
        self._place, self._kind = place, kind
        self._socket: socket.socket | None = None
        self._sent = 0

    def go_on(self) -> None:
        try:
            if self._socket is None:
                self._connect()
            elif self._kind == 1:
                self._socket.send(REQUEST[self._sent : self._sent + 1])
                self._sent += 1
            if self._socket is not None and not self._socket.recv(1):
                self._end()
        except BlockingIOError:
            pass
        except OSError:
            self._end()

    def _connect(self) -> None:
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, LITTLE)
        self._socket.settimeout(1)
        self._socket.connect(self._place)
        self._socket.setblocking(False)
        self._sent = 0
        if self._kind == 2:
            self._socket.send(WHOLE)

    def _end(self) -> None:
        if self._socket is not None:
            self._socket.close()
        self._socket = None


def main() -> None:
    place = sys.argv[1], int(sys.argv[2])
    clients = [Client(place, number % 3) for number in range(int(sys.argv[3]))]
    while True:
        for client in clients:
            client.go_on()
        time.sleep(PAUSE_SECONDS)


if __name__ == "__main__":
    main()
