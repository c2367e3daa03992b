"""The whole life of the package in a booted systemd, in order: install, start, watch, reload, trouble, upgrade, end."""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from deb import build
from tests.systemd.booted import CACHE, HOST_PROC, ROOT, Booted, tree

pytestmark = pytest.mark.timeout(600)  # the first one may have to make the tree
DEPENDS = ("python3-bpfcc", "python3-bcrypt", "python3-h11", "python3-psutil", "python3-yaml")
UNITS = ("trainprobe.service", "trainprobe-exporter.service")
OWNER, STRANGER = 61184, 61185
"""Numbers of two users, on this machine as in the container."""
TRAINING = ROOT / "tests" / "observability" / "stalling_training.py"
NEIGHBOUR = Path(__file__).with_name("hostile_neighbour.py")
READY = "curl --silent --fail http://127.0.0.1:19752/-/ready"
DROP_IN = "/etc/systemd/system/trainprobe.service.d"


@pytest.fixture(scope="module")
def host() -> Iterator[Booted]:
    """A booted Debian that gets what apt makes of our package. The tests below use it one after the other."""
    with Booted(tree(DEPENDS)) as booted:
        build.build(booted.root / "root", "1.0", build.source_date())
        build.build(booted.root / "root", "1.1", build.source_date())
        yield booted


def metrics(host: Booted) -> str:
    return host.told("curl --silent --fail http://127.0.0.1:19752/metrics")


def main_pid(host: Booted, unit: str = "trainprobe") -> int:
    return int(host.shown(unit, "MainPID"))


def test_apt_installs_it_and_starts_nothing(host: Booted) -> None:
    said = host.told("apt-get install -y ./root/trainprobe_1.0_all.deb", timeout=120)
    assert [line for line in said.splitlines() if line.startswith("trainprobe: ")] == [
        "trainprobe: nothing is started yet. What works on this host:  trainprobe check",
        "trainprobe: watch all trainings from now on:  systemctl enable --now trainprobe",
        "trainprobe: then  trainprobe report,  and metrics at http://127.0.0.1:19752/metrics",
    ]
    assert host.run("systemctl is-active trainprobe").stdout.strip() == "inactive"
    assert host.run("systemctl is-enabled trainprobe").stdout.strip() == "disabled"
    assert host.told("stat -c '%a %U:%G' /etc/trainprobe/exporter.yaml") == "640 root:trainprobe"
    assert "trainprobe" in host.told("id -Gn trainprobe-exporter").split()


def test_systemd_has_nothing_to_say_about_the_units(host: Booted) -> None:
    """It returns 0 for unknown keys; they are on stderr."""
    done = host.run(f"systemd-analyze verify --man=no {' '.join(UNITS)}")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(("unit", "most"), [("trainprobe.service", 4.5), ("trainprobe-exporter.service", 1.5)])
def test_exposure_stays_low(host: Booted, unit: str, most: float) -> None:
    told = host.told(f"systemd-analyze security --no-pager {unit}")
    score = re.search(r"Overall exposure level for \S+: ([\d.]+)", told)
    assert score, told
    assert float(score[1]) <= most


def test_start_brings_up_both(host: Booted) -> None:
    host.write(f"{DROP_IN}/host-proc.conf", HOST_PROC)
    host.told("systemctl daemon-reload && systemctl start trainprobe")
    host.wait_for(READY, 20)
    assert {host.shown(unit, "ActiveState") for unit in UNITS} == {"active"}
    assert host.shown("trainprobe", "StatusText") == "watching"
    assert host.told("stat -c '%a %U:%G' /run/trainprobe /var/lib/trainprobe").splitlines() == [
        "751 root:trainprobe",
        "751 root:trainprobe",
    ]
    assert host.told("stat -c '%a %U:%G' /run/trainprobe-exporter/token") == "640 trainprobe-exporter:trainprobe"


def test_the_daemon_can_give_away_no_file(host: Booted) -> None:
    """Neither CAP_CHOWN (0) nor CAP_FOWNER (3): root's files stay root's."""
    status = host.told(f"cat /proc/{main_pid(host)}/status")
    (bounding,) = re.findall(r"^CapBnd:\t([0-9a-f]+)$", status, re.MULTILINE)
    assert int(bounding, 16) & 0b1001 == 0
    assert int(bounding, 16).bit_count() == 11


