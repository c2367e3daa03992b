"""What the start costs is named where a change is worth it."""

from __future__ import annotations

import pytest

from trainprobe.advise.startup import proposals, restored, total
from trainprobe.model.report import Rank, Restore, Startup


def rank(**parts: float) -> Rank:
    one = Rank(0, 1, 10)
    one.startup = Startup(
        **dict.fromkeys(("imports", "dataset", "restore", "workers", "compile", "other"), 0.0) | parts
    )
    return one


def said(one: Rank) -> list[str]:
    return [f"{what}: {remedy}" for what, remedy in proposals(one)]


def test_nothing_is_said_of_a_start_that_was_not_seen() -> None:
    one = Rank(0, 1, 10)
    assert total(one.startup) is None
    assert said(one) == []


def test_a_short_part_is_not_worth_a_change() -> None:
    assert said(rank(imports=1.9, other=0.1)) == []
    assert said(rank(imports=3.0, other=60.0)) == []


def test_a_slow_restore_is_told_from_one_that_reads_as_a_disk_does() -> None:
    one = rank(restore=10.0, imports=1.0)
    one.restores = [Restore("/nfs/model.pt", 1_000_000_000, 10.0)]
    (line,) = said(one)
    assert "restore: 10.0 s of the time to the first step (90.9 %)" in line
    assert "100 MB/s: copy it to a local disk" in line
    one.restores = [Restore("/nvme/model.pt", 30_000_000_000, 10.0)]
    assert "mmap=True" in said(one)[0]


@pytest.mark.parametrize(("part", "word"), [("imports", "image"), ("dataset", "index"), ("compile", "cache")])
def test_each_long_part_has_its_remedy(part: str, word: str) -> None:
    (line,) = said(rank(**{part: 20.0}))
    assert word in line


def test_a_restore_is_one_line() -> None:
    assert (
        str(restored(Restore("/a/model.pt", 980_000_000, 2.3))) == "restoring model.pt: 2.30 s, 980 MB read (426 MB/s)"
    )
    assert "not known" in str(restored(Restore("/a/model.safetensors", None, None)))
