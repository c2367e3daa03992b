"""What the configuration asks for: TLS, names and passwords, headers. Read once, certificates whenever they change."""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from dataclasses import field, replace
from pathlib import Path

from trainprobe.config.load import load
from trainprobe.config.parse import ConfigError, Problem
from trainprobe.config.schema import ExporterConfig
from trainprobe.config.web import VERIFIED_CLIENT_CERTIFICATE, TlsServer, WebConfig
from trainprobe.model.dataclass import dataclass
from trainprobe.text.saying import Saying, saying, word
from trainprobe_exporters.console import tell
from trainprobe_exporters.passwords import Passwords

_VERSIONS = {
    "TLS10": ssl.TLSVersion.TLSv1,
    "TLS11": ssl.TLSVersion.TLSv1_1,
    "TLS12": ssl.TLSVersion.TLSv1_2,
    "TLS13": ssl.TLSVersion.TLSv1_3,
}
_MAX_PASSWORD_BYTES = 1024
_State = tuple[tuple[int, int, int], ...]  # of each file: inode, mtime, size


class ServerTls:
    """The server's side of TLS; a certificate that was renewed is taken for the next connection."""

    def __init__(self, files: TlsServer) -> None:
        """Raises OSError, ssl.SSLError (an OSError) among them, when the files cannot be used."""
        self._files = files
        self._seen = self._state()
        self._context = _context(files)
        self._unusable = ""  # why new files are not used

    def context(self) -> ssl.SSLContext:
        """For a new connection. New files that cannot be used are told once, and the old ones stay in force."""
        try:
            state = self._state()
            if state != self._seen:
                self._seen = state
                self._context, self._unusable = _context(self._files), ""
        except OSError as error:
            if str(error) != self._unusable:
                self._unusable = str(error)
                tell(saying("TLS: {why}; the certificate in force stays", why=reason(error)))
        return self._context

    def _state(self) -> _State:
        paths = (self._files.cert_file, self._files.key_file, self._files.client_ca_file)
        found = [os.stat(path) for path in paths if path]
        return tuple((status.st_ino, status.st_mtime_ns, status.st_size) for status in found)


@dataclass(frozen=True)
class Protection:
    """How the exporter is protected; by default the token alone opens page and API, over plain HTTP."""

    tls: ServerTls | None = None
    passwords: Passwords = field(default_factory=Passwords)
    guards_all: bool = False  # /metrics and health too
    headers: Mapping[str, str] = field(default_factory=dict)


def protection(config: ExporterConfig, web_config: Path | None = None) -> Protection:
    """What ``config`` asks for; ``web_config`` is the file of the command line. Raises ConfigError."""
    path = web_config or (Path(config.web_config) if config.web_config else None)
    if path is not None:
        return _of_web_config(path)
    files = TlsServer(cert_file=config.tls.certificate, key_file=config.tls.key)
    problems: list[Problem] = []
    made = Protection(_tls(files, "tls", problems), _plain_passwords(config, problems))
    if problems:
        raise ConfigError(problems)
    return made


def reason(error: OSError) -> Saying:
    why = saying(getattr(error, "reason", "") or error.strerror or str(error))
    return saying("{path}: {why}", path=error.filename, why=why) if error.filename else why


def _of_web_config(path: Path) -> Protection:
    web = load(WebConfig, path)
    problems: list[Problem] = []
    tls = _tls(_from_directory(web.tls_server_config, path.parent), "tls_server_config", problems)
    passwords = Passwords()
    try:
        passwords = Passwords(hashed=web.basic_auth_users)
    except OSError as error:
        problems.append(Problem("basic_auth_users", reason(error)))
    if problems:
        raise ConfigError(problems, str(path))
    return Protection(tls, passwords, bool(passwords), web.http_server_config.headers)


def _from_directory(files: TlsServer, directory: Path) -> TlsServer:
    """Relative names are meant from where the file lies, as in Prometheus."""
    names = ("cert_file", "key_file", "client_ca_file")
    return replace(files, **{name: str(directory / getattr(files, name)) for name in names if getattr(files, name)})


def _tls(files: TlsServer, place: str, problems: list[Problem]) -> ServerTls | None:
    if not files.cert_file:
        return None
    try:
        return ServerTls(files)
    except OSError as error:
        problems.append(
            Problem(place, saying("{path}: {why}", path=f"{files.cert_file}, {files.key_file}", why=reason(error)))
        )
        return None


def _context(files: TlsServer) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _VERSIONS[files.min_version]
    context.maximum_version = _VERSIONS[files.max_version]
    context.load_cert_chain(files.cert_file, files.key_file, password=_no_password)
    if files.client_auth_type == VERIFIED_CLIENT_CERTIFICATE:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(files.client_ca_file)
    return context


def _no_password() -> str:
    """Asked for by OpenSSL when the key is encrypted; without this it would ask on the terminal."""
    raise OSError(0, word("the key is encrypted: give one without a passphrase"))


def _plain_passwords(config: ExporterConfig, problems: list[Problem]) -> Passwords:
    if not config.basic_auth.username:
        return Passwords()
    path = Path(config.basic_auth.password_file)
    try:
        with path.open("rb") as file:
            password = file.read(_MAX_PASSWORD_BYTES + 1).rstrip(b"\r\n").decode()
    except (OSError, UnicodeDecodeError) as error:
        what = reason(error) if isinstance(error, OSError) else saying("not UTF-8")
        problems.append(Problem("basic_auth.password_file", saying("cannot be read: {why}", why=what)))
        return Passwords()
    if not password or len(password) > _MAX_PASSWORD_BYTES:
        what = saying("{path} holds no password, or too long a one", path=path)
        problems.append(Problem("basic_auth.password_file", what))
    return Passwords(plain={config.basic_auth.username: password})
