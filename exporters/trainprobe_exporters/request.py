"""The head of an HTTP/1.x request -> what was asked for. Strict: what is odd is refused, not guessed at."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import parse_qs, unquote

MAX_HEAD_BYTES = 8192
MAX_HEADERS = 64

_LINE = re.compile(r"([A-Z]{1,16}) (/[!-~]{0,2047}) HTTP/1\.([01])")
_HEADER = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*(.*?)[ \t]*")
_FORBIDDEN = re.compile(r"[^\t\x20-\x7e\x80-\xff]")


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
    keeps_alive: bool
    is_local: bool = False  # it came by the unix socket
    user: str = ""  # whose password came with it, if it was right

    def accepts(self, header: str, token: str) -> bool:
        """Whether an Accept-like header lists ``token`` with a weight above 0."""
        for item in self.headers.get(header, "").split(","):
            name, *parameters = (part.strip().lower() for part in item.split(";"))
            if name == token:
                return not any(re.fullmatch(r"q=0(\.0*)?", parameter) for parameter in parameters)
        return False


def parse_head(head: bytes, *, is_local: bool = False) -> Request:
    """A request head, up to and with its empty line. Raises BadRequestError."""
    lines = head.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
    line = _LINE.fullmatch(lines[0])
    if line is None:
        raise BadRequestError(400, "not an HTTP/1 request line")
    method, target, minor = line.groups()
    headers = _headers(lines[1:])
    if minor == "1" and "host" not in headers:
        raise BadRequestError(400, "no Host header")
    if headers.get("content-length", "0") != "0" or "transfer-encoding" in headers:
        raise BadRequestError(413, "requests have no body here")
    path, _, query = target.partition("?")
    try:
        fields = parse_qs(query, max_num_fields=16, keep_blank_values=True, errors="replace")
    except ValueError:
        raise BadRequestError(400, "too many query fields") from None
    connection = headers.get("connection", "").lower()
    keeps_alive = "close" not in connection if minor == "1" else "keep-alive" in connection
    latest = {name: values[-1] for name, values in fields.items()}
    return Request(method, unquote(path), latest, headers, keeps_alive, is_local)


def _headers(lines: list[str]) -> dict[str, str]:
    if len(lines) > MAX_HEADERS:
        raise BadRequestError(431, f"more than {MAX_HEADERS} headers")
    headers: dict[str, str] = {}
    for line in lines:
        match = _HEADER.fullmatch(line)
        if match is None or _FORBIDDEN.search(line):
            raise BadRequestError(400, "malformed header")
        name, value = match[1].lower(), match[2]
        if name in headers and name in ("host", "content-length", "authorization"):
            raise BadRequestError(400, f"two {name} headers")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers
