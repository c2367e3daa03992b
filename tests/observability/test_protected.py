"""A real Prometheus scrapes over TLS with a name and a password, as one file of Prometheus's own form asks of it."""

from __future__ import annotations

import time
from pathlib import Path

from tests.observability.servers import running
from tests.unit.exporters.certificates import Authority
from tests.unit.exporters.reports import a_report, a_run
from tests.unit.exporters.test_passwords import SECRET
from tests.unit.exporters.test_protection import TLS, protected
from tests.unit.exporters.test_source import publish

CONFIG = """\
global: {{scrape_interval: 1s}}
scrape_configs:
  - job_name: trainprobe
    scheme: https
    tls_config: {{ca_file: {authority}}}
    basic_auth: {{username: ann, password: correct horse}}
    static_configs: [{{targets: ["{target}"]}}]
  - job_name: trainprobe-without-password
    scheme: https
    tls_config: {{ca_file: {authority}}}
    static_configs: [{{targets: ["{target}"]}}]
"""


def test_prometheus_gets_in_by_its_password_and_nobody_without(tmp_path: Path) -> None:
    authority = Authority.made(tmp_path)
    publish(tmp_path / "report.json", a_report(a_run(), at=time.time()))
    with protected(tmp_path, authority, f"{TLS}basic_auth_users: {{ann: {SECRET}}}\n") as exporter:
        target = exporter.url.removeprefix("https://")
        (tmp_path / "prometheus.yml").write_text(CONFIG.format(authority=authority.certificate, target=target))
        with running(tmp_path) as server:
            server.wait_for('up{job="trainprobe"} == 1')
            assert server.value("count(trainprobe_run_info)") == 1
            assert server.wait_for('up{job="trainprobe-without-password"} == 0') == 0
            errors = [t["lastError"] for t in server.ask("/api/v1/targets")["activeTargets"]]
            assert any("401" in error for error in errors)
