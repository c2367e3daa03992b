from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from trainprobe.runtime.discovery.watch_locks import WatchLock, WatchLocks

PARENTS = {30: 20, 20: 10, 10: 1, 1: 0}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "trainprobe"


@pytest.fixture
def claims(directory: Path) -> WatchLocks:
    return WatchLocks(PARENTS.get, directory)


def test_a_claim_covers_the_process_and_its_descendants(directory: Path, claims: WatchLocks) -> None:
    claim = WatchLock(20, directory)
    assert [claims.covers(pid) for pid in (30, 20, 10, 1, 77)] == [True, True, False, False, False]
    claim.release()
    assert not claims.covers(30)


def test_nothing_is_left_behind(directory: Path) -> None:
    first, second = WatchLock(20, directory), WatchLock(21, directory)
    first.release()
    assert directory.exists()
    second.release()
    assert not directory.exists()


def test_a_claim_does_not_take_the_daemons_directory_with_it(directory: Path) -> None:
    directory.mkdir()
    (directory / "report.json").touch()
    WatchLock(20, directory).release()
    assert [path.name for path in directory.iterdir()] == ["report.json"]


def test_the_claim_of_a_killed_process_counts_no_more(directory: Path, claims: WatchLocks) -> None:
    code = "import os, sys; from pathlib import Path; from trainprobe.runtime.discovery.watch_locks import WatchLock\n"
    code += "kept = WatchLock(20, Path(sys.argv[1])); os.kill(os.getpid(), 9)"
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[4] / "daemon")}
    subprocess.run([sys.executable, "-c", code, str(directory)], env=environment, check=False)
    assert (directory / "claims" / "20").exists()
    assert not claims.covers(20)
    assert not (directory / "claims" / "20").exists(), "a stale claim is removed"


def test_no_user_can_lock_a_claim_beyond_its_owners_end(directory: Path) -> None:
    """The pid goes to another process one day, which nobody would watch."""
    claim = WatchLock(20, directory)
    assert stat.S_IMODE((directory / "claims" / "20").stat().st_mode) == 0o600
    claim.release()


def test_what_others_put_there_is_no_claim(directory: Path, claims: WatchLocks) -> None:
    (directory / "claims").mkdir(parents=True)
    (directory / "claims" / "x").touch()
    (directory / "claims" / "20").symlink_to("/dev/null")
    assert claims.current() == set()


def test_without_a_directory_there_are_no_claims(claims: WatchLocks) -> None:
    assert not claims.covers(20)
