"""A page of a stranger whose name was rebound to our address gets nothing; Prometheus by address or name gets all."""

from __future__ import annotations

import http.client
import socket
from pathlib import Path

import pytest

from tests.unit.exporters.programs import exporter
from trainprobe_exporters.hosts import Hosts

OWN = socket.gethostname()


@pytest.mark.parametrize(
    "host",
    [
        *("localhost", "LOCALHOST:19752", "127.0.0.1:19752", "10.1.2.3", "[::1]:19752", "[fe80::1%eth0]"),
        *(OWN, f"{OWN}.:80", "a.localhost", "node7:9", "trainprobe.lan:19752", ""),
    ],
)
def test_addresses_own_names_and_configured_ones_are_allowed(host: str) -> None:
    assert Hosts("node7", ["*.lan"]).allow(host)


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:19752", "localhost.evil.example", "127.0.0.1.evil", "x"]
)
def test_other_names_are_not(host: str) -> None:
    assert not Hosts("0.0.0.0", ["trainprobe.lan"]).allow(host)


def test_the_full_name_is_learned() -> None:
    hosts = Hosts("0.0.0.0")
    hosts.learn_name(lambda: "Node7.Cluster.example")
    assert hosts.allow("node7.cluster.example:19752")


def test_a_rebound_name_gets_421_with_the_remedy_until_it_is_allowed(tmp_path: Path) -> None:
    with exporter(tmp_path) as running:
        port = int(running.url.rpartition(":")[2])
        for path in ("/metrics", "/-/ready", "/-/healthy"):
            status, text = asked(port, path, "evil.example")
            assert status == 421
            assert b"allowed_hosts" in text
        assert asked(port, "/metrics", f"localhost:{port}")[0] == 200
        token = (tmp_path / "token").read_text().strip()
        assert asked(port, f"/metrics?token={token}", "proxy.example")[0] == 200, "who has the token may name any"
    (tmp_path / "config.yaml").write_text("listen: 127.0.0.1:29752\nallowed_hosts: [evil.example]\n")
    with exporter(tmp_path, "--config", str(tmp_path / "config.yaml"), "--listen", "127.0.0.1:0") as running:
        assert asked(int(running.url.rpartition(":")[2]), "/metrics", "evil.example")[0] == 200


def asked(port: int, path: str, host: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("GET", path, headers={"Host": host})
    answer = connection.getresponse()
    got = answer.status, answer.read()
    connection.close()
    return got
