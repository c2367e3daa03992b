"""Ids that /etc/subuid lends count as those of the user who has them."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainprobe.collect.owners import AGAIN_SECONDS, BLOCK, Owners, parse

USERS = "root:x:0:0::/root:/bin/sh\nann:x:1000:1000::/home/ann:/bin/sh\nbroken\nbob:x:1001:1001\n"
LENT = "ann:100000:65536\nbob:165536:65536\n1002:300000:10\nldap.user:400000:65536\nroot:1000000:1000000000\n"


class Clock:
    seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    lent, users = tmp_path / "subuid", tmp_path / "passwd"
    lent.write_text(LENT)
    users.write_text(USERS)
    return lent, users


@pytest.mark.parametrize(
    ("uid", "owner"),
    [
        (0, 0),
        (1000, 1000),
        (99_999, 99_999),
        (100_000, 1000),
        (165_535, 1000),
        (165_536, 1001),
        (231_072, 231_072),
        (300_009, 1002),
        (300_010, 300_010),
        (400_000, 400_000),  # a name of a directory service, which is not asked: the range is one user
        (465_535, 400_000),
        (1_000_000 + 5, 1_000_000),  # root's: each container by itself
        (1_000_000 + BLOCK + 5, 1_000_000 + BLOCK),
        (-1, -1),
    ],
)
def test_who_answers_for_an_id(files: tuple[Path, Path], uid: int, owner: int) -> None:
    lent, users = files
    assert Owners(str(lent), str(users)).of(uid) == owner


def test_the_files_are_read_again_when_they_have_changed(files: tuple[Path, Path]) -> None:
    lent, users = files
    clock = Clock()
    owners = Owners(str(lent), str(users), clock)
    assert owners.of(100_000) == 1000
    lent.write_text("bob:100000:65536\n")
    clock.seconds += AGAIN_SECONDS
    assert owners.of(100_000) == 1001
    lent.unlink()
    clock.seconds += AGAIN_SECONDS
    assert owners.of(100_000) == 100_000


def test_what_is_no_line_of_theirs_is_passed_over() -> None:
    text = "\n:\nann\nann:1\nann:x:1\nann:1:-1\nann:99999999999999999999:5\nann:5:0\n:7:1\nann:10:2:3\n"
    assert parse(text, USERS) == [(7, 8, 7)]
