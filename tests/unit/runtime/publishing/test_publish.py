from __future__ import annotations

import fcntl
import json
import os
import shutil
import stat
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.builders.users import STRANGER, output, reachable
from trainprobe.model.moment import NS
from trainprobe.model.report import Evidence, Orphan, Rank, Report, Run, SharedMemory, Stall
from trainprobe.runtime.publishing import publish, rundir
from trainprobe.runtime.publishing.publish import Publisher

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user needs root")


def report(*users: str) -> Report:
    return Report(generated=1.0, runs=[Run(f"r-{user}", [], user, "/", 1.0) for user in users])


def published(directory: Path) -> list[str]:
    return [run["run"] for run in json.loads((directory / "report.json").read_text())["runs"]]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "trainprobe"


@pytest.fixture
def directory_of_all() -> Iterator[Path]:
    with reachable() as made:
        yield made / "trainprobe"


def test_a_report_is_there_whole_and_not_for_everybody(directory: Path) -> None:
    publisher = Publisher(directory)
    publisher.open()
    publisher.publish(report("root"), NS)
    assert published(directory) == ["r-root"]
    assert stat.S_IMODE((directory / "report.json").stat().st_mode) == 0o640
    assert stat.S_IMODE(directory.stat().st_mode) == 0o751
    assert not list(directory.glob("*.new"))
    publisher.close()


def test_each_owner_gets_his_own_runs_and_no_others(directory: Path) -> None:
    publisher = Publisher(directory)
    publisher.open()
    publisher.publish(report("root", "4242", "no such user"), NS)
    own = directory / "users" / "4242.json"
    assert [run["run"] for run in json.loads(own.read_text())["runs"]] == ["r-4242"]
    assert stat.S_IMODE(own.stat().st_mode) == 0o640, "the group's bits are the ACL's mask"
    assert own.stat().st_uid == os.geteuid()
    assert sorted(path.name for path in (directory / "users").iterdir()) == ["0.json", "4242.json"]
    publisher.publish(report("root"), 9 * NS)
    assert [path.name for path in (directory / "users").iterdir()] == ["0.json"]
    publisher.close()


@pytest.mark.parametrize("users", [("4242",), ("4242", "4343")])
def test_an_owner_learns_of_no_others_orphans_nor_of_files_in_containers(
    directory: Path, monkeypatch: pytest.MonkeyPatch, users: tuple[str, ...]
) -> None:
    publisher = Publisher(directory)
    publisher.open()
    owners = {7: 4242, 8: 4343}
    monkeypatch.setattr(publisher.answers, "of_process", lambda pid: owners.get(pid) or os.stat(f"/proc/{-pid}").st_uid)
    told = report(*users)
    told.orphans = [Orphan(pid, "pt_data_worker", 1, 1, 0) for pid in (7, 8, 9)]
    left = [Evidence("left", 1, "bytes", 5, "/dev/shm/torch_5_x")]
    told.shared_memory = [SharedMemory("0:30", place, 1, 2, 1, left) for place in ("host", "c0ffee")]
    publisher.publish(told, NS)
    own = json.loads((directory / "users" / "4242.json").read_text())
    assert [one["pid"] for one in own["orphans"]] == [7]
    assert [(one["container"], len(one["leaked"])) for one in own["shared_memory"]] == [("host", 1), ("c0ffee", 0)]
    assert own["shared_memory"][1]["leaked_bytes"] == 1
    every = json.loads((directory / "report.json").read_text())
    assert [one["pid"] for one in every["orphans"]] == [7, 8, 9]
    assert len(every["shared_memory"][1]["leaked"]) == 1
    publisher.close()


def test_an_owner_gets_a_new_stall_at_once_and_an_unchanged_report_every_two_seconds(directory: Path) -> None:
    def with_stalls(*stalls: Stall) -> Report:
        known = report("4242", "4343")
        known.runs[0].ranks = [Rank(0, 1, 7, stalls=list(stalls))]
        return known

    written: list[str] = []
    publisher = Publisher(directory, written=lambda path: written.append(Path(path).name))
    publisher.open()
    opened = Stall("s", 5.0, None, 1.0, "unknown", {"unknown": 1.0}, 7, 1)
    calm, stalled, named = with_stalls(), with_stalls(opened), with_stalls(replace(opened, cause="checkpoint"))
    files = []
    for second, known in ((1.0, calm), (1.5, calm), (2.0, stalled), (2.5, stalled), (2.9, named), (3.1, named)):
        publisher.publish(known, int(second * NS))
        files.append([name for name in written if name != "report.json"])
        written.clear()
    publisher.close()
    both = ["4242.json", "4343.json"]
    assert files == [both, [], ["4242.json"], [], ["4242.json"], both]


