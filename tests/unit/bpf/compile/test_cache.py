# SPDX-License-Identifier: Apache-2.0
"""Which kept programs count, and which are ignored."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from trainprobe.bpf.compile.cache import MAX_BYTES, USUAL, Cache
from trainprobe.bpf.compile.image import Code, Image, MapShape

MADE = Image("GPL", {"ring": MapShape(27, 0, 0, 4096, 0)}, {"on_exit": Code(bytes(16), ((0, "ring"),))})
OTHERS_WRITE = "others may write to"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Not there yet."""
    return tmp_path / "trainprobe"


def test_what_was_written_is_read_and_is_its_owners_alone(directory: Path) -> None:
    Cache(str(directory)).write("events", "key", MADE)
    assert directory.stat().st_mode & 0o777 == 0o700
    assert [(file.name, file.stat().st_mode & 0o777) for file in directory.iterdir()] == [("events", 0o600)]
    cache = Cache(str(directory))
    assert cache.read("events", "key") == MADE
    assert cache.read("marks", "key") is None
    assert cache.read("events", "another kernel") is None
    assert not cache.notes  # nothing is wrong with any of this


def shorten(file: Path) -> None:
    os.truncate(file, random.randrange(file.stat().st_size))


def change(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[random.randrange(len(content))] ^= 1 << random.randrange(8)
    file.write_bytes(content)


def link(file: Path) -> None:
    file.rename(file.with_name("real"))
    file.symlink_to("real")


def fifo(file: Path) -> None:
    file.unlink()
    os.mkfifo(file, 0o600)


def replace_by_directory(file: Path) -> None:
    file.unlink()
    file.mkdir()


def give_away(file: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("not root")
    os.chown(file, 65534, 65534)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (shorten, "it is"),
        (change, "it is"),
        (link, "symbolic links"),
        (fifo, "no plain file"),
        (replace_by_directory, "no plain file"),
        (give_away, "it belongs to user 65534"),
        (lambda file: file.chmod(0o620), OTHERS_WRITE),
        (lambda file: file.chmod(0o602), OTHERS_WRITE),
        (lambda file: file.parent.chmod(0o770), OTHERS_WRITE),
        (lambda file: give_away(file.parent), "its directory belongs to user 65534"),
        (lambda file: os.truncate(file, MAX_BYTES + 1), "bytes"),
    ],
)
def test_what_cannot_be_trusted_is_ignored_and_told_once(
    directory: Path, spoil: Callable[[Path], None], said: str
) -> None:
    Cache(str(directory)).write("events", "key", MADE)
    spoil(directory / "events")
    cache = Cache(str(directory))
    assert cache.read("events", "key") is None
    [note] = cache.notes
    assert note.startswith(f"{directory}/events is ignored and made anew: ")
    assert said in note


def test_words_are_kept_for_their_key_where_they_are_complete(directory: Path) -> None:
    def words(cache: Cache, key: str, *made: str) -> list[str]:
        return cache.words("kernel", key, lambda: list(made), lambda words: "?" not in words)

    cache = Cache(str(directory))
    assert words(cache, "one", "?") == ["?"]
    assert words(cache, "one", "a", "b") == ["a", "b"]
    assert words(cache, "one") == ["a", "b"]
    assert words(cache, "another", "c") == ["c"]
    assert not cache.notes


@pytest.mark.parametrize("spoil", [shorten, change])
def test_damaged_words_are_made_anew(directory: Path, spoil: Callable[[Path], None]) -> None:
    cache = Cache(str(directory))
    cache.words("kernel", "key", lambda: ["-DA=1", "-DB=2"], bool)
    spoil(directory / "kernel")
    assert cache.words("kernel", "key", lambda: ["-DA=3"], bool) == ["-DA=3"]
    assert cache.words("kernel", "key", list, bool) == ["-DA=3"]


def test_the_next_one_is_written_over_a_damaged_one(directory: Path) -> None:
    cache = Cache(str(directory))
    cache.write("events", "key", MADE)
    change(directory / "events")
    cache.write("events", "key", MADE)
    assert cache.read("events", "key") == MADE


def test_nothing_is_written_where_others_may_write(directory: Path) -> None:
    directory.mkdir()
    directory.chmod(0o777)
    Cache(str(directory)).write("events", "key", MADE)
    assert not list(directory.iterdir())


def test_where_it_cannot_be_written_nothing_happens(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    for place in (tmp_path / "file", tmp_path / "missing" / "trainprobe"):
        Cache(str(place)).write("events", "key", MADE)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_what_killed_starts_left_is_removed_and_what_is_under_way_is_not(directory: Path) -> None:
    directory.mkdir(0o700)
    (directory / "events.17.new").write_bytes(b"half")
    os.utime(directory / "events.17.new", (0, time.time() - 3600))
    (directory / "marks.18.new").write_bytes(b"half")
    Cache(str(directory)).write("events", "key", MADE)
    assert sorted(path.name for path in directory.iterdir()) == ["events", "marks.18.new"]


@pytest.mark.parametrize(
    ("environment", "place"),
    [
        ({}, USUAL),
        ({"CACHE_DIRECTORY": "/var/cache/a:/var/cache/b"}, "/var/cache/a"),
        ({"TRAINPROBE_CACHE": "/somewhere", "CACHE_DIRECTORY": "/var/cache/a"}, "/somewhere"),
        ({"TRAINPROBE_CACHE": "off", "CACHE_DIRECTORY": "/var/cache/a"}, ""),
        ({"TRAINPROBE_CACHE": ""}, USUAL),
    ],
)
def test_where_it_is(environment: dict[str, str], place: str) -> None:
    assert Cache.of_environment(environment)._directory == place


def test_switched_off_it_reads_and_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    cache = Cache("")
    cache.write("events", "key", MADE)
    assert cache.read("events", "key") is None
    assert not list(tmp_path.iterdir())
