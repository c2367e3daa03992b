"""Grafana's annotation API over HTTP: create, change, find; every answer is one of three: done, never, not now."""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Callable
from functools import partial
from typing import Any
from urllib.parse import urlencode, urlsplit

from trainprobe_exporters.annotation import Annotation

MAX_ANSWER_BYTES = 1 << 20
_FOUND_AT_MOST = 100


class RefusedError(Exception):
    """Grafana will never take this one; the others may fare better."""


class UnreachableError(Exception):
    """Not now: the network, the server, the token. ``after``: seconds that Grafana asks to wait."""

    def __init__(self, reason: str, after: float | None = None) -> None:
        super().__init__(reason)
        self.after = after


class GrafanaApi:
    """``url`` may have a path (a proxy's prefix); ``token`` is asked at each request, so that a new one is taken."""

    def __init__(self, url: str, token: Callable[[], str], ca_file: str = "", timeout: float = 5.0) -> None:
        """Raises OSError when the authorities' file cannot be used."""
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "", parts.port
        self._path = parts.path.rstrip("/")
        self._connect: Callable[..., http.client.HTTPConnection] = http.client.HTTPConnection
        if parts.scheme == "https":
            context = ssl.create_default_context(cafile=ca_file or None)
            self._connect = partial(http.client.HTTPSConnection, context=context)
        self._token = token
        self._timeout = timeout

    def create(self, annotation: Annotation) -> int:
        """Grafana's number for it. Raises RefusedError, UnreachableError."""
        status, answer = self._ask("POST", "/api/annotations", _body(annotation))
        number = answer.get("id") if isinstance(answer, dict) else None
        if status != 200 or not isinstance(number, int):
            raise UnreachableError(f"an answer without a number: is {self._host} a Grafana?")
        return number

    def change(self, number: int, annotation: Annotation) -> bool:
        """Tell it anew; False if somebody has deleted it. Raises RefusedError, UnreachableError."""
        status, _ = self._ask("PATCH", f"/api/annotations/{number}", _body(annotation), absent_is_fine=True)
        return status == 200

    def find(self, annotation: Annotation, time: int) -> int | None:
        """The number of the one that was created with this ``time``, if it arrived. Raises UnreachableError."""
        first, last = min(time, annotation.time), max(time, annotation.time_end)
        tags = [("tags", tag) for tag in sorted(annotation.identity)]
        query = urlencode([("from", first - 1), ("to", last + 1), ("limit", _FOUND_AT_MOST), *tags])
        try:
            _, answer = self._ask("GET", f"/api/annotations?{query}", None)
        except RefusedError as error:
            raise UnreachableError(str(error)) from None
        for row in answer if isinstance(answer, list) else []:
            if row.get("time") == time and annotation.identity <= set(row.get("tags") or ()):
                number: int = row["id"]
                return number
        return None

    def _ask(self, method: str, path: str, body: Any, *, absent_is_fine: bool = False) -> tuple[int, Any]:
        try:
            headers = {"Authorization": f"Bearer {self._token()}", "Accept": "application/json"}
        except OSError as error:
            raise UnreachableError(f"the token cannot be read: {error.strerror}") from None
        data = None
        if body is not None:
            data, headers["Content-Type"] = json.dumps(body).encode(), "application/json"
        status, after, text = self._exchange(method, self._path + path, data, headers)
        if status == 404 and absent_is_fine:
            return status, None
        if status in (400, 413, 422):
            raise RefusedError(f"{status}: {_message(text)}")
        if status != 200:
            raise UnreachableError(f"{status}: {_message(text)}{_hint(status)}", after)
        try:
            return status, json.loads(text)
        except ValueError:
            raise UnreachableError(f"an answer that is no JSON: is {self._host} a Grafana?") from None

    def _exchange(
        self, method: str, path: str, data: bytes | None, headers: dict[str, str]
    ) -> tuple[int, float | None, bytes]:
        connection = self._connect(self._host, self._port, timeout=self._timeout)
        try:
            connection.request(method, path, data, headers)
            response = connection.getresponse()
            return response.status, _seconds(response.headers.get("Retry-After")), response.read(MAX_ANSWER_BYTES)
        except (OSError, http.client.HTTPException) as error:
            raise UnreachableError(f"{type(error).__name__}: {error}") from None
        except ValueError:  # it would show the token
            raise UnreachableError("the token is no header's value: is its file one line of ASCII?") from None
        finally:
            connection.close()


def _body(annotation: Annotation) -> dict[str, Any]:
    return {
        "time": annotation.time,
        "timeEnd": annotation.time_end,
        "text": annotation.text,
        "tags": list(annotation.tags),
    }


def _message(text: bytes) -> str:
    try:
        told = json.loads(text)["message"]
    except (ValueError, KeyError, TypeError):
        told = ""
    return str(told)[:200] if str(told).isprintable() else ""


def _hint(status: int) -> str:
    if status in (401, 403):
        return " (the service account needs annotations:create, annotations:write and annotations:read)"
    if 300 <= status < 400:
        return " (a redirect: give the address that it leads to)"
    return ""


def _seconds(text: str | None) -> float | None:
    return float(text) if text is not None and text.isascii() and text.isdigit() else None
