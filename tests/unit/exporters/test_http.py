"""The server on a real socket against clients that are silent, slow, rude or many."""

from __future__ import annotations

import os
import select
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import pytest

from benchmarks import pace
from tests.unit.exporters.serving import Running, rest_of, serving
from trainprobe_exporters.connection import ConnectionLimits
from trainprobe_exporters.request import MAX_HEAD_BYTES, Request
from trainprobe_exporters.routes import Response

BIG = b"0123456789abcdef" * (1 << 20)  # 16 MB: more than socket buffers take
REQUEST = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


def answer(request: Request) -> Response:
    if request.path == "/big":
        return Response(200, BIG)
    if request.path[1:].isdigit():
        return Response(200, BIG[: int(request.path[1:])])
    if request.path == "/busy":
        time.sleep(0.3)
    if request.path == "/breaks":
        raise RuntimeError("by design")
    return Response(200, f"{request.method} {request.path}\n".encode(), headers={"Vary": "Accept"})


@pytest.fixture
def server() -> Iterator[Running]:
    with serving(answer) as running:
        yield running


@pytest.fixture
def hasty() -> Iterator[Running]:
    """Limits short enough to wait for."""
    with serving(
        answer, ConnectionLimits(connections=4, head_seconds=0.3, idle_seconds=0.5, write_seconds=0.7)
    ) as running:
        yield running


def test_get(server: Running) -> None:
    got = server.get("/hello")
    assert (got.status, got.body) == (200, b"GET /hello\n")
    assert got.headers["Vary"] == "Accept"


