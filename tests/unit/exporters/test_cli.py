"""The program: arguments, configuration, exit codes, signals, systemd."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.exporters.programs import exporter, refusal, run
from tests.unit.exporters.reports import NOW, a_full_report, a_report, a_run
from tests.unit.exporters.test_source import publish
from trainprobe.wire.report import encode
from trainprobe_exporters.cli import address


def test_it_serves_what_the_daemon_publishes_and_ends_well_on_sigterm(tmp_path: Path) -> None:
    with exporter(tmp_path) as running:
        assert running.metrics().of("trainprobe_source_up", source="daemon") == 0
        assert running.get("/-/ready")[0] == 503
        publish(tmp_path / "report.json", replace(a_full_report(), generated=time.time()))
        assert running.metrics().all("trainprobe_stall_seconds_total")
        assert running.get("/-/ready")[0] == 200
        running.process.send_signal(signal.SIGTERM)
        assert running.process.wait(5) == 0


@pytest.mark.parametrize(("set_by", "age", "status"), [(-3600, 60, 503), (3600, 5, 200), (-3600, 5, 200)])
def test_readiness_does_not_depend_on_the_time_of_day(tmp_path: Path, set_by: float, age: float, status: int) -> None:
    """The clock was set by that much since the daemon published."""
    report = json.loads(encode(a_report(a_run(), at=time.time() - age - set_by)))
    report["generated_monotonic"] = time.monotonic() - age
    (tmp_path / "report.json").write_text(json.dumps(report))
    with exporter(tmp_path) as running:
        assert running.get("/-/ready")[0] == status


def test_the_token_lies_in_the_runtime_directory(tmp_path: Path) -> None:
    with exporter(tmp_path) as running:
        publish(tmp_path / "report.json", a_full_report())
        token = tmp_path / "token"
        assert stat.S_IMODE(token.stat().st_mode) == 0o640
        assert running.get("/api/v1/report")[0] == 401
        status, body = running.get("/api/v1/report", Authorization=f"Bearer {token.read_text().strip()}")
        assert (status, body[:12]) == (200, b'{"version":1')


def test_help_teaches(tmp_path: Path) -> None:
    result = run(tmp_path, "--help")
    assert result.returncode == 0
    for word in ("/metrics", "/-/ready", "/api/v1/report", "scrape_configs", "SIGHUP", "Exit codes"):
        assert word in result.stdout


@pytest.mark.parametrize("arguments", [["--nonsense"], ["--listen", "19752"], ["--listen", "x:70000"], ["extra"]])
def test_wrong_arguments_are_2(tmp_path: Path, arguments: list[str]) -> None:
    result = refusal(tmp_path, *arguments)
    assert result.returncode == 2
    assert "usage:" in result.stderr


def test_what_is_wrong_is_said_in_the_language_that_is_asked_for(tmp_path: Path) -> None:
    result = run(tmp_path, "--lang", "zh", "--listen", "19752")
    assert (result.returncode, "应为 ADDRESS:PORT" in result.stderr) == (2, True)
    assert "--lang" not in result.stderr.partition("错误")[2], "it is known"
    assert "--lang {en,zh}" in run(tmp_path, "--help").stdout


def test_all_errors_of_a_configuration_at_once_are_2(tmp_path: Path) -> None:
    config = tmp_path / "exporter.yaml"
    config.write_text("listn: x\nrun_linger_seconds: -1\nlisten: nowhere\n")
    result = refusal(tmp_path, "--config", str(config))
    assert result.returncode == 2
    for problem in ("listn: unknown key; did you mean listen?", "run_linger_seconds: must be at least 0"):
        assert problem in result.stderr


def test_they_are_told_in_the_language_that_is_asked_for(tmp_path: Path) -> None:
    config = tmp_path / "exporter.yaml"
    config.write_text("listn: x\ntls: 3\n")
    lines = run(tmp_path, "--lang", "zh", "--config", str(config)).stderr.splitlines()
    assert lines == [f"{config}：listn：没有这个键；是不是 listen？", f"{config}：tls：必须由键和值组成，而不是 3"]


def test_a_configuration_that_is_not_there_is_2(tmp_path: Path) -> None:
    assert refusal(tmp_path, "--config", str(tmp_path / "none.yaml")).returncode == 2


def test_grafana_without_a_token_is_refused(tmp_path: Path) -> None:
    config = tmp_path / "exporter.yaml"
    for text in ("grafana: {url: 'http://g'}", "grafana: {url: 'http://g', token_file: /no/such/token}"):
        config.write_text(text)
        result = refusal(tmp_path, "--config", str(config))
        assert result.returncode == 2
        assert "grafana: " in result.stderr


def test_a_port_that_is_taken_is_1(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        result = run(tmp_path, "--listen", f"127.0.0.1:{taken.getsockname()[1]}")
        chinese = run(tmp_path, "--lang", "zh", "--listen", f"127.0.0.1:{taken.getsockname()[1]}")
    assert result.returncode == 1
    assert "cannot listen" in result.stderr
    assert "Traceback" not in result.stderr
    assert "无法监听：地址已被占用" in chinese.stderr


def test_without_a_place_for_the_token_metrics_are_served_and_the_api_is_shut(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with exporter(tmp_path, RUNTIME_DIRECTORY=str(tmp_path / "file")) as running:
        assert running.get("/metrics")[0] == 200
        assert running.get("/api/v1/report")[0] == 503


def a_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def test_sighup_takes_a_new_configuration_and_refuses_a_bad_one(tmp_path: Path) -> None:
    config, old, new = tmp_path / "exporter.yaml", a_port(), a_port()
    config.write_text(f"listen: 127.0.0.1:{old}\n")
    with exporter(tmp_path, "--config", str(config)) as running:
        publish(tmp_path / "report.json", a_report(a_run(ended=NOW), at=NOW))
        config.write_text("listen: 5\nlisen: 6\n")
        running.process.send_signal(signal.SIGHUP)
        told = [running.line() for _ in range(3)]
        assert "listen: must be text" in told[0] + told[1]
        assert "lisen: unknown key" in told[0] + told[1]
        assert told[2] == "not reloaded: the configuration in force stays\n"
        assert running.get("/-/healthy")[0] == 200
        config.write_text(f"listen: 127.0.0.1:{new}\n")
        running.process.send_signal(signal.SIGHUP)
        assert running.line() == f"listening on http://127.0.0.1:{new}\n"
        assert running.line() == "configuration reloaded\n"
        with pytest.raises(OSError):
            running.get("/-/healthy")
        running.url = f"http://127.0.0.1:{new}"
        assert running.get("/-/healthy")[0] == 200
        with socket.create_server(("127.0.0.1", old)) as taken:
            config.write_text(f"listen: 127.0.0.1:{taken.getsockname()[1]}\n")
            running.process.send_signal(signal.SIGHUP)
            running.line()
            assert running.line() == "not reloaded: the configuration in force stays\n"
        assert running.get("/-/healthy")[0] == 200
        for host in ("0.0.0.0", "127.0.0.1"):  # of the same port, which the exporter itself holds
            config.write_text(f"listen: {host}:{new}\n")
            running.process.send_signal(signal.SIGHUP)
            assert running.line() == f"listening on http://{host}:{new}\n"
            assert running.line() == "configuration reloaded\n"
            assert running.get("/-/healthy")[0] == 200


def test_sighup_changes_how_long_series_stay(tmp_path: Path) -> None:
    config = tmp_path / "exporter.yaml"
    config.write_text("run_linger_seconds: 1000\n")
    with exporter(tmp_path, "--config", str(config), "--listen", "127.0.0.1:0") as running:
        now = time.time()
        publish(tmp_path / "report.json", a_report(a_run(ended=now - 100), at=now))
        assert running.metrics().all("trainprobe_run_info")
        config.write_text("run_linger_seconds: 10\n")
        running.process.send_signal(signal.SIGHUP)
        assert running.line() == "configuration reloaded\n"
        publish(tmp_path / "report.json", a_report(a_run(ended=now - 100), at=now))
        assert not running.metrics().all("trainprobe_run_info")


def test_systemd_hears_ready_reloading_and_stopping(tmp_path: Path) -> None:
    channel = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    channel.bind(str(tmp_path / "notify"))
    channel.settimeout(10)
    with channel, exporter(tmp_path, NOTIFY_SOCKET=str(tmp_path / "notify")) as running:
        assert channel.recv(100) == b"READY=1"
        running.process.send_signal(signal.SIGHUP)
        reloading = channel.recv(100)
        assert reloading.startswith(b"RELOADING=1\nMONOTONIC_USEC=")
        assert channel.recv(100) == b"READY=1"
        running.process.send_signal(signal.SIGTERM)
        assert channel.recv(100) == b"STOPPING=1"


@pytest.mark.skipif(os.geteuid() != 0, reason="not root, so it has no capability to take away")
def test_a_port_that_needs_a_right_is_3(tmp_path: Path) -> None:
    if int(Path("/proc/sys/net/ipv4/ip_unprivileged_port_start").read_text()) <= 81:
        pytest.skip("this machine lets everybody listen on port 81")
    without = ["setpriv", "--inh-caps=-net_bind_service", "--bounding-set=-net_bind_service"]
    result = run(tmp_path, "--listen", "127.0.0.1:81", through=without)
    assert result.returncode == 3, result.stderr
    assert "not permitted" in result.stderr


@pytest.mark.parametrize(
    ("text", "expected"),
    [("127.0.0.1:19752", ("127.0.0.1", 19752)), ("[::1]:80", ("::1", 80)), ("localhost:0", ("localhost", 0))],
)
def test_addresses(text: str, expected: tuple[str, int]) -> None:
    assert address(text) == expected


@pytest.mark.parametrize("text", ["", "19752", ":19752", "x:", "x:-1", "x:65536", "x:9:9", "::1:80", "[::1]", "x:٣"])
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(ValueError):
        address(text)
