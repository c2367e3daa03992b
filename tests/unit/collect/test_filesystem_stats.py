# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
from pathlib import Path

from trainprobe.collect.filesystem_stats import FilesystemStats
from trainprobe.collect.procfs import Proc
from trainprobe.model.sample import FileSizeSample, WrittenFile


def written(path: Path) -> WrittenFile:
    found = path.stat()
    return WrittenFile(os.getpid(), str(path), os.major(found.st_dev) << 20 | os.minor(found.st_dev), found.st_ino)


def test_the_size_is_that_of_the_file_that_was_written(tmp_path: Path) -> None:
    log = tmp_path / "events.out.tfevents.\n\udcff"
    log.write_bytes(bytes(1234))
    file = written(log)
    assert FilesystemStats(Proc()).size(file) == FileSizeSample(os.getpid(), file.dev, file.ino, 1234)


def test_another_file_of_that_name_is_none_of_ours(tmp_path: Path) -> None:
    """Its owner may make a link to a file that only root may see."""
    log, secret = tmp_path / "train.log", tmp_path / "secret"
    log.write_bytes(bytes(10))
    secret.write_bytes(bytes(99))
    file = written(log)
    log.unlink()
    log.symlink_to(secret)
    assert FilesystemStats(Proc()).size(file) is None


def test_a_file_or_process_that_is_gone_has_no_size(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_bytes(b"x")
    file = written(log)
    log.unlink()
    places = FilesystemStats(Proc())
    assert places.size(file) is None
    assert places.size(WrittenFile(2**22 + 1, file.path, file.dev, file.ino)) is None


def test_room_of_a_directory(tmp_path: Path) -> None:
    space = FilesystemStats(Proc()).room(os.getpid(), str(tmp_path))
    truth = os.statvfs(tmp_path)
    assert space is not None
    assert abs(space.available_bytes - truth.f_bavail * truth.f_frsize) < 1 << 30
    assert FilesystemStats(Proc()).room(os.getpid(), str(tmp_path / "gone")) is None
