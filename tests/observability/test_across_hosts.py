"""One training on two hosts, each with a daemon and an exporter of its own; one Prometheus says who is late and why."""

from __future__ import annotations

import itertools
import json
import os
import secrets
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from benchmarks.programs import end
from benchmarks.stalls.host import CannotHere
from grafana.rules.build import DIRECTORY
from grafana.rules.recording import LATE_CAUSE
from tests.observability.servers import Prometheus, running
from tests.observability.two_hosts import Host, two_hosts, watched

pytestmark = [pytest.mark.training, pytest.mark.timeout(300)]

SCRIPT = Path(__file__).with_name("late_training.py")
INTERVAL = 2.0  # of scrapes and of rules
LATE_SECONDS = 30.0
RANKS, LOCAL = 4, 2
HOGS = 6
CAUSES = {"loader": "data_inline", "checkpoint": "checkpoint", "hog": "cpu_contention"}
MEETINGS = ("dynamic", "static")
CASES = list(itertools.product(MEETINGS, CAUSES, (1, 2)))
OFTEN = [("dynamic", "loader", 1), ("static", "checkpoint", 2)]  # the others: nightly
CONFIG = """\
global: {{scrape_interval: {interval}s, evaluation_interval: {interval}s}}
rule_files: [{rules}/recording.yml, {rules}/alerts.yml]
scrape_configs:
  - job_name: trainprobe
    static_configs: [{{targets: {targets}}}]
"""


@dataclass
class Stand:
    """Two hosts, watched, and the Prometheus that scrapes both."""

    hosts: tuple[Host, Host]
    targets: list[str]
    prometheus: Prometheus
    python: str

    def report(self, host: Host) -> list[dict[str, Any]]:
        """The host's runs."""
        runs: list[dict[str, Any]] = json.loads((host.directory / "published" / "report.json").read_text())["runs"]
        return runs


@dataclass
class Launch:
    """A training on both hosts. ``directory`` steers it; its script's name is the run's where no id is given."""

    stand: Stand
    meeting: str
    fault: str
    late_host: int
    directory: Path
    name: str

    def start(self, host: Host, *, alone: bool = False) -> subprocess.Popen[bytes]:
        first = self.stand.hosts[0].address
        nodes = [f"--nnodes={1 if alone else len(self.stand.hosts)}", f"--nproc-per-node={1 if alone else LOCAL}"]
        if self.meeting == "dynamic":
            how = [f"--rdzv-id={self.name}", "--rdzv-backend=c10d", f"--rdzv-endpoint={first}:29400"]
        else:
            how = [f"--node-rank={host.number - 1}", f"--master-addr={first}", "--master-port=29500"]
        late = {"LATE_LOCAL_RANK": "1"} if host.number == self.late_host and not alone else {}
        script = self.directory / f"{self.name}.py"
        if not script.exists():
            script.write_bytes(SCRIPT.read_bytes())
        return host.start(
            self.stand.python, "-m", "torch.distributed.run", *nodes, *how,
            str(script), str(self.directory), self.fault, "3" if alone else "240",
            log=f"{self.name}.log", GLOO_SOCKET_IFNAME="eth0", OMP_NUM_THREADS="1", **late,
        )  # fmt: skip

    def log_ends(self) -> str:
        return "\n".join(host.log_ends() for host in self.stand.hosts)


