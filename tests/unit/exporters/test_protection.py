"""TLS, names and passwords, on the running program; and the crowd that does not keep Prometheus out."""

from __future__ import annotations

import base64
import http.client
import signal
import socket
import stat
import time
import urllib.error
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.unit.exporters.certificates import Authority
from tests.unit.exporters.programs import Exporter, exporter, refusal
from tests.unit.exporters.reports import a_busy_rank, a_report, a_run
from tests.unit.exporters.test_passwords import SECRET
from tests.unit.exporters.test_source import publish


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority.made(tmp_path_factory.mktemp("authority"))


@contextmanager
def protected(directory: Path, authority: Authority, text: str) -> Iterator[Exporter]:
    """An exporter with a web configuration; CERT, KEY and CA stand for the files."""
    certificate, key = authority.signed("server")
    for name, path in (("CERT", certificate), ("KEY", key), ("CA", authority.certificate)):
        text = text.replace(name, str(path))
    (directory / "web.yml").write_text(text)
    with exporter(directory, "--web.config.file", str(directory / "web.yml"), "--listen", "127.0.0.1:0") as running:
        running.tls = authority.trusted()
        yield running


def basic(name: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()


TLS = "tls_server_config: {cert_file: CERT, key_file: KEY}\n"


def test_https_and_names_guard_everything_but_the_unix_socket(tmp_path: Path, authority: Authority) -> None:
    with protected(tmp_path, authority, f"{TLS}basic_auth_users: {{ann: {SECRET}}}\n") as running:
        publish(tmp_path / "report.json", a_report(a_run(), at=time.time()))
        assert running.url.startswith("https://")
        for path in ("/metrics", "/-/healthy", "/api/v1/report"):
            assert running.get(path)[0] == 401
            assert running.get(path, Authorization=basic("ann", "wrong"))[0] == 401
            assert running.get(path, Authorization=basic("ann", "correct horse"))[0] == 200
        token = (tmp_path / "token").read_text().strip()
        assert running.get("/metrics", Authorization=f"Bearer {token}")[0] == 200
        assert over_unix_socket(tmp_path / "exporter.sock", "/api/v1/report") == 200


def test_the_unix_socket_is_for_user_and_group_and_replaced_at_each_start(tmp_path: Path) -> None:
    for _ in range(2):
        with exporter(tmp_path) as running:
            publish(tmp_path / "report.json", a_report(a_run(), at=time.time()))
            status = (tmp_path / "exporter.sock").stat()
            assert stat.S_ISSOCK(status.st_mode)
            assert stat.S_IMODE(status.st_mode) == 0o660
            assert over_unix_socket(tmp_path / "exporter.sock", "/api/v1/report") == 200
            assert running.get("/api/v1/report")[0] == 401


def test_what_lies_in_the_place_of_the_unix_socket_stays(tmp_path: Path) -> None:
    (tmp_path / "exporter.sock").write_text("mine")
    with exporter(tmp_path) as running:
        assert running.get("/-/healthy")[0] == 200
    assert (tmp_path / "exporter.sock").read_text() == "mine"


def over_unix_socket(path: Path, target: str) -> int:
    connection = http.client.HTTPConnection("localhost", timeout=10)
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.connect(str(path))
    connection.request("GET", target)
    status = connection.getresponse().status
    connection.close()
    return status


def test_the_sections_of_the_own_configuration_do_the_same_and_leave_metrics_open(
    tmp_path: Path, authority: Authority
) -> None:
    certificate, key = authority.signed("server")
    (tmp_path / "password").write_text("correct horse\n")
    (tmp_path / "exporter.yaml").write_text(
        f"tls: {{certificate: {certificate}, key: {key}}}\n"
        f"basic_auth: {{username: ann, password_file: {tmp_path / 'password'}}}\n"
    )
    with exporter(tmp_path, "--config", str(tmp_path / "exporter.yaml"), "--listen", "127.0.0.1:0") as running:
        running.tls = authority.trusted()
        publish(tmp_path / "report.json", a_report(a_run(), at=time.time()))
        assert running.get("/metrics")[0] == 200
        assert running.get("/api/v1/report")[0] == 401
        assert running.get("/api/v1/report", Authorization=basic("ann", "correct horse"))[0] == 200


def test_a_client_certificate_is_asked_for_and_verified(tmp_path: Path, authority: Authority) -> None:
    text = (
        "tls_server_config: {cert_file: CERT, key_file: KEY, client_auth_type: RequireAndVerifyClientCert,"
        " client_ca_file: CA}\n"
    )
    with protected(tmp_path, authority, text) as running:
        with pytest.raises((urllib.error.URLError, OSError)):
            running.get("/metrics")
        assert running.tls is not None
        running.tls.load_cert_chain(*authority.signed("client"))
        assert running.get("/metrics")[0] == 200


def test_a_renewed_certificate_is_taken_and_a_broken_one_told(tmp_path: Path, authority: Authority) -> None:
    with protected(tmp_path, authority, TLS) as running:
        before = serial(running)
        certificate, _ = authority.signed("server")
        assert serial(running) != before
        certificate.write_text("broken")
        assert running.get("/-/healthy")[0] == 200
        assert "the certificate in force stays" in running.line()


def serial(running: Exporter) -> object:
    port = int(running.url.rpartition(":")[2])
    assert running.tls is not None
    with (
        socket.create_connection(("127.0.0.1", port), timeout=10) as plain,
        running.tls.wrap_socket(plain, server_hostname="127.0.0.1") as client,
    ):
        certificate = client.getpeercert()
        assert certificate is not None
        return certificate["serialNumber"]


def test_sighup_takes_new_names(tmp_path: Path, authority: Authority) -> None:
    with protected(tmp_path, authority, TLS) as running:
        assert running.get("/metrics")[0] == 200
        path = tmp_path / "web.yml"
        path.write_text(path.read_text() + f"basic_auth_users: {{ann: {SECRET}}}\n")
        running.process.send_signal(signal.SIGHUP)
        assert running.line() == "configuration reloaded\n"
        assert running.get("/metrics")[0] == 401


def test_headers_of_the_web_configuration_are_sent(tmp_path: Path, authority: Authority) -> None:
    text = f"{TLS}http_server_config: {{headers: {{Strict-Transport-Security: max-age=99}}}}\n"
    with protected(tmp_path, authority, text) as running:
        assert running.tls is not None
        connection = http.client.HTTPSConnection(running.url.removeprefix("https://"), context=running.tls, timeout=10)
        connection.request("GET", "/-/healthy")
        response = connection.getresponse()
        assert response.headers["Strict-Transport-Security"] == "max-age=99"
        connection.close()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("tls_server_config: {cert_file: c.pem}", "tls_server_config.key_file: cert_file and key_file"),
        ("tls_server_config: {cert_file: c.pem, key_file: k.pem}", "No such file or directory"),
        ("tls_server_config: {min_version: TLS9}", "tls_server_config.min_version: must be one of TLS10"),
        ("tls_server_config: {cipher_suites: [x]}", "tls_server_config.cipher_suites: unknown key"),
        ("tls_server_config: {client_auth_type: RequestClientCert}", "other policies verify nothing"),
        ("rate_limit: {interval: 1s}", "rate_limit: unknown key"),
        ("basic_auth_users: {ann: secret}", "basic_auth_users.ann: is no bcrypt hash"),
        ("basic_auth_users: {ann: 5}", "basic_auth_users.ann: must be text"),
        ("basic_auth_users: [ann]", "basic_auth_users: must hold keys and values"),
        ("basic_auth_users: {ann: $2y$31$" + "a" * 53 + "}", "has a cost of 31"),
        ("http_server_config: {headers: {Set-Cookie: x}}", "Set-Cookie cannot be set"),
    ],
)
def test_a_web_configuration_that_cannot_be_honoured_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / "web.yml").write_text(text)
    result = refusal(tmp_path, "--web.config.file", str(tmp_path / "web.yml"))
    assert result.returncode == 2
    assert problem in result.stderr
    assert "secret" not in result.stderr