def test_root_listens_on_no_port_and_the_port_has_no_rights(host: Booted) -> None:
    status = host.told(f"cat /proc/{main_pid(host, 'trainprobe-exporter')}/status")
    uids = re.search(r"^Uid:\t(\d+)\t(\d+)\t(\d+)\t(\d+)$", status, re.MULTILINE)
    assert uids
    assert set(uids.groups()) == {host.told("id -u trainprobe-exporter")}
    for kind in ("Inh", "Prm", "Eff", "Bnd", "Amb"):
        assert re.search(rf"^Cap{kind}:\t0+$", status, re.MULTILINE)
    daemon = main_pid(host)
    assert host.told(f"tail -qn +2 /proc/{daemon}/net/tcp /proc/{daemon}/net/tcp6") == "", "in a network of its own"
    host_sockets = host.told("tail -qn +2 /proc/1/net/tcp").splitlines()
    assert [line.split()[1] for line in host_sockets if line.split()[3] == "0A"] == ["0100007F:4D28"]


@dataclass(frozen=True)
class Watched:
    """A training that has stalled and ended, and what it said of that."""

    name: str
    user: str
    """Its user; the name is in no text but where a user is told."""
    secret: str
    """Its directory's name: in its command line."""
    steps: int
    stall_seconds: float


def told_as_ended(host: Booted, user: str, name: str) -> bool:
    """Whether the user's own report has the end of his run."""
    told = host.run("trainprobe report --format json", user=user).stdout
    runs = json.loads(told)["runs"] if told else []
    return any(run["run"].startswith(f"{name}-") and run["ended"] is not None for run in runs)


@pytest.fixture(scope="module")
def watched(host: Booted, torch_python: str) -> Watched:
    """A training that the daemon in the container watched from its start to its end: what it told is published."""
    user, secret = f"trainee{secrets.token_hex(4)}", f"place{secrets.token_hex(6)}"
    for name, number in ((user, OWNER), ("stranger", STRANGER)):
        host.told(f"useradd --uid {number} {name}")
    host.told("systemctl start trainprobe")
    host.wait_for(READY, 20)
    with tempfile.TemporaryDirectory(prefix="trainprobe-") as directory:
        os.chmod(directory, 0o711)
        place = Path(directory) / secret
        place.mkdir()
        os.chown(place, OWNER, OWNER)
        training = Path(shutil.copy(TRAINING, Path(directory) / f"stalling_{secrets.token_hex(4)}.py"))
        plan = ["--reuid", str(OWNER), "--regid", str(OWNER), "--clear-groups", "--"]
        plan += [torch_python, str(training), str(place), "12", "checkpoint=1.5"]
        output = subprocess.run(["setpriv", *plan], capture_output=True, text=True, timeout=120, check=True).stdout
    stall, end = [json.loads(line) for line in output.splitlines()]
    until = time.monotonic() + 30
    while not told_as_ended(host, user, training.name):
        assert time.monotonic() < until, f"{host.told('trainprobe report', user=user)}\n{host.journal()}"
        time.sleep(0.5)
    return Watched(training.name, user, secret, end["steps"], stall["end"] - stall["start"])


@pytest.mark.training
def test_a_training_is_found_and_its_stall_counted(host: Booted, watched: Watched) -> None:
    text = metrics(host)

    def value(name: str, **labels: str) -> float:
        """Of that run's one sample with these labels, in whatever order they stand."""
        samples = [re.fullmatch(rf"{name}{{(.*)}} (\S+)", line) for line in text.splitlines()]
        found = [
            float(sample[2])
            for sample in samples
            if sample
            and {f'{key}="{told}"' for key, told in labels.items()} <= set(sample[1].split(","))
            and f'run="{watched.name}-' in sample[1]
        ]
        assert len(found) == 1, (name, text)
        return found[0]

    assert value("trainprobe_steps_total") == watched.steps
    counted = value("trainprobe_stall_seconds_total", cause="checkpoint")
    assert counted == pytest.approx(watched.stall_seconds, rel=0.1, abs=0.1)
    assert value("trainprobe_stalls_total", cause="checkpoint") == 1


