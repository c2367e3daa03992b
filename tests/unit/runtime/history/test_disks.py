"""Real file systems that are full, or turn read-only, under the history."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import pace
from tests.builders.waiting import wait_until
from tests.unit.runtime.history.test_keeper import Kept, stalls_in
from tests.unit.runtime.telling import RUN, Training
from trainprobe.runtime.history import keeper as module
from trainprobe_exporters.history import History as Reader

SIZE = 8 << 20


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A file system of eight megabytes."""
    where = tmp_path / "disk"
    where.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(where)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small file system needs root")
    monkeypatch.setattr(module, "RETRY_SECONDS", 0.01)
    try:
        yield where
    finally:
        subprocess.run(["umount", "--lazy", str(where)], check=True)


def remount(disk: Path, how: str) -> None:
    """Read-only works once nobody holds a file there open for writing."""
    end = time.monotonic() + 5
    while subprocess.run(["mount", "-o", f"remount,{how}", str(disk)], capture_output=True, check=False).returncode:
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_full_disk_is_told_survived_and_made_up_for(disk: Path) -> None:
    kept, training = Kept(disk / "state"), Training()
    kept.open()
    kept.run(training, 20)
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file, pytest.raises(OSError, match="No space left"):
        while True:
            file.write(b"x" * 4096)
    kept.run(training, 200)
    wait_until(lambda: kept.said)
    assert "full" in kept.said[0] or "No space left" in kept.said[0]
    assert kept.history.source().state == "error"
    filler.unlink()
    time.sleep(0.02)
    kept.run(training, 2)
    wait_until(lambda: kept.history.source().state == "up")
    kept.history.close()
    assert stalls_in(kept.directory) == [(stall.id, stall.end) for stall in training.stalls]
    told = [one.stall.id for one in Reader(kept.directory / "published").stalls()]
    assert told == [stall.id for stall in training.stalls]
    assert sum(row.count for row in Reader(kept.directory / "published").steps(RUN, "0")) == 222 * 20
    assert kept.report().runs[0].ranks[0].steps.count == 222 * 20


def test_a_disk_that_is_full_from_the_beginning(disk: Path) -> None:
    (disk / "filler").write_bytes(b"x" * (SIZE - 16384))
    kept, training = Kept(disk / "state"), Training()
    last, _ = training.tell()
    kept.open(last)
    kept.run(training, 30)
    assert kept.history.source().state == "error"
    (disk / "filler").unlink()
    time.sleep(0.02)
    kept.run(training, 12)
    wait_until(lambda: kept.history.source().state == "up")
    kept.history.close()
    assert stalls_in(kept.directory) == [(stall.id, stall.end) for stall in training.stalls]


def test_a_read_only_disk_is_told_and_survived(disk: Path) -> None:
    """Nothing can be written: the daemon goes on, and once it can, the latest is there."""
    state = disk / "state"
    kept, training = Kept(state), Training()
    kept.open()
    kept.run(training, 12)
    kept.history.close()
    remount(disk, "ro")
    kept.open()
    kept.run(training, 30)
    assert kept.history.source().state == "error"
    assert len(kept.said) == 1
    remount(disk, "rw")
    time.sleep(0.02)
    kept.run(training, 3)
    wait_until(lambda: kept.history.source().state == "up")
    kept.history.close()
    assert stalls_in(state) == [(stall.id, stall.end) for stall in training.stalls]


@pytest.fixture
def freezing(tmp_path: Path) -> Iterator[Path]:
    """An ext4 of its own, thawed and unmounted at the end."""
    image, where = tmp_path / "image", tmp_path / "frozen"
    where.mkdir()
    with image.open("wb") as file:
        file.truncate(32 << 20)
    made = ["mkfs.ext4", "-q", str(image)], ["mount", "-o", "loop", str(image), str(where)]
    if os.geteuid() != 0 or not all(map(shutil.which, ("mkfs.ext4", "fsfreeze"))):
        pytest.skip("freezing a file system needs root, mkfs.ext4 and fsfreeze")
    if any(subprocess.run(command, capture_output=True, check=False).returncode for command in made):
        pytest.skip("no loop device can be mounted here")
    try:
        yield where
    finally:
        subprocess.run(["fsfreeze", "-u", str(where)], capture_output=True, check=False)
        subprocess.run(["umount", "--lazy", str(where)], check=True)


def test_a_disk_that_hangs_holds_up_nobody(freezing: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop hands over and goes on, and the daemon can end; what waited is written when the disk is back."""
    monkeypatch.setattr(module, "CLOSING_SECONDS", 0.2)
    kept, training = Kept(freezing / "state"), Training()
    kept.open()
    kept.run(training, 12)
    subprocess.run(["fsfreeze", "-f", str(freezing)], check=True)
    longest = 0.0
    for _ in range(300):
        report, steps = training.tell()
        began = time.monotonic()
        kept.history.add_report(report, steps, {})
        longest = max(longest, time.monotonic() - began)
    assert pace.within(longest, 0.5)
    began = time.monotonic()
    kept.history.close()
    assert pace.within(time.monotonic() - began, 2)
    subprocess.run(["fsfreeze", "-u", str(freezing)], check=True)
    assert kept.history._thread is not None
    kept.history._thread.join(10)
    assert [name for name, _ in stalls_in(kept.directory)] == [stall.id for stall in training.stalls]
