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
from tests.observability.alerting import Alertmanager, alertmanager
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
ALERT = "TrainingStragglerRank"
ALERT_FOR = 120.0
SCRAPED = (
    "trainprobe_phase_active",
    "trainprobe_run_wall_seconds_total",
    "trainprobe_state_seconds_total",
    "trainprobe_lost_seconds_total",
)
CONFIG = """\
global: {{scrape_interval: {interval}s, evaluation_interval: {interval}s}}
rule_files: [{rules}/recording.yml, {rules}/alerts.yml]
alerting: {{alertmanagers: [{{static_configs: [{{targets: ["{alertmanager}"]}}]}}]}}
scrape_configs:
  - job_name: trainprobe
    static_configs: [{{targets: {targets}}}]
"""


@dataclass
class Stand:
    """Two hosts, watched, the Prometheus that scrapes both, and its Alertmanager."""

    hosts: tuple[Host, Host]
    targets: list[str]
    prometheus: Prometheus
    alertmanager: Alertmanager
    python: str
    rules: Path

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
            if rule.get("alert") == ALERT:
                rule["for"] = f"{int(ALERT_FOR)}s"
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
        manager = stack.enter_context(alertmanager(directory))
        config = CONFIG.format(
            interval=int(INTERVAL), rules=rules, targets=json.dumps(targets), alertmanager=manager.address
        )
        (directory / "prometheus.yml").write_text(config)
        prometheus = stack.enter_context(running(directory))
        yield Stand((one, two), targets, prometheus, manager, torch_python, rules)


@contextmanager
def launched(stand: Stand, directory: Path, meeting: str, fault: str, late_host: int) -> Iterator[Launch]:
    """The training on both hosts, all ranks of it in their train phase; before it, one of its name on host 1 alone."""
    launch = Launch(stand, meeting, fault, late_host, directory, f"{meeting}-{fault}-{secrets.token_hex(3)}")
    with ExitStack() as stack:
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
    assert right.isdisjoint(named(launch))
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
    """One run id on both hosts. The launch before, on host 1 alone, was its first attempt where it had the same id; a
    static one has its world size in its name, so that launch was another run."""
    one, two = (
        sorted((run["run"], run["attempt"]) for run in launch.stand.report(host) if run["run"].startswith(launch.name))
        for host in launch.stand.hosts
    )
    ((name, attempt),) = two
    assert attempt == 1
    if launch.meeting == "dynamic":
        assert one == [(name, 1), (name, 2)]
    else:
        assert len(one) == 2
        assert (name, 1) in one


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


def recorded(launch: Launch, start: float, until: float) -> list[dict[str, str]]:
    """What Prometheus has scraped of the run, as promtool reads series."""
    of_run = f'{{run=~"{launch.name}.*",__name__=~"{"|".join(SCRAPED)}"}}'
    steps = int((until - start) / INTERVAL) + 1
    series = launch.stand.prometheus.ask(
        "/api/v1/query_range", query=of_run, start=str(start), end=str(until), step=str(INTERVAL)
    )["result"]
    made = []
    for one in series:
        name, labels = one["metric"].pop("__name__"), one["metric"]
        at = {round((float(when) - start) / INTERVAL): f"{float(value):.6f}" for when, value in one["values"]}
        written = ",".join(f"{label}={json.dumps(value)}" for label, value in labels.items())
        made.append({"series": f"{name}{{{written}}}", "values": " ".join(at.get(step, "_") for step in range(steps))})
    return made


@pytest.mark.nightly
def test_the_alert_names_host_and_cause_live_and_on_the_recorded_series(stand: Stand, tmp_path: Path) -> None:
    with launched(stand, tmp_path, "static", "loader", 2) as launch, planted(launch) as since:
        arrived = stand.alertmanager.wait_for_run(ALERT, launch.name, LATE_SECONDS + ALERT_FOR + 4 * INTERVAL)
        until = time.time()
        instance, rank, cause = expected(launch)
        assert until - since >= ALERT_FOR
        assert (arrived.labels["instance"], arrived.labels["rank"]) == (instance, rank)
        assert instance in arrived.summary
        assert arrived.summary.endswith(f", cause {cause}")
        start = since - 2 * INTERVAL
        series = recorded(launch, start, until)
    assert {one["series"].partition("{")[0] for one in series} == set(SCRAPED)
    firing = f'count by (instance, rank) (ALERTS{{alertname="{ALERT}",alertstate="firing"}})'
    fires = [{"labels": f'{{instance="{instance}",rank="{rank}"}}', "value": 1}]
    tests = {
        "rule_files": [str(stand.rules / name) for name in ("recording.yml", "alerts.yml")],
        "evaluation_interval": f"{int(INTERVAL)}s",
        "tests": [{
            "interval": f"{int(INTERVAL)}s",
            "input_series": series,
            "promql_expr_test": [
                {"expr": firing, "eval_time": f"{int(ALERT_FOR)}s"},
                {"expr": firing, "eval_time": f"{int(until - start)}s", "exp_samples": fires},
            ],
        }],
    }  # fmt: skip
    (tmp_path / "recorded.yml").write_text(yaml.safe_dump(tests))
    done = subprocess.run(
        ["promtool", "test", "rules", str(tmp_path / "recorded.yml")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
