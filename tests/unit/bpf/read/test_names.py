# SPDX-License-Identifier: Apache-2.0
"""Names of many files: whose go first, and what a renamed folder costs."""

from __future__ import annotations

import random
import time
from pathlib import Path

from trainprobe.bpf.read.decode import NamedFile
from trainprobe.bpf.read.names import KEPT, LOOKED_AT, MAX_NAMES, MOVES, Key, Names
from trainprobe.bpf.read.paths import Paths
from trainprobe.collect.procfs import Proc
from trainprobe.model.event import FileEvent, FileEventKind

MINE, YOURS = 1000, 1001
Place = tuple[int, str]  # mount namespace, path


def key(number: int, pid: int = 1) -> Key:
    return pid, 1, number


def full_of(path: str) -> Names:
    """``path``: with the place of a number."""
    names = Names()
    for number in range(MAX_NAMES):
        names.remember(key(number), path.format(number), MINE)
    return names


def test_once_the_table_is_full_the_oldest_name_of_whoever_has_most_goes() -> None:
    names = Names()
    for number in range(100):
        names.remember(key(number, pid=2), f"/yours/{number}", YOURS)
    for number in range(2 * MAX_NAMES):
        names.remember(key(number), f"/mine/{number}", MINE)
    assert len(names) == MAX_NAMES
    assert all(names.of(key(number, pid=2)) == f"/yours/{number}" for number in range(100))
    assert names.file("/yours/0") == key(0, pid=2)
    assert (names.of(key(0)), names.file("/mine/0")) == ("", None)
    assert names.of(key(2 * MAX_NAMES - 1)) == f"/mine/{2 * MAX_NAMES - 1}"


def test_a_name_counts_for_the_user_of_its_process(tmp_path: Path) -> None:
    proc = Proc(str(tmp_path))
    proc.owner = lambda pid: {7: MINE, 8: YOURS}[pid]  # type: ignore[assignment]
    paths = Paths(proc)
    for pid, number in [(8, 1), *((7, number) for number in range(2, MAX_NAMES + 10))]:
        event = FileEvent(FileEventKind.OPENED, 1, pid, pid, 1, number, "")
        paths.resolve(NamedFile(event, 3, -100, -100, b"/out/%d" % number, b"", ()))
    assert (paths.of(8, 1, 1), paths.of(7, 1, 2)) == ("/out/1", "")


