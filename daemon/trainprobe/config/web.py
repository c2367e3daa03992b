"""Prometheus's web configuration, as far as trainprobe-exporter honours it; what it cannot honour is an error.

The form is that of the Prometheus exporter toolkit, so that a fleet gives all its exporters one file. Its names of TLS
versions and of policies for client certificates are Go's.
"""

from __future__ import annotations

import re
from dataclasses import field

from trainprobe.config.schema import Problems, key, section
from trainprobe.model.dataclass import dataclass
from trainprobe.text.saying import saying, word

TLS_VERSIONS = ("TLS10", "TLS11", "TLS12", "TLS13")
NO_CLIENT_CERTIFICATE = "NoClientCert"
VERIFIED_CLIENT_CERTIFICATE = "RequireAndVerifyClientCert"
HEADERS = (
    "Content-Security-Policy",
    "X-Frame-Options",
    "X-Content-Type-Options",
    "X-XSS-Protection",
    "Strict-Transport-Security",
)
_HASH = re.compile(r"\$2[aby]\$(?P<cost>[0-9]{2})\$[./A-Za-z0-9]{53}")
MAX_COST = 15  # 2 s of CPU for a password; each step doubles it


def texts(meaning: str) -> dict[str, str]:
    """A key that holds texts by names of the user's choosing."""
    made: dict[str, str] = field(default_factory=dict, metadata={"meaning": meaning})
    return made


@dataclass(frozen=True, slots=True)
class TlsServer:
    cert_file: str = key("", "PEM file with the certificate chain")
    key_file: str = key("", "PEM file with its private key")
    client_auth_type: str = key(NO_CLIENT_CERTIFICATE, "whether clients must show a certificate")
    client_ca_file: str = key("", "PEM file with the authorities whose client certificates are taken")
    min_version: str = key("TLS12", "the oldest TLS version that is taken")
    max_version: str = key("TLS13", "the newest")

    def problems(self) -> Problems:
        if bool(self.cert_file) != bool(self.key_file):
            yield ("key_file" if self.cert_file else "cert_file"), word("cert_file and key_file are given together")
        for name in ("min_version", "max_version"):
            if getattr(self, name) not in TLS_VERSIONS:
                yield name, saying("must be one of {names}", names=", ".join(TLS_VERSIONS))
        if self.client_auth_type not in (NO_CLIENT_CERTIFICATE, VERIFIED_CLIENT_CERTIFICATE):
            known = {"none": NO_CLIENT_CERTIFICATE, "verified": VERIFIED_CLIENT_CERTIFICATE}
            yield "client_auth_type", saying("must be {none} or {verified}: other policies verify nothing", **known)
        if (self.client_auth_type == VERIFIED_CLIENT_CERTIFICATE) != bool(self.client_ca_file):
            yield (
                "client_ca_file",
                saying("goes together with {key}", key=f"client_auth_type: {VERIFIED_CLIENT_CERTIFICATE}"),
            )
        if not self.cert_file and self.client_ca_file:
            yield "cert_file", word("must be given with client_ca_file")


@dataclass(frozen=True, slots=True)
class HttpServer:
    http2: bool = key(True, "taken, but without effect: the exporter speaks HTTP/1.1, which every client does too")
    headers: dict[str, str] = texts("headers of every response")

    def problems(self) -> Problems:
        for name, value in self.headers.items():
            if name not in HEADERS:
                yield (
                    "headers",
                    saying("{name} cannot be set; those that can: {names}", name=name, names=", ".join(HEADERS)),
                )
            elif not value.isascii() or not value.isprintable():
                yield "headers", saying("{name} must be printable ASCII", name=name)


@dataclass(frozen=True, slots=True)
class WebConfig:
    """Prometheus's web configuration"""

    tls_server_config: TlsServer = section(TlsServer, "HTTPS instead of HTTP")
    http_server_config: HttpServer = section(HttpServer, "how HTTP is spoken")
    basic_auth_users: dict[str, str] = texts("names and bcrypt hashes of their passwords")

    def problems(self) -> Problems:
        for name, text in self.basic_auth_users.items():
            place, found = f"basic_auth_users.{name}", _HASH.fullmatch(text)
            if found is None:
                yield place, word("is no bcrypt hash (make one: htpasswd -nBC 10 NAME)")
            elif not 4 <= (cost := int(found["cost"])) <= MAX_COST:
                yield place, saying("has a cost of {cost}; at most {most} is taken", cost=cost, most=MAX_COST)
            if ":" in name:
                yield place, word("a name cannot contain a colon")
