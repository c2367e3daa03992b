"""The attacks on the package's units in a booted Debian, ``TRAINPROBE_ATTACK_SECONDS`` each: as long as is promised.

Attackers and victim run on this machine, whose processes the daemon in the container sees. A unit that systemd had to
restart has failed.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deb import build
from tests.builders.waiting import wait_until
from tests.nightly.attacks import (
    ATTACKER,
    ATTACKS,
    CLIENTS,
    SECONDS,
    SLOW_CLIENTS,
    VICTIM,
    attack,
    rank,
    scrape_again_and_again,
    stop_again_and_again,
    theirs,
)
from tests.systemd.booted import HOST_PROC, Booted, tree
from tests.systemd.test_installed import DEPENDS, DROP_IN, READY, UNITS
from tests.training.test_unanswered import as_user, group

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(int(SECONDS) + 600)]

ADDRESS, PORT = "127.0.0.1", "19752"


class Installed:
    """The daemon of the package."""

    def __init__(self, host: Booted) -> None:
        self._report = host.file("/run/trainprobe/report.json")
        self.pid = host.pid_here("trainprobe")

    def report(self) -> dict[str, Any]:
        report: dict[str, Any] = json.loads(self._report.read_bytes())
        return report


@pytest.fixture(scope="module")
def host() -> Iterator[Booted]:
    with Booted(tree(DEPENDS)) as booted:
        build.build(booted.root / "root", "1.0", build.source_date())
        booted.told("apt-get install -y ./root/trainprobe_1.0_all.deb", timeout=120)
        booted.write(f"{DROP_IN}/host-proc.conf", HOST_PROC)
        booted.told("systemctl daemon-reload && systemctl start trainprobe trainprobe-exporter", timeout=120)
        booted.wait_for(READY, 30)
        yield booted


@pytest.fixture
def place() -> Iterator[Path]:
    with theirs() as folder:
        yield folder


def restarts(host: Booted) -> dict[str, str]:
    return {unit: host.shown(unit, "NRestarts") for unit in UNITS}


@pytest.mark.parametrize("how", ATTACKS)
def test_no_attack_stops_the_units_or_hides_a_stall(host: Booted, place: Path, torch_python: str, how: str) -> None:
    with attack(how, place, torch_python):
        time.sleep(5)
        seen = stop_again_and_again(Installed(host), place, torch_python, how)
    print(f"{how}, installed: {seen}, restarts {restarts(host)}")
    assert set(restarts(host).values()) == {"0"}
    seen.hold(how)


def test_slow_clients_keep_no_scrape_waiting(host: Booted, place: Path, torch_python: str) -> None:
    clients = (*as_user(ATTACKER), "/usr/bin/python3", str(place / SLOW_CLIENTS.name), ADDRESS, PORT, str(CLIENTS))
    with group(*as_user(VICTIM), torch_python, str(place / "train.py")) as training:
        wait_until(lambda: rank(Installed(host), training.pid), 60)
        with group("nsenter", f"--net={host.network}", *clients):
            time.sleep(5)
            exporter = host.pid_here("trainprobe-exporter")
            command = f"curl --silent --fail --max-time 10 http://{ADDRESS}:{PORT}/metrics"
            seen = scrape_again_and_again(exporter, lambda: host.told(command))
    print(f"slow clients, installed: {seen}, restarts {restarts(host)}")
    assert set(restarts(host).values()) == {"0"}
    seen.hold()