def ended(names: Names, lives: set[int]) -> None:
    """As many processes as it takes until all names have been looked at."""
    for _ in range(MAX_NAMES // LOOKED_AT):
        names.forget_ended(lives)


def test_of_ended_processes_the_latest_names_are_kept() -> None:
    names = Names()
    for number in range(1000):
        names.remember(key(number, pid=2), f"/its/{number}", MINE)
    for number in range(1000, 1010):
        names.remember(key(number, pid=3), f"/other/{number}", MINE)
    ended(names, {2, 3})
    assert len(names) == 1010, "both live"
    ended(names, {3})
    assert len(names) == KEPT + 10
    assert names.file("/its/999") == key(999, pid=2), "somebody else may rename it"
    assert (names.of(key(0, pid=2)), names.file("/its/0")) == ("", None)
    for number in range(1000):
        names.remember(key(number, pid=3), f"/other/{number}", MINE)
    ended(names, {3})
    assert all(names.of(key(number, pid=3)) for number in range(1010)), "of one that lives none goes"


def test_of_many_users_ended_processes_no_more_are_kept_and_whoever_has_few_loses_none() -> None:
    names = Names()
    for number in range(10):
        names.remember(key(number, pid=1), f"/few/{number}", YOURS)
    for number in range(2000):
        names.remember(key(number, pid=2), f"/many/{number}", 2000 + number % 16)
    ended(names, set())
    assert len(names) == KEPT
    assert all(names.file(f"/few/{number}") for number in range(10))
    assert names.file("/many/1999")
    assert not names.file("/many/1000")


def test_the_totals_of_a_processs_files_are_named_after_its_end(tmp_path: Path) -> None:
    proc = Proc(str(tmp_path))
    proc.owner = lambda pid: MINE  # type: ignore[assignment]
    paths = Paths(proc)
    for number in range(1, 1001):
        event = FileEvent(FileEventKind.OPENED, 1, 7, 7, 1, number, "")
        paths.resolve(NamedFile(event, 3, -100, -100, b"/out/%d" % number, b"", ()))
    paths.forget(7)
    assert paths.complete(FileEvent(FileEventKind.CLOSED, 2, 7, 7, 1, 1, "")).path == "/out/1"
    for _ in range(1000 // LOOKED_AT + 1):
        paths.forget(8)
    assert (paths.of(7, 1, 1), paths.of(7, 1, 1000)) == ("", "/out/1000")


def test_a_file_that_is_found_open_keeps_its_name(tmp_path: Path) -> None:
    proc = Proc(str(tmp_path))
    proc.owner = lambda pid: MINE  # type: ignore[assignment]
    paths = Paths(proc)
    for number in range(1, 2 * MAX_NAMES):
        event = FileEvent(FileEventKind.OPENED, 1, 7, 7, 1, number, "")
        paths.resolve(NamedFile(event, 3, -100, -100, b"/out/%d" % number, b"", ()))
        if number % 1000 == 0:
            told = paths.complete(FileEvent(FileEventKind.PROGRESS, 1, 7, 7, 1, 1, ""))
            assert told.path == "/out/1"
    assert (paths.of(7, 1, 1), paths.of(7, 1, 2)) == ("/out/1", "")


def test_a_renamed_folder_is_cheap_however_many_files_there_are() -> None:
    """Beside them, with all of them in it, and with each in a folder of its own, over many renames."""
    for path, renames in (("/run/{}", 200), ("/a/{}", 200), ("/a/{}/x", 10_000)):
        names = full_of(path)
        began = time.thread_time()
        for _ in range(renames // 2):
            names.rename("/a", "/b")
            names.rename("/b", "/a")
        assert (time.thread_time() - began) / renames < 200e-6


def test_a_folder_is_followed_so_often_and_again_once_a_file_is_opened_in_it() -> None:
    names = Names()
    names.remember(key(1), "/run/0/x", MINE)
    for number in range(MOVES):
        names.rename(f"/run/{number}", f"/run/{number + 1}")
    assert names.of(key(1)) == f"/run/{MOVES}/x"
    names.remember(key(2), f"/run/{MOVES}/y", MINE)
    names.rename(f"/run/{MOVES}", "/last")
    assert (names.of(key(1)), names.file("/last/y")) == ("/last/x", key(2))
    for number in range(MOVES):
        names.rename("/last" if number % 2 else "/other", "/other" if number % 2 else "/last")
    assert names.of(key(2)) in ("/last/y", "/other/y")


def test_names_are_those_of_a_search_through_all_of_them() -> None:
    """In two mount namespaces with the same paths."""
    chance, names = random.Random(7), Names()
    by_key: dict[Key, Place] = {}
    by_path: dict[Place, Key] = {}
    folders = ["/a", "/a/b", "/a/b/c", "/a-b", "/b", "/b/c"]
    for turn in range(3000):
        space = chance.randrange(2)
        place, other = ((space, f"{chance.choice(folders)}/{chance.randrange(4)}") for _ in range(2))
        match chance.randrange(5):
            case 0 | 1:
                names.remember(key(turn), place[1], MINE, space)
                by_key[key(turn)], by_path[place] = place, key(turn)
            case 2:
                names.forget(place[1], space)
                by_path.pop(place, None)
            case 3 if place in by_path and place != other:
                names.rename(place[1], other[1], space)
                by_path[other] = found = by_path.pop(place)
                by_key[found] = other
            case 4 if chance.random() < 0.2:
                names.rename("/a/b", f"/new/{turn}", space)
                inside = {
                    one: known for one, known in by_path.items() if one[0] == space and one[1].startswith("/a/b/")
                }
                for one, known in inside.items():
                    del by_path[one]
                    by_key[known] = space, f"/new/{turn}{one[1][4:]}"
                    by_path[by_key[known]] = known
        for at in (place, other, (1 - space, place[1])):
            assert names.file(at[1], at[0]) == by_path.get(at)
    meant = set(by_path.values())
    assert all(names.of(known) == path and names.file(path, space) == known for (space, path), known in by_path.items())
    assert all(names.of(known) == path for known, (_, path) in by_key.items() if known in meant)
    assert names._order == sorted(names._folders)
