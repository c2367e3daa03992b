"""Request -> response: which path tells what, and to whom."""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable, Mapping
from dataclasses import field, replace

from trainprobe.model.dataclass import dataclass
from trainprobe.text.catalogue import LANGUAGES
from trainprobe.text.render import Speaker
from trainprobe.views import page
from trainprobe.wire import report as wire
from trainprobe_exporters.admission import Admission
from trainprobe_exporters.exposition import Format
from trainprobe_exporters.history import History
from trainprobe_exporters.hosts import REMEDY
from trainprobe_exporters.publication import GZIP_LEVEL, Publication
from trainprobe_exporters.request import Request
from trainprobe_exporters.source import SnapshotError
from trainprobe_exporters.stall_list import QueryError, stall_list
from trainprobe_exporters.step_list import step_list

PLAIN = "text/plain; charset=utf-8"
HTML = "text/html; charset=utf-8"
JSON = "application/json"
PAGE = "/"
CLOCK = "X-Trainprobe-Monotonic"  # the host's CLOCK_MONOTONIC now, in seconds: it dates ``generated_monotonic``
SMALL = 2000  # bytes that are not worth compressing
_OPEN = "/metrics, /-/healthy, /-/ready; with the token: /, /api/v1/report, /api/v1/stalls?since=, /api/v1/steps?run="

_NAMED = re.compile(r"\b(?:users?|uids?) [0-9]+(?:, [0-9]+)*", re.IGNORECASE)
"""Users in a source's reason. Whoever may see the report is told which."""


@dataclass(frozen=True)
class Response:
    status: int
    body: bytes
    content_type: str = PLAIN
    headers: Mapping[str, str] = field(default_factory=dict)


class Routes:
    def __init__(self, publication: Publication, admission: Admission, history: History | None = None) -> None:
        self._publication = publication
        self._history = history or History()
        self.admission = admission
        self._paths: Mapping[str, Callable[[Request], Response]] = {
            "/metrics": self._open(self._metrics),
            "/-/healthy": self._open(lambda _: _text(200, "healthy")),
            "/-/ready": self._open(self._ready),
            PAGE: self._guarded(lambda request: _html(200, page.live(_reader(request)), {"Vary": "Accept-Language"})),
            "/api/v1/report": self._guarded(self._report),
            "/api/v1/stalls": self._guarded(self._stalls),
            "/api/v1/steps": self._guarded(self._steps),
        }

    def answer(self, request: Request) -> Response:
        """The response; to HEAD the same as to GET (the server leaves the body out)."""
        if request.method not in ("GET", "HEAD"):
            return Response(405, b"only GET and HEAD\n", headers={"Allow": "GET, HEAD"})
        if self.admission.guards_all and not self.admission.admits(request):
            return self._refusal(request)
        path = self._paths.get(request.path)
        return path(request) if path else _text(404, f"no such page; there are {_OPEN}")

    def _metrics(self, request: Request) -> Response:
        wants_openmetrics = request.accepts("accept", "application/openmetrics-text")
        form = Format.OPENMETRICS if wants_openmetrics else Format.TEXT
        compressed = request.accepts("accept-encoding", "gzip")
        body = self._publication.metrics(form, compressed=compressed)
        headers = {"Vary": "Accept, Accept-Encoding"}
        if compressed:
            headers["Content-Encoding"] = "gzip"
        return Response(200, body, form.value, headers)

    def _ready(self, request: Request) -> Response:
        health = self._publication.health()
        missing = [f"not on this host: {source}" for source in health.missing]
        lines = ["degraded", *health.degraded, *missing] if health.degraded else ["ready", *missing]
        told = "\n".join(lines)
        return _text(
            503 if health.degraded else 200, told if self.admission.admits(request) else _NAMED.sub("a user", told)
        )

    def _report(self, request: Request) -> Response:
        speaker = _speaker(request)
        try:
            text = self._publication.source.text()
        except SnapshotError as error:
            return _text(503, str(error))
        report = self._publication.report() if speaker.language != "en" else None
        if report is not None:
            text = wire.encode(speaker.report(report)).encode()
        return Response(200, text, JSON, {CLOCK: f"{self._publication.monotonic():.3f}"})

    def _stalls(self, request: Request) -> Response:
        report = self._publication.report()
        if report is None:
            return _text(503, "\n".join(self._publication.health().degraded))
        try:
            return Response(200, stall_list(report, self._history, request.query, _speaker(request)), JSON)
        except QueryError as error:
            return _text(400, str(error))

    def _steps(self, request: Request) -> Response:
        try:
            return Response(200, step_list(self._history, request.query), JSON)
        except QueryError as error:
            return _text(400, str(error))

    def _open(self, inner: Callable[[Request], Response]) -> Callable[[Request], Response]:
        def opened(request: Request) -> Response:
            if self.admission.is_asked_by_name(request):
                return inner(request)
            return _text(421, f"the Host header is none of this exporter's names: {REMEDY}")

        return opened

    def _guarded(self, inner: Callable[[Request], Response]) -> Callable[[Request], Response]:
        def guarded(request: Request) -> Response:
            if self.admission.admits(request):
                return _compressed(request, inner(request))
            if self.admission.is_shut:
                return _text(503, "the API is shut: the exporter could not write its token file (see its log)")
            return self._refusal(request)

        return guarded

    def _refusal(self, request: Request) -> Response:
        if request.path == PAGE:
            return _html(401, page.token_page(_reader(request)), {"WWW-Authenticate": self.admission.challenge})
        text = b"the token or the password is missing or wrong (`trainprobe page` prints the token)\n"
        return Response(401, text, headers={"WWW-Authenticate": self.admission.challenge})


def _speaker(request: Request) -> Speaker:
    """What ``lang=`` asks for; English where there is no translation."""
    asked = request.query.get("lang", "en")
    return Speaker(asked if asked in LANGUAGES else "en")


def _reader(request: Request) -> str:
    """The first language of ``Accept-Language`` in which the page can be read; ``lang=`` goes before it."""
    asked = [request.query.get("lang", ""), *request.headers.get("accept-language", "").split(",")]
    wanted = (one.strip().partition(";")[0].partition("-")[0].lower() for one in asked)
    return next((one for one in wanted if one in LANGUAGES), "en")


def _html(status: int, made: page.Page, headers: Mapping[str, str] | None = None) -> Response:
    policy = f"{made.policy}; frame-ancestors 'none'"
    return Response(status, made.html.encode(), HTML, {"Content-Security-Policy": policy, **(headers or {})})


def _compressed(request: Request, response: Response) -> Response:
    """The same in fewer bytes to whom takes it: through an ssh tunnel or a proxy a report is felt otherwise."""
    if len(response.body) < SMALL or not request.accepts("accept-encoding", "gzip"):
        return response
    body = gzip.compress(response.body, GZIP_LEVEL, mtime=0)
    headers = {**response.headers, "Content-Encoding": "gzip", "Vary": "Accept-Encoding"}
    return replace(response, body=body, headers=headers)


def _text(status: int, text: str) -> Response:
    return Response(status, text.encode(errors="replace") + b"\n")