@pytest.mark.training
def test_its_owner_is_told_and_a_stranger_sees_nothing_of_it(host: Booted, watched: Watched, torch_python: str) -> None:
    report = host.told("trainprobe report", user=watched.user)
    assert watched.secret in report
    assert "checkpoint" in report
    for own in (f"/run/trainprobe/users/{OWNER}.json", f"/var/lib/trainprobe/users/{OWNER}.json"):
        assert host.run(f"cat {own}", user=watched.user).returncode == 0
        assert host.run(f"chmod 600 {own}", user=watched.user).returncode != 0
        assert host.run(f"echo >> {own}", user=watched.user).returncode != 0
    for path in (
        f"/run/trainprobe/users/{OWNER}.json",
        f"/var/lib/trainprobe/users/{OWNER}.json",
        "/run/trainprobe/report.json",
        "/run/trainprobe-exporter/token",
    ):
        assert host.run(f"test -e {path}").returncode == 0
        assert host.run(f"cat {path}", user="stranger").returncode != 0
    assert host.run("ls /run/trainprobe /var/lib/trainprobe/", user="stranger").stdout == ""
    api = "curl --silent --max-time 5 http://127.0.0.1:19752"
    seen = [host.run(command, user="stranger") for command in (
        "trainprobe report", f"{api}/metrics", f"{api}/-/ready", f"{api}/api/v1/report", f"{api}/",
        "cat /run/trainprobe/* /run/trainprobe/*/* /run/trainprobe-exporter/* /var/lib/trainprobe/*",
        "for socket in /run/trainprobe*/*; do curl --silent --unix-socket $socket http://localhost/api/v1/report; done",
        "journalctl --no-pager -u trainprobe -u trainprobe-exporter",
    )]  # fmt: skip
    assert watched.name in seen[1].stdout, "the run's name is public, so that Prometheus can have it"
    for done in seen:
        for private in (watched.secret, str(Path(torch_python).parent), watched.user):
            assert private not in done.stdout + done.stderr


@pytest.mark.training
def test_what_is_kept_stays_its_owners_when_the_daemon_begins_again(host: Booted, watched: Watched) -> None:
    """systemd takes care of the directories at each start: it must not take their files for its own."""
    kept = f"/var/lib/trainprobe/users/{OWNER}.json"
    host.wait_for(f"test -s {kept}", 10)
    host.told("systemctl restart trainprobe")
    host.wait_for(READY, 20)
    assert host.told(f"stat -c '%A %U:%G' {kept}") == "-rw-r----- root:trainprobe"
    published = "find /var/lib/trainprobe/published -type f -not -group trainprobe"
    assert host.told(published) == ""
    assert watched.secret in host.told("trainprobe report", user=watched.user)
    assert watched.secret not in host.run("trainprobe report", user="stranger").stdout


def test_a_hostile_neighbour_is_watched_and_nothing_comes_of_it(host: Booted) -> None:
    """Names that break out of labels, JSON, HTML and terminals, a library that is none, crowds of threads."""
    host.write("/etc/trainprobe/trainprobe.yaml", "targets: {include: {commands: ['*hostile_neighbour*']}}\n")
    host.told("systemctl restart trainprobe")
    host.wait_for(READY, 20)
    before = main_pid(host)
    with tempfile.TemporaryDirectory(prefix="trainprobe-") as directory:
        os.chown(directory, STRANGER, STRANGER)
        script = shutil.copy(NEIGHBOUR, directory)
        command = ["setpriv", "--reuid", str(STRANGER), "--regid", str(STRANGER), "--clear-groups", "--"]
        command += ["/usr/bin/python3", script, directory, "8"]
        neighbours = [subprocess.Popen([*command, str(n)], stdout=subprocess.DEVNULL) for n in range(2)]
        try:
            time.sleep(6)
            text = metrics(host)
            report = host.told("trainprobe report")
            page = host.told("trainprobe report --format html")
            token = host.told("cat /run/trainprobe-exporter/token")
            bearer = f"--header 'Authorization: Bearer {token}'"
            told = json.loads(host.told(f"curl --silent --fail {bearer} http://127.0.0.1:19752/api/v1/report"))
        finally:
            assert [neighbour.wait(30) for neighbour in neighbours] == [0, 0]
    runs = [run for run in told["runs"] if run["run"].startswith("hostile_neighbour.py-")]
    assert len(runs) == 2
    for sample in text.splitlines():
        assert re.fullmatch(r"#.*|[a-z0-9_]+(\{[^{}\x00-\x1f]*\})? \S+", sample), sample
    for shown in (text, report):
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f\u202e]", shown)
    assert "hostile_neighbour.py-" in report
    assert "<script>alert" not in page
    assert main_pid(host) == before
    journal = host.journal()
    assert "Traceback" not in journal
    resident = host.told(f"grep VmRSS /proc/{before}/status")
    assert int(resident.split()[1]) < 100_000, resident


def test_reload_takes_a_good_file_and_refuses_a_bad_one(host: Booted) -> None:
    before = main_pid(host), main_pid(host, "trainprobe-exporter")
    host.write("/etc/trainprobe/trainprobe.yaml", "thresholds: {stall_factor: 3.0}\n")
    host.told("systemctl reload trainprobe trainprobe-exporter")
    host.write("/etc/trainprobe/trainprobe.yaml", "thresholds: {stall_factor: 0.5, stall: 1}\nprivcy: {}\n")
    host.told("systemctl reload trainprobe")
    said = host.wait_for("journalctl --no-pager -u trainprobe | grep -A4 refused", 10)
    for key in ("thresholds.stall_factor", "thresholds.stall", "privcy"):
        assert key in said
    assert (main_pid(host), main_pid(host, "trainprobe-exporter")) == before
    assert host.shown("trainprobe", "ActiveState") == "active"
    host.write("/etc/trainprobe/trainprobe.yaml", "")


