"""The programs with real eBPF and commands that are no trainings: exit codes, what is left behind, two at once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.builders.waiting import wait_until

PROGRAM = [str(Path(sys.executable).with_name("trainprobe"))]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "daemon")}


def run(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PROGRAM, *arguments], capture_output=True, text=True, timeout=60, env=ENVIRONMENT, cwd=cwd, check=False
    )


def born(pid: str) -> int:
    """When a process began, in ticks since the boot."""
    return int(Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[19])


BEGAN = born("self")


def bpf_objects() -> set[str]:
    """Every BPF program and map that a process of these tests holds; other people's, older ones, stay out of it."""
    held = set()
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            target = os.readlink(link)
            command = (link.parents[1] / "cmdline").read_bytes()
            ours = "bpf" in target and b"trainprobe" in command and born(link.parents[1].name) >= BEGAN
        except OSError:
            continue
        if ours:
            held.add(str(link))
    return held


@contextmanager
def daemon(directory: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    with tempfile.TemporaryDirectory(prefix="trainprobe-state-") as state:  # the host's history is not the test's
        child = subprocess.Popen(
            [*PROGRAM, "daemon", "--directory", str(directory), "--state", state, *arguments],
            stderr=subprocess.PIPE,
            text=True,
            env=ENVIRONMENT,
        )
        try:
            wait_until((directory / "report.json").exists)
            yield child
        finally:
            if child.poll() is None:
                child.kill()
            child.communicate()


def test_a_command_under_observation(tmp_path: Path) -> None:
    ended = run("run", "-o", "r.json", "--record", "r.jsonl", "--", "sh", "-c", "sleep 0.5; exit 3", cwd=tmp_path)
    assert ended.returncode == 3, ended.stderr
    report = json.loads((tmp_path / "r.json").read_text())
    assert report["sources"]["bpf"]["state"] == "up"
    assert report["runs"][0]["ranks"][0]["exit"]["code"] == 3
    assert report["runs"][0]["ranks"][0]["wall_seconds"] == pytest.approx(0.5, abs=0.1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["r.json", "r.jsonl"]


def test_the_run_is_called_by_its_command(tmp_path: Path) -> None:
    run("run", "-o", "r.json", "--", "sh", "-c", "sleep 0.3", cwd=tmp_path)
    assert json.loads((tmp_path / "r.json").read_text())["runs"][0]["command"] == ["sh", "-c", "sleep 0.3"]


def test_its_recording_says_the_same(tmp_path: Path) -> None:
    run("run", "-o", "r.json", "--record", "r.jsonl", "--", "sh", "-c", "sleep 0.3; kill -9 $$", cwd=tmp_path)
    replayed = run("replay", "r.jsonl", "-o", "again.json", cwd=tmp_path)
    assert replayed.returncode == 0, replayed.stderr
    assert json.loads((tmp_path / "again.json").read_text()) == json.loads((tmp_path / "r.json").read_text())


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (("true",), 0),  # ends at once
        (("sh", "-c", "kill -9 $$"), 137),
        (("no-such-command",), 127),
        (("/etc/hostname",), 126),
    ],
)
def test_exit_codes(command: tuple[str, ...], code: int) -> None:
    ended = run("run", "--", *command)
    assert ended.returncode == code, ended.stderr
    assert "Traceback" not in ended.stderr


def test_nothing_is_left_behind(tmp_path: Path) -> None:
    claims = Path("/run/trainprobe/claims")
    before = set(claims.iterdir()) if claims.exists() else set()
    run("run", "--", "sleep", "0.2", cwd=tmp_path)
    assert bpf_objects() == set()
    assert not claims.exists() or set(claims.iterdir()) <= before
    assert list(tmp_path.iterdir()) == []


def test_a_killed_front_takes_the_other_half_with_it(tmp_path: Path) -> None:
    child = subprocess.Popen([*PROGRAM, "run", "--", "sh", "-c", "touch up; sleep 2; touch done"], cwd=tmp_path,
                             env=ENVIRONMENT)  # fmt: skip
    wait_until((tmp_path / "up").exists)
    child.kill()
    child.wait()
    wait_until(lambda: not bpf_objects())
    wait_until((tmp_path / "done").exists)


def test_what_is_no_training_cannot_be_attached_to() -> None:
    with subprocess.Popen(["sleep", "20"]) as sleeping:
        ended = run("attach", str(sleeping.pid))
        sleeping.kill()
    assert ended.returncode == 1
    assert "is a Python or maps libtorch" in ended.stderr


@contextmanager
def attached(pid: int, directory: Path) -> Iterator[subprocess.Popen[str]]:
    """`attach` that watches already."""
    command = [*PROGRAM, "attach", str(pid), "-o", "r.json", "--record", "r.jsonl"]
    child = subprocess.Popen(command, cwd=directory, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True)
    record = directory / "r.jsonl"
    try:
        wait_until(lambda: record.exists() and record.read_bytes().count(b"\n") > 2)
        yield child
    finally:
        if child.poll() is None:
            child.kill()
        child.communicate()


def test_attach_ends_by_interrupt_with_a_report(tmp_path: Path) -> None:
    python = subprocess.Popen([sys.executable, "-c", "import time\nwhile True: time.sleep(0.01)"])
    try:
        with attached(python.pid, tmp_path) as child:
            child.send_signal(signal.SIGINT)
            _out, err = child.communicate(timeout=20)
        assert child.returncode == 0, err
        assert python.poll() is None, "the training goes on"
    finally:
        python.kill()
        python.wait()
    assert json.loads((tmp_path / "r.json").read_text())["runs"][0]["ranks"][0]["pid"] == python.pid


