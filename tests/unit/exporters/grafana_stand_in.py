"""A stand-in for Grafana's annotation API, as its documentation has it: what is stored, what is refused, what fails.

POST, PATCH and GET /api/annotations with a service account's token. Errors are asked for by a test: a status for the
next requests, or a connection that is cut before or after the annotation was stored.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

TOKEN = "glsa_standin"
CUT_BEFORE, CUT_AFTER = "cut before", "cut after"


@dataclass
class StandIn:
    url: str = ""
    token: str = TOKEN
    annotations: dict[int, dict[str, Any]] = field(default_factory=dict)
    requests: list[tuple[str, str]] = field(default_factory=list)
    failures: list[int | str] = field(default_factory=list)  # for the next requests, one each
    failing: int | str | None = None  # for all of them
    retry_after: str = ""
    refused_text: str = ""  # an annotation with this in its text is a bad request
    lock: threading.Lock = field(default_factory=threading.Lock)

    def regions(self) -> list[tuple[int, int, str]]:
        with self.lock:
            return sorted((a["time"], a["timeEnd"], a["text"]) for a in self.annotations.values())


class _Handler(BaseHTTPRequestHandler):
    stand_in: StandIn

    def do_POST(self) -> None:
        self._answer("POST")

    def do_PATCH(self) -> None:
        self._answer("PATCH")

    def do_GET(self) -> None:
        self._answer("GET")

    def _answer(self, method: str) -> None:
        grafana = self.stand_in
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        with grafana.lock:
            grafana.requests.append((method, self.path))
            failure = grafana.failures.pop(0) if grafana.failures else grafana.failing
            if failure == CUT_BEFORE:
                self.close_connection = True
                return
            status, answer = (failure, {"message": "asked for"}) if isinstance(failure, int) else self._do(method, body)
            if failure == CUT_AFTER:
                self.close_connection = True
                return
        data = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        if grafana.retry_after:
            self.send_header("Retry-After", grafana.retry_after)
        self.end_headers()
        self.wfile.write(data)

    def _do(self, method: str, body: bytes) -> tuple[int, Any]:
        if self.headers.get("Authorization") != f"Bearer {self.stand_in.token}":
            return 401, {"message": "Invalid API key"}
        address = urlsplit(self.path)
        number = re.fullmatch(r"/grafana/api/annotations(?:/(\d+))?", address.path)
        if number is None:
            return 404, {"message": "Not found"}
        if method == "GET":
            return 200, self._found(parse_qs(address.query))
        try:
            given = json.loads(body)
        except ValueError:
            return 400, {"message": "bad request data"}
        return self._changed(int(number[1]), given) if method == "PATCH" else self._created(given)

    def _created(self, given: dict[str, Any]) -> tuple[int, Any]:
        grafana = self.stand_in
        if not given.get("text") or (grafana.refused_text and grafana.refused_text in given["text"]):
            return 400, {"message": "Failed to save annotation: text field should not be empty"}
        number = len(grafana.annotations) + 1
        grafana.annotations[number] = {"id": number, **given}
        return 200, {"message": "Annotation added", "id": number}

    def _changed(self, number: int, given: dict[str, Any]) -> tuple[int, Any]:
        if number not in self.stand_in.annotations:
            return 404, {"message": "Annotation not found"}
        self.stand_in.annotations[number].update(given)
        return 200, {"message": "Annotation patched"}

    def _found(self, query: dict[str, list[str]]) -> list[dict[str, Any]]:
        first, last, tags = int(query["from"][0]), int(query["to"][0]), set(query["tags"])
        rows = self.stand_in.annotations.values()
        found = [a for a in rows if a["time"] <= last and a["timeEnd"] >= first and tags <= set(a["tags"])]
        return found[: int(query["limit"][0])]

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def stand_in() -> Iterator[StandIn]:
    """It listens until the test is over; a proxy's prefix is part of its address."""
    grafana = StandIn()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"stand_in": grafana}))
    grafana.url = f"http://127.0.0.1:{server.server_address[1]}/grafana"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield grafana
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