def test_nothing_is_left_behind(directory: Path) -> None:
    publisher = Publisher(directory)
    publisher.open()
    publisher.publish(report("root"), NS)
    publisher.close()
    assert not directory.exists()


def test_a_second_daemon_is_refused_with_the_pid_of_the_first(directory: Path) -> None:
    first, second = Publisher(directory), Publisher(directory)
    first.open()
    with pytest.raises(rundir.AlreadyRunningError, match=str(os.getpid())):
        second.open()
    first.close()
    second.open()
    second.close()


def test_a_lock_that_a_killed_daemon_left_is_taken(directory: Path) -> None:
    directory.mkdir()
    (directory / "lock").write_text("1\n")
    publisher = Publisher(directory)
    publisher.open()
    publisher.close()


HOLD = """
import fcntl, os, sys
file = os.open(sys.argv[1], os.O_RDONLY)
fcntl.flock(file, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


@needs_root
def test_no_user_can_hold_the_lock(directory_of_all: Path) -> None:
    """Left by a daemon that was killed: what can be opened can be locked, and stop the next one."""
    left = Publisher(directory_of_all)
    left.open()
    os.close(left._lock._fd)
    assert "Permission denied" in output(STRANGER, HOLD, directory_of_all / "lock")
    publisher = Publisher(directory_of_all)
    publisher.open()
    publisher.close()


@needs_root
def test_a_daemon_that_runs_keeps_its_lock_whoever_can_open_it(directory: Path) -> None:
    directory.mkdir()
    lock = directory / "lock"
    lock.write_text(f"{os.getpid()}\n")
    lock.chmod(0o644)
    with lock.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(rundir.AlreadyRunningError, match=str(os.getpid())):
            Publisher(directory).open()


def test_an_idle_host_is_told_of_every_ten_seconds(directory: Path) -> None:
    publisher = Publisher(directory)
    publisher.open()
    path = directory / "report.json"
    written = []
    for second in range(1, 25):
        publisher.publish(Report(generated=float(second)), second * NS)
        written.append(json.loads(path.read_text())["generated"])
    assert sorted(set(written)) == [1.0, 11.0, 21.0]
    publisher.close()


def test_the_size_is_bounded(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publish, "LIMIT", 5000)
    publisher = Publisher(directory)
    publisher.open()
    publisher.publish(Report(runs=[Run(f"r{n}", ["x" * 300], "root", "/", float(n)) for n in range(50)]), NS)
    assert (directory / "report.json").stat().st_size <= 5000
    publisher.close()


def test_a_link_in_the_way_is_not_followed(directory: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    publisher = Publisher(directory)
    publisher.open()
    (directory / "report.json.new").symlink_to(victim)
    (directory / "report.json").symlink_to(victim)
    publisher.publish(report("root"), NS)
    assert victim.read_text() == "precious"
    assert published(directory) == ["r-root"]
    publisher.close()


def test_where_nothing_can_be_published_the_log_says_so_once_and_it_is_tried_again(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    publisher = Publisher(directory, lambda text, remedy: said.append(str(text)))
    publisher.open()
    with monkeypatch.context() as full:
        full.setattr(rundir, "write", Full())
        for second in range(5):
            with pytest.raises(OSError, match="No space left"):
                publisher.publish(report("root"), second * NS)
    assert len(said) == 1
    assert "No space left" in said[0]
    publisher.publish(report("root"), 5 * NS)
    assert published(directory) == ["r-root"]
    publisher.close()


class Full:
    """A disk."""

    def __call__(self, path: str, data: bytes, **how: object) -> None:
        raise OSError(28, "No space left on device", path)


def test_directories_that_somebody_took_away_are_made_anew(directory: Path) -> None:
    publisher = Publisher(directory)
    publisher.open()
    publisher.publish(report("4242"), NS)
    shutil.rmtree(directory)
    with pytest.raises(FileNotFoundError):
        publisher.publish(report("4242"), 2 * NS)
    publisher.publish(report("4242"), 2 * NS)
    assert published(directory) == ["r-4242"]
    assert (directory / "users" / "4242.json").exists()
    assert stat.S_IMODE(directory.stat().st_mode) == 0o751
    publisher.close()