@pytest.fixture(scope="module")
def rules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The committed rules, with an alert that need not last as long."""
    made = tmp_path_factory.mktemp("rules")
    for name in ("recording.yml", "alerts.yml"):
        read = yaml.safe_load((DIRECTORY / name).read_text())
        for rule in itertools.chain.from_iterable(group["rules"] for group in read["groups"]):
            if rule.get("alert") == "TrainingStragglerRank":
                rule["for"] = "2m"
        (made / name).write_text(yaml.safe_dump(read))
    return made


@pytest.fixture(scope="module")
def stand(tmp_path_factory: pytest.TempPathFactory, torch_python: str, rules: Path) -> Iterator[Stand]:
    directory = tmp_path_factory.mktemp("hosts")
    with ExitStack() as stack:
        try:
            one, two = stack.enter_context(two_hosts(directory))
        except CannotHere as reason:
            if os.environ.get("TRAINPROBE_REQUIRE_KERNEL") == "1":
                raise
            pytest.skip(str(reason))
        targets = [stack.enter_context(watched(host, other)) for host, other in ((one, two), (two, one))]
        config = CONFIG.format(interval=int(INTERVAL), rules=rules, targets=json.dumps(targets))
        (directory / "prometheus.yml").write_text(config)
        prometheus = stack.enter_context(running(directory))
        yield Stand((one, two), targets, prometheus, torch_python)


@contextmanager
def launched(stand: Stand, directory: Path, meeting: str, fault: str, late_host: int) -> Iterator[Launch]:
    """The training on both hosts, all ranks of it in their train phase; before it, one of its name on host 1 alone."""
    launch = Launch(stand, meeting, fault, late_host, directory, f"{meeting}-{fault}-{secrets.token_hex(3)}")
    with ExitStack() as stack:
        if meeting == "dynamic":
            earlier = launch.start(stand.hosts[0], alone=True)
            stack.callback(end, earlier)
            assert earlier.wait(60) == 0, launch.log_ends()
        started = [launch.start(host) for host in stand.hosts]
        for process in started:
            stack.callback(end, process)
        trains = (
            f'count(max by (instance, rank) (trainprobe_phase_active{{run=~"{launch.name}.*",phase="train"}} == 1))'
        )
        deadline = time.monotonic() + 90
        while stand.prometheus.value(f"{trains} == {RANKS}") is None:
            assert all(one.poll() is None for one in started), launch.log_ends()
            assert time.monotonic() < deadline, launch.log_ends()
            time.sleep(0.2)
        yield launch
        (directory / "stop").touch()
        assert [one.wait(30) for one in started] == [0, 0], launch.log_ends()


@contextmanager
def planted(launch: Launch) -> Iterator[float]:
    """The fault, from now on (UNIX seconds)."""
    cpu = (os.cpu_count() or 1) - 1
    hog = ["taskset", "-c", str(cpu), launch.stand.python, "-c", "while True: pass"]
    with ExitStack() as stack:
        for _ in range(HOGS if launch.fault == "hog" else 0):
            process = subprocess.Popen(hog, start_new_session=True)
            stack.callback(process.wait)
            stack.callback(process.kill)
        (launch.directory / "late").touch()
        yield time.time()


def named(launch: Launch) -> set[tuple[str, str, str]]:
    """(instance, rank, cause) of the late ranks that are recorded now."""
    found = launch.stand.prometheus.ask("/api/v1/query", query=f'{LATE_CAUSE}{{run=~"{launch.name}.*"}}')["result"]
    return {tuple(one["metric"][label] for label in ("instance", "rank", "cause")) for one in found}  # type: ignore[misc]


def expected(launch: Launch) -> tuple[str, str, str]:
    rank = (launch.directory / "rank").read_text()
    return launch.stand.targets[launch.late_host - 1], rank, CAUSES[launch.fault]


def judge(launch: Launch) -> float:
    """The late rank, its host and its cause are recorded in time, and stay so. Seconds that it took."""
    right = {expected(launch)}
    with planted(launch) as since:
        seen = []
        while (now := named(launch)) != right:
            seen.append((round(time.time() - since, 1), now))
            assert time.time() - since <= LATE_SECONDS + 2 * INTERVAL, seen
            time.sleep(0.3)
        took = time.time() - since
        time.sleep(2 * INTERVAL)
        assert named(launch) == right
    return took


def has_one_name(launch: Launch) -> None:
    """One run id on both hosts; the second launch on host 1 is its second attempt."""
    runs = [
        [run for run in launch.stand.report(host) if run["run"].startswith(launch.name)] for host in launch.stand.hosts
    ]
    assert len({run["run"] for of_host in runs for run in of_host}) == 1
    attempts = [[run["attempt"] for run in of_host] for of_host in runs]
    assert attempts == ([[1, 2], [1]] if launch.meeting == "dynamic" else [[1], [1]])


@pytest.mark.parametrize(
    ("meeting", "fault", "late_host"),
    [pytest.param(*case, marks=() if case in OFTEN else pytest.mark.nightly) for case in CASES],
)
def test_the_late_rank_is_named_with_its_host_and_cause(
    stand: Stand, tmp_path: Path, meeting: str, fault: str, late_host: int
) -> None:
    with launched(stand, tmp_path, meeting, fault, late_host) as launch:
        has_one_name(launch)
        print(f"recorded {judge(launch):.1f} s after the rank was late")