def test_a_hanging_loop_is_ended_by_the_watchdog_and_begins_again(host: Booted) -> None:
    host.write(f"{DROP_IN}/quick.conf", "[Service]\nWatchdogSec=2\nRestartSec=500ms\n")
    host.told("systemctl daemon-reload && systemctl restart trainprobe")
    hanging = main_pid(host)
    time.sleep(2.5)
    assert main_pid(host) == hanging, "the loop pings as long as it turns"
    host.told(f"kill -STOP {hanging}")
    host.wait_for("journalctl -u trainprobe | grep 'Watchdog timeout'", 15)
    told = host.run("curl --silent http://127.0.0.1:19752/-/healthy").stdout
    assert told, "the exporter is there to tell of it"
    host.wait_for(f"test $(systemctl show --property=MainPID --value trainprobe) -ne {hanging}", 15)
    host.wait_for("systemctl is-active trainprobe && test -e /run/trainprobe/report.json", 20)
    host.wait_for(READY, 20)


@pytest.mark.parametrize("unit", ["trainprobe", "trainprobe-exporter"])
def test_killed_again_and_again_it_begins_again(host: Booted, unit: str) -> None:
    """Nobody would start it again if systemd gave up."""
    host.write(f"/etc/systemd/system/{unit}.service.d/quick.conf", "[Service]\nRestartSec=300ms\n")
    host.told("systemctl daemon-reload")
    for _ in range(7):
        before = main_pid(host, unit)
        host.told(f"kill -KILL {before}")
        host.wait_for(f"pid=$(systemctl show --property=MainPID --value {unit}); ((pid && pid != {before}))", 15)
    host.wait_for(f"systemctl is-active {unit}", 20)
    host.wait_for(READY, 20)


def test_a_configuration_that_is_wrong_is_not_tried_again_and_again(host: Booted) -> None:
    host.write("/etc/trainprobe/trainprobe.yaml", "privcy: {}\n")
    assert host.run("systemctl restart trainprobe").returncode != 0
    time.sleep(1.5)
    assert host.shown("trainprobe", "ActiveState") == "failed"
    assert host.shown("trainprobe", "NRestarts") == "0"
    host.write("/etc/trainprobe/trainprobe.yaml", "")
    host.told("systemctl start trainprobe")


def test_an_upgrade_restarts_what_runs_and_keeps_the_configuration(host: Booted) -> None:
    host.write("/etc/trainprobe/exporter.yaml", "run_linger_seconds: 60\n")
    before = main_pid(host), main_pid(host, "trainprobe-exporter")
    host.told("apt-get install -y ./root/trainprobe_1.1_all.deb", timeout=120)
    host.wait_for(READY, 20)
    after = main_pid(host), main_pid(host, "trainprobe-exporter")
    assert not set(before) & set(after)
    assert host.told("cat /etc/trainprobe/exporter.yaml") == "run_linger_seconds: 60"
    assert host.told("dpkg-query -W -f '${Version}' trainprobe") == "1.1"


def test_stop_ends_both_and_leaves_no_process(host: Booted) -> None:
    host.told("systemctl stop trainprobe")
    host.wait_for("test $(systemctl is-active trainprobe-exporter) = inactive", 10)
    assert host.shown("trainprobe", "Result") == "success"
    assert host.run("grep -l '/usr/bin/trainprob[e]' /proc/[0-9]*/cmdline").stdout == ""
    assert host.told("ls -A /run/trainprobe; ls -d /run/trainprobe-exporter || true") == ""


def test_purge_leaves_nothing(host: Booted) -> None:
    host.told("systemctl enable trainprobe && systemctl start trainprobe")
    host.told("apt-get purge -y trainprobe", timeout=120)
    found = host.told("find / /run /tmp -xdev -path '*trainprobe*' -not -path '/root/*'").splitlines()
    assert [path for path in found if not path.startswith("/etc/systemd/system/trainprobe")] == [], (
        "the test's own drop-ins stay, as an admin's do"
    )
    assert host.run("getent passwd trainprobe-exporter").stdout == ""
    assert host.run("getent group trainprobe trainprobe-exporter").stdout == ""
    assert host.run("systemctl list-units --all --no-legend 'trainprobe*'").stdout.strip() == ""


def test_nothing_of_the_container_is_left(host: Booted) -> None:
    """The layers of earlier ones: a test that failed midway has cleaned up too."""
    assert [path.name for path in CACHE.glob("booted-*")] == [host.root.parent.name]