def test_two_ways_of_protection_at_once_are_refused(tmp_path: Path) -> None:
    (tmp_path / "exporter.yaml").write_text("web_config: /w.yml\ntls: {certificate: /c.pem, key: /k.pem}\n")
    result = refusal(tmp_path, "--config", str(tmp_path / "exporter.yaml"))
    assert result.returncode == 2
    assert "web_config: takes the place of tls and basic_auth" in result.stderr


def test_a_password_file_that_is_not_there_or_empty_is_refused(tmp_path: Path) -> None:
    for content in (None, "\n"):
        if content is not None:
            (tmp_path / "password").write_text(content)
        (tmp_path / "exporter.yaml").write_text(
            f"basic_auth: {{username: ann, password_file: {tmp_path / 'password'}}}\n"
        )
        result = refusal(tmp_path, "--config", str(tmp_path / "exporter.yaml"))
        assert result.returncode == 2
        assert "basic_auth.password_file" in result.stderr


def test_a_large_answer_arrives_whole_over_tls_at_a_slow_reader_too(tmp_path: Path, authority: Authority) -> None:
    ranks = [a_busy_rank(str(n)) for n in range(64)]
    publish(tmp_path / "report.json", a_report(a_run("r", *ranks), at=time.time()))
    with protected(tmp_path, authority, TLS) as running:
        assert running.tls is not None
        with (
            socket.create_connection(("127.0.0.1", int(running.url.rpartition(":")[2])), timeout=10) as plain,
            running.tls.wrap_socket(plain, server_hostname="127.0.0.1") as client,
        ):
            client.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            body = b""
            while chunk := client.recv(16384):
                body += chunk
                time.sleep(0.005)
        assert body.count(b"trainprobe_steps_total{") == 64
        assert body.rstrip().splitlines()[-1].startswith(b"process_max_fds")
