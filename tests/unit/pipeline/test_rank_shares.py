"""How many ranks are kept of all runs of a user and of the host: honest ones all, of a crowd some, and all counted."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from tests.builders.driver import Driver, moment, played
from trainprobe.model.event import RankSeen, RunEnded, RunStarted
from trainprobe.model.frame import Frame
from trainprobe.model.report import Run
from trainprobe.pipeline import Pipeline, rank_shares

SECOND = 1_000_000_000


class Crowd:
    """Runs of several users, each with processes that step once."""

    def __init__(self) -> None:
        self.pipeline, self.now = Pipeline(), 10 * SECOND
        self.pid = 1000

    def run(self, user: str, name: str) -> None:
        self.add_events(RunStarted(name, self.now, 1, ("python", "train.py"), user, "/"))

    def add_events(self, *events: RunStarted | RankSeen | RunEnded) -> None:
        self.now += SECOND // 100
        self.pipeline.step(Frame(moment(self.now), events))

    def ranks(self, name: str, count: int, *, end: bool = False) -> list[int]:
        """Pids of further ranks of a run, which begin within one frame."""
        begun, events = range(self.pid + 1, self.pid + 1 + count), []
        for self.pid in begun:
            driver = Driver(pid=self.pid, tid=self.pid, now=self.now)
            driver.events.append(RankSeen(name, self.now, self.pid, None, self.now))
            driver.step()
            if end:
                driver.exit()
            events += driver.events
            self.now = max(self.now, driver.now)
        self.pipeline.step(Frame(moment(self.now), tuple(events)))
        return list(begun)

    def kept(self, names: Iterable[str]) -> int:
        return sum(len(ranks) for name in names for ranks in self.pipeline.runs[name].ranks.by_pid.values())

    def report(self, name: str) -> Run:
        runs = {run.user: run for run in self.pipeline.report(moment(self.now)).runs}
        return runs[name]


@pytest.fixture
def crowd(monkeypatch: pytest.MonkeyPatch) -> Crowd:
    monkeypatch.setattr(rank_shares, "OF_ONE", 20)
    monkeypatch.setattr(rank_shares, "OF_HOST", 40)
    return Crowd()


def test_ended_ranks_of_a_user_make_room_the_oldest_first_and_all_are_counted(crowd: Crowd) -> None:
    for name in ("a", "b"):
        crowd.run("eve", name)
    first = crowd.ranks("a", 15, end=True)
    crowd.ranks("b", 15, end=True)
    assert crowd.kept("ab") == 20
    assert list(crowd.pipeline.runs["a"].ranks.by_pid) == first[10:]
    crowd.ranks("b", 10)
    assert crowd.kept("ab") == 20
    assert crowd.pipeline.runs["b"].ranks.going() == 10, "those that have ended made room"
    assert crowd.kept("a") >= 1, "a run has a rank"
    totals = [run.totals.ranks for run in crowd.pipeline.report(moment(crowd.now)).runs]
    assert totals == [15, 25]


def test_of_ranks_that_go_on_the_new_ones_are_refused_and_counted(crowd: Crowd) -> None:
    crowd.run("eve", "a")
    first = crowd.ranks("a", 30)
    assert list(crowd.pipeline.runs["a"].ranks.by_pid) == first[:20]
    assert crowd.report("eve").totals.ranks == 30
    crowd.run("eve", "b")
    crowd.ranks("b", 1)
    assert crowd.kept("b") == 1, "the first one of a run is let in, and the largest run gives"
    assert crowd.kept("a") == 19


def test_who_has_most_of_the_host_gives(crowd: Crowd) -> None:
    for user in ("eve", "mallory"):
        crowd.run(user, user)
        crowd.ranks(user, 25)
    crowd.run("alice", "alice")
    crowd.ranks("alice", 8)
    assert crowd.kept(["alice"]) == 8
    assert crowd.kept(["eve", "mallory", "alice"]) == 40
    assert [crowd.report(user).totals.ranks for user in ("eve", "mallory", "alice")] == [25, 25, 8]


def test_a_rank_that_was_refused_stays_so_while_there_is_no_room(crowd: Crowd) -> None:
    crowd.run("eve", "a")
    crowd.ranks("a", 20)
    (pid, *_) = crowd.pipeline.runs["a"].ranks.by_pid
    for tid in (pid + 5000, pid + 5001):
        for _ in range(3):
            driver = Driver(pid=pid, tid=tid, now=crowd.now)
            driver.train(2)
            played(driver, crowd.pipeline)
            crowd.now = driver.now
    assert crowd.kept("a") == 20
    assert crowd.report("eve").totals.ranks == 22


def test_honest_users_have_all_of_theirs() -> None:
    crowd = Crowd()
    for number in range(64):
        crowd.run("alice", f"run{number}")
        crowd.ranks(f"run{number}", 8)
    crowd.run("bob", "large")
    crowd.ranks("large", 256)
    assert crowd.kept(crowd.pipeline.runs) == 64 * 8 + 256
    assert not any(run.ranks.full for run in crowd.pipeline.runs.values())
