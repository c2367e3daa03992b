from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainprobe_exporters.request import BadRequestError, Request, parse_head


def head(*lines: str) -> bytes:
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def get(target: str = "/metrics", *headers: str) -> Request:
    return parse_head(head(f"GET {target} HTTP/1.1", "Host: x", *headers))


def test_a_request_is_what_it_says() -> None:
    request = get("/api/v1/report?token=a%20b&x=", "Accept: text/plain", "accept: */*")
    assert (request.method, request.path) == ("GET", "/api/v1/report")
    assert request.query == {"token": "a b", "x": ""}
    assert request.headers["accept"] == "text/plain, */*"


@pytest.mark.parametrize(
    ("lines", "status"),
    [
        (["GET /metrics"], 400),
        (["GET  /metrics HTTP/1.1", "Host: x"], 400),
        (["GET http://x/metrics HTTP/1.1", "Host: x"], 400),
        (["GET /metrics HTTP/2.0", "Host: x"], 400),
        (["get /metrics HTTP/1.1", "Host: x"], 400),
        (["GET /metrics HTTP/1.1"], 400),
        (["GET /metrics HTTP/1.1", "Host: x", "Host: y"], 400),
        (["GET /metrics HTTP/1.1", "Host : x"], 400),
        (["GET /metrics HTTP/1.1", "Host: x", " folded"], 400),
        (["GET /metrics HTTP/1.1", "Host: x", "A: b\x00c"], 400),
        (["GET /metrics HTTP/1.1", "Host: x", "A: b\nC: d"], 400),
        (["GET /" + "x" * 2100 + " HTTP/1.1", "Host: x"], 400),
        (["GET /é HTTP/1.1", "Host: x"], 400),
        (["GET /?" + "a=1&" * 20 + " HTTP/1.1", "Host: x"], 400),
        (["POST /metrics HTTP/1.1", "Host: x", "Content-Length: 5"], 413),
        (["GET /metrics HTTP/1.1", "Host: x", "Transfer-Encoding: chunked"], 413),
        (["GET /metrics HTTP/1.1", "Host: x", *[f"H{n}: v" for n in range(70)]], 431),
    ],
)
def test_what_is_odd_is_refused(lines: list[str], status: int) -> None:
    with pytest.raises(BadRequestError) as refused:
        parse_head(head(*lines))
    assert refused.value.status == status


@given(st.binary(max_size=300))
def test_no_bytes_however_odd_do_more_than_be_refused(data: bytes) -> None:
    try:
        parse_head(data + b"\r\n\r\n")
    except BadRequestError as refused:
        assert refused.status in (400, 413, 431)


@pytest.mark.parametrize(
    ("value", "accepted"),
    [
        ("gzip", True),
        ("deflate, gzip;q=0.5", True),
        ("GZIP", True),
        ("gzip;q=0", False),
        ("gzip; q=0.000", False),
        ("identity", False),
        ("", False),
    ],
)
def test_accepting(value: str, accepted: bool) -> None:
    assert get("/", f"Accept-Encoding: {value}").accepts("accept-encoding", "gzip") is accepted
