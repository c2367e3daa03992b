"""Certificates for tests, made by openssl: an authority of the test's own, and what it signs."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

_KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]


@dataclass(frozen=True)
class Authority:
    directory: Path
    certificate: Path

    @classmethod
    def made(cls, directory: Path) -> Authority:
        if shutil.which("openssl") is None:
            pytest.skip("no openssl on PATH")
        certificate = directory / "ca.pem"
        _openssl("req", "-x509", *_KEY, "-subj", "/CN=a test's own", "-days", "2",
                 "-keyout", directory / "ca.key", "-out", certificate)  # fmt: skip
        return cls(directory, certificate)

    def signed(self, name: str) -> tuple[Path, Path]:
        """A certificate and its key for 127.0.0.1; a second one of a name replaces the first."""
        key, request, certificate = (self.directory / f"{name}.{end}" for end in ("key", "csr", "pem"))
        extensions = self.directory / "extensions"
        extensions.write_text("subjectAltName=IP:127.0.0.1\n")
        _openssl("req", *_KEY, "-subj", f"/CN={name}", "-keyout", key, "-out", request)
        _openssl("x509", "-req", "-in", request, "-CA", self.certificate, "-CAkey", self.directory / "ca.key",
                 "-CAcreateserial", "-days", "2", "-extfile", extensions, "-out", certificate)  # fmt: skip
        return certificate, key

    def trusted(self) -> ssl.SSLContext:
        """What a client needs that trusts this authority alone."""
        return ssl.create_default_context(cafile=str(self.certificate))


def _openssl(*arguments: str | Path) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True, timeout=30)
