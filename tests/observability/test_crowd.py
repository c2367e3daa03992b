"""A crowd of clients that misbehave in every manner does not keep Prometheus out."""

from __future__ import annotations

import os
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from benchmarks import pace
from tests.unit.exporters.certificates import Authority
from tests.unit.exporters.programs import Exporter
from tests.unit.exporters.reports import a_busy_rank, a_report, a_run
from tests.unit.exporters.test_protection import TLS, protected
from tests.unit.exporters.test_source import publish


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority.made(tmp_path)


def test_silent_clients_slow_readers_and_half_open_handshakes_do_not_keep_prometheus_out(
    tmp_path: Path, authority: Authority
) -> None:
    """20 scrapes of 16 ranks, two each second, by a client that connects anew: each is whole within a second."""
    publish(tmp_path / "report.json", a_report(a_run("r", *[a_busy_rank(str(n)) for n in range(16)]), at=time.time()))
    with protected(tmp_path, authority, TLS) as running, crowd(running, authority) as busy:
        took = []
        for _ in range(20):
            begun = time.monotonic()
            status, body = running.get("/metrics")
            took.append(time.monotonic() - begun)
            assert (status, body.count(b"trainprobe_steps_total{")) == (200, 16)
            time.sleep(max(0.0, 0.5 - took[-1]))
        assert busy() >= 100, "the crowd was there all the time"
        threads = len(os.listdir(f"/proc/{running.process.pid}/task"))
        assert threads == 1, "none of them got a thread"
    assert pace.within(max(took), 1.0), took


@contextmanager
def crowd(running: Exporter, authority: Authority) -> Iterator[Callable[[], int]]:
    """110 silent clients, 20 that stop in the handshake, 10 that ask and do not read; each comes back when cut off."""
    port = int(running.url.rpartition(":")[2])
    stop = threading.Event()
    connected: dict[int, bool] = {}

    def client(number: int) -> None:
        while not stop.is_set():
            with socket.create_connection(("127.0.0.1", port), timeout=10) as plain:
                connected[number] = True
                try:
                    _misbehave(plain, number, authority)
                    plain.settimeout(0.5)
                    while not stop.is_set():
                        try:
                            if not plain.recv(1):
                                break
                        except TimeoutError:
                            continue
                except OSError:
                    pass
            connected[number] = False

    threads = [threading.Thread(target=client, args=(number,)) for number in range(140)]
    for thread in threads:
        thread.start()
    try:
        yield lambda: sum(connected.values())
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def _misbehave(plain: socket.socket, number: int, authority: Authority) -> None:
    if number >= 130:
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = authority.trusted().wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                plain.sendall(outgoing.read())
                incoming.write(plain.recv(65536))
        tls.write(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n" * 50)
        plain.sendall(outgoing.read())
        time.sleep(5)
    elif number >= 110:
        plain.sendall(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")  # the beginning of a handshake
