"""The head of an HTTP/1.x request, parsed by h11 -> what was asked for. What is odd is refused, not guessed at."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from urllib.parse import parse_qs, unquote

import h11

from trainprobe.model.dataclass import dataclass

MAX_HEAD_BYTES = 8192
MAX_HEADERS = 64

_METHOD = re.compile(r"[A-Z]{1,16}")
_TARGET = re.compile(r"/[!-~]{0,2047}")
_ODD = re.compile(rb"(?<!\r)\n|\n[ \t]")
"""Ends of lines and folded headers that h11 takes and a proxy before us may read otherwise."""
_SINGLE = ("host", "content-length", "authorization")


class BadRequestError(Exception):
    """The request is refused with this status; the connection cannot be used any further."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    query: Mapping[str, str]  # of a name that is given twice, the last value
    headers: Mapping[str, str]  # names in lower case; repeated ones joined by ", "
    is_local: bool = False  # it came by the unix socket
    user: str = ""  # whose password came with it, if it was right

    def accepts(self, header: str, token: str) -> bool:
        """Whether an Accept-like header lists ``token`` with a weight above 0."""
        for item in self.headers.get(header, "").split(","):
            name, *parameters = (part.strip().lower() for part in item.split(";"))
            if name == token:
                return not any(re.fullmatch(r"q=0(\.0*)?", parameter) for parameter in parameters)
        return False


def parse_head(head: bytes, protocol: h11.Connection | None = None, *, is_local: bool = False) -> Request:
    """A request head, up to and with its empty line, by the ``protocol`` of its connection. Raises BadRequestError."""
    protocol = protocol or h11.Connection(h11.SERVER)
    if _ODD.search(head):
        raise BadRequestError(400, "malformed header")
    try:
        protocol.receive_data(head)
        told, end = protocol.next_event(), protocol.next_event()
    except h11.RemoteProtocolError as error:
        raise BadRequestError(error.error_status_hint, f"no HTTP/1 request: {error}") from None
    if not isinstance(told, h11.Request):
        raise BadRequestError(400, "not an HTTP/1 request")
    if not isinstance(end, h11.EndOfMessage):
        raise BadRequestError(413, "requests have no body here")
    method, target = told.method.decode("latin-1"), told.target.decode("latin-1")
    if not _METHOD.fullmatch(method) or not _TARGET.fullmatch(target) or told.http_version not in (b"1.0", b"1.1"):
        raise BadRequestError(400, "not an HTTP/1 request line")
    path, _, query = target.partition("?")
    try:
        fields = parse_qs(query, max_num_fields=16, keep_blank_values=True, errors="replace")
    except ValueError:
        raise BadRequestError(400, "too many query fields") from None
    latest = {name: values[-1] for name, values in fields.items()}
    return Request(method, unquote(path), latest, _headers(told.headers), is_local)


def _headers(told: Collection[tuple[bytes, bytes]]) -> dict[str, str]:
    if len(told) > MAX_HEADERS:
        raise BadRequestError(431, f"more than {MAX_HEADERS} headers")
    headers: dict[str, str] = {}
    for name, value in ((name.decode("latin-1"), value.decode("latin-1")) for name, value in told):
        if name in headers and name in _SINGLE:
            raise BadRequestError(400, f"two {name} headers")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers
