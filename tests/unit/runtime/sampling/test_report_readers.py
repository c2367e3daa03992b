"""Who follows what is published is told from who reads it now and then."""

from __future__ import annotations

import random
import select
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainprobe.model.moment import NS
from trainprobe.runtime.sampling.report_readers import GONE_NS, TWICE_NS, Readers


@pytest.fixture
def readers() -> Iterator[Readers]:
    made = Readers()
    assert made.fileno() is not None
    yield made
    made.close()


def publish(readers: Readers, path: Path) -> None:
    """As the daemon does."""
    new = path.with_name("new")
    new.write_text("{}")
    new.rename(path)
    readers.follow(str(path))


def test_a_scrape_reads_each_report_once(readers: Readers, tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    now = random.randrange(10**15)
    for _ in range(5):
        publish(readers, path)
        path.read_text()
        now += random.randrange(NS, 15 * NS)
        readers.read(now)
        assert not readers.follows(now)


def test_a_report_that_is_replaced_unread_is_no_reader(readers: Readers, tmp_path: Path) -> None:
    """Else each report would bring the next look two seconds later."""
    path = tmp_path / "report.json"
    publish(readers, path)
    publish(readers, path)
    assert select.select([readers.fileno()], [], [], 0)[0], "the kernel tells that the first one is gone"
    assert not readers.read(NS)
    path.read_text()
    assert readers.read(2 * NS)


def test_whoever_reads_it_again_waits_for_the_next_one(readers: Readers, tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    publish(readers, path)
    path.read_text()
    readers.read(NS)
    path.read_text()
    assert select.select([readers.fileno()], [], [], 0)[0], "the loop is woken for it"
    readers.read(NS + random.randrange(TWICE_NS))
    assert readers.follows(NS + TWICE_NS)
    assert not readers.follows(NS + TWICE_NS + GONE_NS)


def test_readings_far_apart_are_nobodys_who_waits(readers: Readers, tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    publish(readers, path)
    for at in range(0, 5 * TWICE_NS, TWICE_NS):
        path.read_text()
        readers.read(at)
        assert not readers.follows(at)