def test_head_has_the_headers_of_get_and_no_body(server: Running) -> None:
    client = server.send(b"HEAD /hello HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    head, _, body = rest_of(client).partition(b"\r\n\r\n")
    assert b"Content-Length: 12" in head
    assert body == b""


def test_security_headers_on_every_answer(server: Running) -> None:
    for got in (server.get(), server.get("/breaks")):
        assert got.headers["X-Content-Type-Options"] == "nosniff"
        assert got.headers["Content-Security-Policy"].startswith("default-src 'none'")
        assert got.headers["X-Frame-Options"] == "DENY"
        assert got.headers["Referrer-Policy"] == "no-referrer"
        assert got.headers["Cache-Control"] == "no-store"


def test_a_connection_serves_many_requests_pipelined_ones_too(server: Running) -> None:
    close = b"GET /last HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    answers = rest_of(server.send(REQUEST * 3 + close))
    assert answers.count(b"HTTP/1.1 200 OK") == 4
    assert answers.endswith(b"GET /last\n")


@pytest.mark.parametrize(
    ("request_line", "connection", "answers"),
    [
        (b"GET / HTTP/1.1", b"", 2),
        (b"GET / HTTP/1.1", b"Connection: close\r\n", 1),
        (b"GET / HTTP/1.0", b"", 1),
        (b"GET / HTTP/1.0", b"Connection: Keep-Alive\r\n", 1),
    ],
)
def test_keeping_the_connection(server: Running, request_line: bytes, connection: bytes, answers: int) -> None:
    asked = request_line + b"\r\nHost: x\r\n" + connection + b"\r\n"
    last = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    assert rest_of(server.send(asked + last)).count(b"HTTP/1.1 200 OK") == answers


def test_an_answer_that_breaks_is_a_500_and_the_server_lives_on(
    server: Running, capfd: pytest.CaptureFixture[str]
) -> None:
    got = server.get("/breaks")
    assert got.status == 500
    assert b"by design" not in got.body
    assert "'/breaks': RuntimeError: by design" in capfd.readouterr().err
    assert server.get().status == 200


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", b"400"),
        (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\n\r\n", b"400"),
        (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000\r\n\r\n", b"413"),
        (b"GET / HTTP/1.1\r\nHost: x\r\nA: " + b"b" * 2 * MAX_HEAD_BYTES + b"\r\n\r\n", b"431"),
        (b"G" * 3 * MAX_HEAD_BYTES, b"431"),
    ],
)
def test_what_is_no_request_is_refused_and_the_connection_closed(server: Running, data: bytes, status: bytes) -> None:
    client = server.send(data)
    # What the server did not read makes the kernel reset the connection, which may take the answer with it.
    answer = rest_of(client)
    assert answer == b"" or answer.startswith(b"HTTP/1.1 " + status)
    assert server.get().status == 200


def test_silent_and_trickling_clients_lose_their_connection(hasty: Running) -> None:
    begun = time.monotonic()
    silent, half = hasty.send(), hasty.send(b"GET / HTTP/1.1\r\nHo")
    assert rest_of(silent).startswith(b"HTTP/1.1 408")
    assert rest_of(half).startswith(b"HTTP/1.1 408")
    with pytest.raises(OSError):
        trickle(hasty.send())
    assert pace.within(time.monotonic() - begun, 3)


def trickle(client: socket.socket) -> None:
    """A byte now and then, for five seconds at most."""
    with client:
        for _ in range(100):
            client.sendall(b"X")
            time.sleep(0.05)


def test_an_idle_connection_is_closed(hasty: Running) -> None:
    client = hasty.send(REQUEST)
    begun = time.monotonic()
    assert rest_of(client).count(b"HTTP/1.1") == 1
    took = time.monotonic() - begun
    assert took > 0.3
    assert pace.within(took, 2)


def test_a_reader_that_does_not_read_is_cut_off(hasty: Running) -> None:
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect(("127.0.0.1", hasty.port))
    client.sendall(b"GET /big HTTP/1.1\r\nHost: x\r\n\r\n")
    time.sleep(1.5)
    assert len(rest_of(client)) < len(BIG)
    assert hasty.get().status == 200


def test_the_end_of_an_answer_is_not_kept_for_a_reader_that_never_takes_it() -> None:
    """Answers of all sizes around what the kernel's buffers take: none leaves a connection behind."""
    with serving(answer, ConnectionLimits(write_seconds=0.5)) as running:
        clients = [
            running.send(f"GET /{size} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
            for size in range(0, 6 << 20, 60_000)
        ]
        for client in clients:
            assert client.recv(1, socket.MSG_PEEK), "each has begun to be answered"
        until = time.monotonic() + 30
        while (held := connections(running.port)) and time.monotonic() < until:
            time.sleep(0.05)
        assert held == 0
        for client in clients:
            client.close()


def connections(port: int) -> int:
    """How many the server on a port of this process holds."""
    ours = psutil.Process().net_connections("tcp")
    return sum(one.laddr.port == port and one.status != psutil.CONN_LISTEN for one in ours)


def test_a_large_answer_arrives_whole(server: Running) -> None:
    assert server.get("/big").body == BIG


def test_who_has_waited_longest_makes_room(hasty: Running) -> None:
    """All places are taken by silent clients; a scrape is answered at once, not when their time is up."""
    silent = [hasty.send() for _ in range(4)]
    begun = time.monotonic()
    assert hasty.get().status == 200
    assert pace.within(time.monotonic() - begun, 0.25)
    assert rest_of(silent[0]) == b"", "the first one lost its place without a word"
    for client in silent[1:]:
        client.close()


def test_a_burst_of_connections_stays_within_the_cap(hasty: Running) -> None:
    before = len(os.listdir("/proc/self/fd"))
    silent = [socket.socket() for _ in range(100)]
    for client in silent:
        client.setblocking(False)
        client.connect_ex(("127.0.0.1", hasty.port))
    assert hasty.get().status == 200  # it stands behind them in the kernel's queue
    assert len(os.listdir("/proc/self/fd")) - before <= len(silent) + 4
    for client in silent:
        client.close()


def test_a_burst_that_comes_while_the_loop_is_busy_does_not_cost_a_scrape_a_second(server: Running) -> None:
    """A full queue of the kernel drops who comes next without a word; he tries again one second later."""
    busy = server.send(b"GET /busy HTTP/1.1\r\nHost: x\r\n\r\n")
    time.sleep(0.05)  # until it is being answered
    burst = [socket.socket() for _ in range(400)]
    for client in burst:
        client.setblocking(False)
        client.connect_ex(("127.0.0.1", server.port))
    scrape = server.send(REQUEST)
    assert scrape.recv(100).startswith(b"HTTP/1.1 200")
    assert sent_again(scrape) == 0
    for client in (busy, *burst, scrape):
        client.close()


def sent_again(client: socket.socket) -> int:
    """Packets that a client had to send again, the first one included: tcpi_total_retrans of linux/tcp.h."""
    (count,) = struct.unpack_from("=I", client.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104), 100)
    return int(count)


def test_110_silent_clients_and_slow_readers_do_not_keep_prometheus_out(server: Running) -> None:
    silent = [server.send() for _ in range(110)]
    halves = [server.send(b"GET /metrics HT") for _ in range(40)]
    slow = [server.send(b"GET /big HTTP/1.1\r\nHost: x\r\n\r\n") for _ in range(20)]
    took = []
    for _ in range(20):
        begun = time.monotonic()
        assert server.get().status == 200
        took.append(time.monotonic() - begun)
    assert pace.within(max(took), 1.0), took
    for client in (*silent, *halves, *slow):
        client.close()


def test_slow_readers_in_all_places_do_not_keep_prometheus_out(server: Running) -> None:
    """14 clients with 256 connections that ask and do not read; who is cut off comes back at once."""
    with slow_readers(server, clients=14, connections=256):
        took = []
        for _ in range(12):
            begun = time.monotonic()
            assert server.get("/1000000").body == BIG[:1_000_000]
            took.append(time.monotonic() - begun)
            time.sleep(0.1)
    assert pace.within(max(took), 1.0), took


@contextmanager
def slow_readers(running: Running, *, clients: int, connections: int) -> Iterator[None]:
    stop = threading.Event()
    answered = threading.Semaphore(0)

    def connect() -> socket.socket:
        made = socket.socket()
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        made.connect(("127.0.0.1", running.port))
        made.sendall(b"GET /big HTTP/1.1\r\nHost: x\r\n\r\n")
        return made

    def client(number: int) -> None:
        held = [connect() for _ in range(number, connections, clients)]
        for one in held:
            one.recv(1)
            answered.release()
        while not stop.wait(0.02):
            hung_up = select.poll()
            for one in held:
                hung_up.register(one, select.POLLRDHUP)
            gone = {descriptor for descriptor, _ in hung_up.poll(0)}
            for index, one in enumerate(held):
                if one.fileno() in gone:
                    one.close()
                    held[index] = connect()
        for one in held:
            one.close()

    threads = [threading.Thread(target=client, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(connections):
            assert answered.acquire(timeout=10)
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_a_crowd_beyond_the_cap_is_served_in_the_end(hasty: Running) -> None:
    """Sixteen clients of whom each retries when it was sent away, four places."""
    answered = []

    def client() -> None:
        for _ in range(50):
            try:
                answered.append(hasty.get().status)
                return
            except OSError:
                time.sleep(0.02)

    threads = [threading.Thread(target=client) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answered == [200] * 16


def test_no_thread_and_no_descriptor_stays_behind() -> None:

    before = len(os.listdir("/proc/self/fd")), threading.active_count()
    with serving(answer) as running:
        clients = [running.send() for _ in range(10)]
        running.get()
        time.sleep(0.1)
        assert threading.active_count() == before[1] + 1, "the loop's own thread and no other"
    for client in clients:
        client.close()
    assert (len(os.listdir("/proc/self/fd")), threading.active_count()) == before