def test_attach_ends_with_the_process(tmp_path: Path) -> None:
    python = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    with attached(python.pid, tmp_path) as child:
        python.communicate()
        _out, err = child.communicate(timeout=20)
    assert child.returncode == 0, err
    assert (tmp_path / "r.json").exists()


def test_check_proves_that_it_works() -> None:
    findings = {finding["name"]: finding for finding in json.loads(run("check", "--json").stdout)}
    assert findings["eBPF programs"]["state"] == "ok", findings["eBPF programs"]


def test_the_daemon_publishes_and_leaves_nothing(tmp_path: Path) -> None:
    directory = tmp_path / "run"
    with daemon(directory) as child:
        assert run("report", "--directory", str(directory)).stdout.startswith("No training was seen.")
        assert run("daemon", "--directory", str(directory)).returncode == 1, "a second one is refused"
        child.terminate()
        _out, err = child.communicate(timeout=20)
        assert child.returncode == 0, err
    assert not directory.exists()
    assert bpf_objects() == set()


def test_a_daemon_after_a_killed_one(tmp_path: Path) -> None:
    directory = tmp_path / "run"
    with daemon(directory) as child:
        child.kill()
        child.wait()
    wait_until(lambda: not bpf_objects())
    (directory / "report.json").unlink()
    with daemon(directory) as child:
        child.terminate()
        child.wait(timeout=20)
    assert not directory.exists()


def test_a_directory_that_cannot_be_written_is_told_and_survived(tmp_path: Path) -> None:
    directory = tmp_path / "run"
    directory.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(directory)], check=True)
    try:
        with daemon(directory) as child:
            with pytest.raises(OSError, match="No space"), (directory / "filler").open("wb", buffering=0) as filler:
                while True:
                    filler.write(b"x" * 4096)
            full = directory.stat().st_mtime_ns
            generated = json.loads((directory / "report.json").read_text())["generated"]
            wait_until(lambda: directory.stat().st_mtime_ns != full, seconds=40)  # idle: seldom
            assert child.poll() is None
            assert json.loads((directory / "report.json").read_text())["generated"] == generated
            (directory / "filler").unlink()

            def told() -> bool:
                report = json.loads((directory / "report.json").read_text())
                return report["generated"] > generated and report["sources"]["output"]["state"] == "up"

            wait_until(told, seconds=25)
            child.terminate()
            assert child.wait(20) == 0
    finally:
        subprocess.run(["umount", str(directory)], check=True)


def reload(child: subprocess.Popen[str], config: Path, text: str, *told: str) -> None:
    """Another configuration, of which the daemon says all that."""
    config.write_text(text)
    child.send_signal(signal.SIGHUP)
    assert child.stderr
    said = ""
    while not all(one in said for one in told):
        line = child.stderr.readline()
        assert line, said
        said += line


def test_a_bad_configuration_is_refused_and_the_old_one_stays(tmp_path: Path) -> None:
    config = tmp_path / "trainprobe.yaml"
    config.write_text("thresholds: {stall_factor: 2.0}\n")
    with daemon(tmp_path / "run", "--config", str(config)) as child:
        wrong = "thresholds: {stall_factor: 0.1, nonsense: 1}\nmore: 1\n"
        reload(child, config, wrong, "stays in force", "thresholds.stall_factor", "thresholds.nonsense", "more:")
        reload(child, config, "record: {path: /tmp/x.jsonl}\n", "wait for a restart: record")
        assert child.poll() is None
        child.terminate()
        child.wait(20)
    assert child.returncode == 0


def test_the_daemon_refuses_a_bad_configuration_at_its_start(tmp_path: Path) -> None:
    config = tmp_path / "trainprobe.yaml"
    config.write_text("targets: {auto: maybe}\nrecord: {path: relative}\n")
    ended = run("daemon", "--directory", str(tmp_path / "run"), "--config", str(config))
    assert ended.returncode == 2
    assert "targets.auto" in ended.stderr
    assert "record.path" in ended.stderr


def test_a_daemon_leaves_what_run_watches_alone(tmp_path: Path) -> None:
    """`run` claims its command, whoever else would find it."""
    config = tmp_path / "trainprobe.yaml"
    config.write_text("targets: {include: {commands: ['*claimed-by-run*']}}\n")
    directory = Path("/run/trainprobe")
    published = directory / "report.json"
    if published.exists():
        pytest.skip("a daemon runs on this host")
    with daemon(directory, "--config", str(config)) as child:
        script = "from pathlib import Path\nimport time\nPath('up').touch()\n"
        script += "while not Path('done').exists(): time.sleep(0.02)  # claimed-by-run"
        claimed = subprocess.Popen([*PROGRAM, "run", "--", sys.executable, "-c", script], cwd=tmp_path, env=ENVIRONMENT)
        wait_until((tmp_path / "up").exists)
        (tmp_path / "free").mkdir()
        free = subprocess.Popen([sys.executable, "-c", script], cwd=tmp_path / "free")
        try:
            # Who began later is found, and the other still is not.
            found = wait_until(lambda: json.loads(published.read_text())["runs"])
            attached = run("attach", str(free.pid))
            (tmp_path / "done").touch()
            assert claimed.wait(20) == 0
        finally:
            for one in (free, claimed):
                one.kill()
                one.wait()
        child.terminate()
        child.wait(timeout=20)
    assert [rank["pid"] for one in found for rank in one["ranks"]] == [free.pid]
    assert (attached.returncode, "the daemon watches" in attached.stderr) == (1, True), attached.stderr
    assert not published.exists()
