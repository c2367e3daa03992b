"""The attacks on the package's units in a booted Debian, ``TRAINPROBE_ATTACK_SECONDS`` each: as long as is promised.

Attackers and victim run on this machine, whose processes the daemon in the container sees. A unit that systemd had to
restart has failed. Then the attacks follow each other, a minute each, until ``TRAINPROBE_CHURN_HOURS`` (2) of attacks
have followed the first twelve minutes of them: neither program may have grown.
"""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from benchmarks.programs import resident
from benchmarks.soak.judge import Sample, judge
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

CHURN_HOURS = float(os.environ.get("TRAINPROBE_CHURN_HOURS", "2"))
WARM_UP_HOURS = 0.2
CHURN_SECONDS, SAMPLE_SECONDS = 60.0, 15.0
CLIENTS_TOO = (*ATTACKS, "clients")

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(int(max(SECONDS, 3600 * (WARM_UP_HOURS + CHURN_HOURS))) + 900)]

ADDRESS, PORT = "127.0.0.1", "19752"
METRICS = f"http://{ADDRESS}:{PORT}/metrics"
CURL = ("curl", "--silent", "--fail", "--max-time", "10", METRICS)


class Installed:
    """The daemon of the package."""

    def __init__(self, host: Booted) -> None:
        self._report = host.file("/run/trainprobe/report.json")
        self.pid = host.pid_here("trainprobe")

    def report(self) -> dict[str, Any]:
        report: dict[str, Any] = json.loads(self._report.read_bytes())
        return report


class Sampled(threading.Thread):
    """Memory and files of both programs, and how long a scrape takes, each :data:`SAMPLE_SECONDS`."""

    def __init__(self, host: Booted) -> None:
        super().__init__(daemon=True)
        self.samples: list[Sample] = []
        self.scrape_seconds: list[float] = []
        self.began = time.monotonic()
        self._scrape = ("nsenter", f"--net={host.network}", *CURL)
        self._pids = {unit: host.pid_here(unit) for unit in UNITS}
        self._over = threading.Event()

    @property
    def hours(self) -> float:
        return (time.monotonic() - self.began) / 3600

    def run(self) -> None:
        while not self._over.wait(SAMPLE_SECONDS):
            asked = time.monotonic()
            subprocess.run(self._scrape, stdout=subprocess.DEVNULL, check=True)
            self.scrape_seconds.append(time.monotonic() - asked)
            with suppress(OSError):  # a unit that ended is a failure of the test that runs
                files = {unit: len(os.listdir(f"/proc/{pid}/fd")) for unit, pid in self._pids.items()}
                memory = {unit: resident(pid) for unit, pid in self._pids.items()}
                self.samples.append(Sample(self.hours, memory, files, 0))

    def end(self) -> None:
        self._over.set()
        self.join()


@pytest.fixture(scope="module")
def host() -> Iterator[Booted]:
    with Booted(tree(DEPENDS)) as booted:
        build.build(booted.root / "root", "1.0", build.source_date())
        booted.told("apt-get install -y ./root/trainprobe_1.0_all.deb", timeout=120)
        booted.write(f"{DROP_IN}/host-proc.conf", HOST_PROC)
        booted.told("systemctl daemon-reload && systemctl start trainprobe trainprobe-exporter", timeout=120)
        booted.wait_for(READY, 30)
        yield booted


@pytest.fixture(scope="module")
def sampled(host: Booted) -> Iterator[Sampled]:
    watching = Sampled(host)
    watching.start()
    yield watching
    watching.end()


@pytest.fixture
def place() -> Iterator[Path]:
    with theirs() as folder:
        yield folder


def restarts(host: Booted) -> dict[str, str]:
    return {unit: host.shown(unit, "NRestarts") for unit in UNITS}


@contextmanager
def slow_clients(host: Booted, place: Path) -> Iterator[None]:
    clients = (*as_user(ATTACKER), "/usr/bin/python3", str(place / SLOW_CLIENTS.name), ADDRESS, PORT, str(CLIENTS))
    with group("nsenter", f"--net={host.network}", *clients):
        time.sleep(5)
        yield


@pytest.mark.parametrize("how", ATTACKS)
@pytest.mark.usefixtures("sampled")
def test_no_attack_stops_the_units_or_hides_a_stall(host: Booted, place: Path, torch_python: str, how: str) -> None:
    with attack(how, place, torch_python):
        time.sleep(5)
        seen = stop_again_and_again(Installed(host), place, torch_python, how)
    print(f"{how}, installed: {seen}, restarts {restarts(host)}", flush=True)
    assert set(restarts(host).values()) == {"0"}
    seen.hold(how)


@pytest.mark.usefixtures("sampled")
def test_slow_clients_keep_no_scrape_waiting(host: Booted, place: Path, torch_python: str) -> None:
    with group(*as_user(VICTIM), torch_python, str(place / "train.py")) as training:
        wait_until(lambda: rank(Installed(host), training.pid), 60)
        with slow_clients(host, place):
            exporter = host.pid_here("trainprobe-exporter")
            seen = scrape_again_and_again(exporter, lambda: host.told(" ".join(CURL)))
    print(f"slow clients, installed: {seen}, restarts {restarts(host)}", flush=True)
    assert set(restarts(host).values()) == {"0"}
    seen.hold()


def test_hours_of_attacks_in_turn_make_neither_program_grow(
    host: Booted, sampled: Sampled, torch_python: str, tmp_path: Path
) -> None:
    turns, wrong = 0, []
    while sampled.hours < WARM_UP_HOURS + CHURN_HOURS or not turns:
        how = CLIENTS_TOO[turns % len(CLIENTS_TOO)]
        try:
            with theirs() as place, slow_clients(host, place) if how == "clients" else attack(how, place, torch_python):
                seen = stop_again_and_again(Installed(host), place, torch_python, how, CHURN_SECONDS)
            print(f"{sampled.hours:.2f} h, {how}: {seen}", flush=True)
            seen.hold(how)
        except AssertionError as error:  # the other turns are seen too
            wrong.append(f"{sampled.hours:.2f} h, {how}: {error}")
            print(wrong[-1], flush=True)
        (tmp_path / "samples.json").write_text(json.dumps([asdict(sample) for sample in sampled.samples]))
        turns += 1
    sampled.end()
    verdict = judge(sampled.samples, [], WARM_UP_HOURS)
    print(f"{turns} turns, MB per hour: {verdict.slopes}, slowest scrape {max(sampled.scrape_seconds):.2f} s")
    assert set(restarts(host).values()) == {"0"}
    assert not wrong + verdict.wrong
