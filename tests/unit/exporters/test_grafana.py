"""Annotations for Grafana against a stand-in of its documented API: exact, once each, whatever fails on the way."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import pace
from tests.builders.waiting import wait_until
from tests.unit.exporters.grafana_stand_in import CUT_AFTER, CUT_BEFORE, StandIn, stand_in
from tests.unit.exporters.programs import exporter
from tests.unit.exporters.reports import NOW, a_rank, a_report, a_run
from tests.unit.exporters.test_source import publish
from trainprobe.config.schema import Grafana
from trainprobe.model.report import Host, Report, Stall
from trainprobe_exporters import grafana as pushing
from trainprobe_exporters.annotation import annotations_of
from trainprobe_exporters.grafana import Pusher, api
from trainprobe_exporters.spool import Spool


def a_stall(
    name: str, start: float, seconds: float = 2.5, *, is_open: bool = False, cause: str = "checkpoint"
) -> Stall:
    end = None if is_open else start + seconds
    return Stall(name, start, end, seconds, cause, {cause: seconds}, 5, 1, summary=f"{name} in /data/<b>secret</b>.pt")


def with_stalls(*stalls: Stall, run: str = "train.py-3f2a91c0", at: float = NOW) -> Report:
    return a_report(a_run(run, a_rank(stalls=list(stalls))), at=at, host=Host(name="node1"))


@pytest.fixture
def grafana() -> Iterator[StandIn]:
    with stand_in() as running:
        yield running


@pytest.fixture(autouse=True)
def no_long_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pushing, "FIRST_PAUSE_SECONDS", 0.01)


class Exporter:
    """The part of an exporter that speaks to Grafana, from its start to its end."""

    def __init__(self, directory: Path, grafana: StandIn, limit: int = 10_000, **keys: object) -> None:
        token = directory / "token"
        token.write_text(grafana.token + "\n")
        config = replace(Grafana(url=grafana.url, token_file=str(token)), **keys)  # type: ignore[arg-type]
        self.report: Report | None = None
        self.spool = Spool(directory / "state" / "annotations.sqlite", limit)
        self.pusher = Pusher(config, api(config), self.spool, lambda: self.report)

    def tell(self, report: Report | None = None) -> float:
        """Take a report and send once; the seconds it would wait then."""
        if report is not None:
            self.report = report
            self.pusher.spool_news()
        return asyncio.run(self.pusher.send())

    def told(self) -> dict[str, float]:
        readings = {r.metric.name.removeprefix("trainprobe_"): r.value for r in self.pusher.readings() if not r.labels}
        by_label = {r.labels[0]: r.value for r in self.pusher.readings() if r.metric.name.endswith("annotations_total")}
        up = [r.value for r in self.pusher.readings() if r.metric.name.endswith("source_up")]
        return {**readings, **by_label, "up": up[0]}  # type: ignore[dict-item]

    def killed(self) -> None:
        self.spool.close()


def test_a_stall_becomes_a_region_exact_to_the_millisecond(tmp_path: Path, grafana: StandIn) -> None:
    Exporter(tmp_path, grafana).tell(with_stalls(a_stall("s1", NOW - 60.1234, 2.5)))
    (annotation,) = grafana.annotations.values()
    assert annotation["time"] == round((NOW - 60.1234) * 1000)
    assert annotation["timeEnd"] - annotation["time"] == 2500
    assert annotation["tags"] == [
        "trainprobe",
        "run:train.py-3f2a91c0",
        "rank:0",
        "cause:checkpoint",
        "host:node1",
    ]
    assert annotation["text"] == "checkpoint 2.50 s"


def test_open_and_short_stalls_wait_and_stay_out(tmp_path: Path, grafana: StandIn) -> None:
    exporter = Exporter(tmp_path, grafana)
    exporter.tell(with_stalls(a_stall("open", NOW - 9, is_open=True), a_stall("short", NOW - 60, 0.5)))
    assert grafana.regions() == []
    exporter.tell(with_stalls(a_stall("open", NOW - 9, 9.0), a_stall("short", NOW - 60, 0.5), at=NOW + 1))
    assert [text for _, _, text in grafana.regions()] == ["checkpoint 9.00 s"]


def test_details_are_told_only_where_asked_for_and_are_inert(tmp_path: Path, grafana: StandIn) -> None:
    Exporter(tmp_path, grafana, details=True).tell(with_stalls(a_stall("s1", NOW - 60)))
    assert grafana.regions()[0][2] == "checkpoint 2.50 s: s1 in /data/&lt;b&gt;secret&lt;/b&gt;.pt"


def test_each_is_told_once_from_report_to_report_and_over_restarts(tmp_path: Path, grafana: StandIn) -> None:
    stalls = [a_stall(f"s{n}", NOW - 100 + 5 * n) for n in range(5)]
    exporter = Exporter(tmp_path, grafana)
    exporter.tell(with_stalls(*stalls[:3]))
    exporter.tell(with_stalls(*stalls[:3], at=NOW + 1))
    exporter.killed()
    for restart in range(3):
        exporter = Exporter(tmp_path, grafana)
        exporter.tell(with_stalls(*stalls, at=NOW + 2 + restart))
        exporter.killed()
    assert len(grafana.annotations) == 5
    assert len(set(grafana.regions())) == 5


def test_what_was_told_and_is_judged_anew_is_changed_in_place(tmp_path: Path, grafana: StandIn) -> None:
    exporter = Exporter(tmp_path, grafana)
    exporter.tell(with_stalls(a_stall("s1", NOW - 60, 2.0)))
    exporter.tell(with_stalls(a_stall("s1", NOW - 60, 4.0, cause="swap"), at=NOW + 1))
    (annotation,) = grafana.annotations.values()
    assert annotation["text"] == "swap 4.00 s"
    assert annotation["timeEnd"] - annotation["time"] == 4000
    assert "cause:swap" in annotation["tags"]
    assert exporter.told()["changed"] == 1


def test_what_somebody_deleted_in_grafana_stays_deleted(tmp_path: Path, grafana: StandIn) -> None:
    exporter = Exporter(tmp_path, grafana)
    exporter.tell(with_stalls(a_stall("s1", NOW - 60, 2.0)))
    grafana.annotations.clear()
    exporter.tell(with_stalls(a_stall("s1", NOW - 60, 4.0), at=NOW + 1))
    exporter.tell(with_stalls(a_stall("s1", NOW - 60, 5.0), at=NOW + 2))
    assert grafana.annotations == {}
    assert exporter.told()["annotations_pending"] == 0


@pytest.mark.parametrize("failure", [500, 502, 503, 429, 401, 403, 404, 302, CUT_BEFORE, CUT_AFTER])
def test_whatever_fails_is_tried_again_and_told_once(tmp_path: Path, grafana: StandIn, failure: int | str) -> None:
    exporter = Exporter(tmp_path, grafana)
    grafana.failures = [failure, failure]
    stalls = [a_stall("s1", NOW - 60), a_stall("s2", NOW - 40)]
    assert exporter.tell(with_stalls(*stalls)) < 1
    assert exporter.told()["up"] == 0
    assert exporter.told()["annotations_pending"] == 2
    for _ in range(4):
        exporter.tell()
    assert len(grafana.annotations) == 2
    assert len(set(grafana.regions())) == 2
    assert exporter.told()["up"] == 1
    assert exporter.told()["annotations_pending"] == 0


@pytest.mark.parametrize("failure", [CUT_BEFORE, CUT_AFTER])
def test_a_kill_between_sending_and_noting_it_tells_nothing_twice(
    tmp_path: Path, grafana: StandIn, failure: str
) -> None:
    """The answer never came, the exporter was killed; the next one finds out whether it had arrived."""
    exporter = Exporter(tmp_path, grafana)
    grafana.failures = [failure]
    exporter.tell(with_stalls(a_stall("s1", NOW - 60)))
    exporter.killed()
    Exporter(tmp_path, grafana).tell(with_stalls(a_stall("s1", NOW - 60), at=NOW + 1))
    assert len(grafana.annotations) == 1
    assert "GET" in [method for method, _ in grafana.requests]


def test_what_arrived_unheard_and_changed_since_is_found_and_changed(tmp_path: Path, grafana: StandIn) -> None:
    exporter = Exporter(tmp_path, grafana)
    grafana.failures = [CUT_AFTER]
    exporter.tell(with_stalls(a_stall("s1", NOW - 60, 2.0)))
    exporter.tell(with_stalls(a_stall("s1", NOW - 60, 6.0, cause="swap"), at=NOW + 1))
    assert [text for _, _, text in grafana.regions()] == ["swap 6.00 s"]


def test_one_that_is_refused_does_not_hold_up_the_others(
    tmp_path: Path, grafana: StandIn, capfd: pytest.CaptureFixture[str]
) -> None:
    grafana.refused_text = "swap"
    exporter = Exporter(tmp_path, grafana)
    stalls = [a_stall("bad", NOW - 80, cause="swap"), a_stall("good", NOW - 60)]
    exporter.tell(with_stalls(*stalls))
    exporter.tell(with_stalls(*stalls, at=NOW + 1))
    assert [text for _, _, text in grafana.regions()] == ["checkpoint 2.50 s"]
    told = exporter.told()
    assert (told["refused"], told["sent"], told["annotations_pending"]) == (1, 1, 0)
    assert capfd.readouterr().err.count("refused") == 1


def test_pauses_grow_stay_bounded_and_heed_what_grafana_asks_for(tmp_path: Path, grafana: StandIn) -> None:
    exporter = Exporter(tmp_path, grafana)
    grafana.failing = 503
    pauses = [exporter.tell(with_stalls(a_stall("s1", NOW - 60)))]
    pauses += [exporter.tell() for _ in range(20)]
    assert pauses[0] <= 0.01
    assert pauses[8] > pauses[1]
    assert 150 <= pauses[-1] <= 300
    grafana.failing = 429
    grafana.retry_after = "7"
    (tmp_path / "other").mkdir()
    fresh = Exporter(tmp_path / "other", grafana)
    assert fresh.tell(with_stalls(a_stall("s1", NOW - 60))) == 7


def test_the_same_failure_is_logged_once_and_never_the_token(
    tmp_path: Path, grafana: StandIn, capfd: pytest.CaptureFixture[str]
) -> None:
    exporter = Exporter(tmp_path, grafana)
    grafana.token = "another"
    exporter.tell(with_stalls(a_stall("s1", NOW - 60)))
    exporter.tell()
    said = capfd.readouterr().err
    assert said.count("401: Invalid API key (the service account needs annotations:create") == 1
    assert "glsa_standin" not in said
    (tmp_path / "token").write_text("another")
    exporter.tell()
    assert len(grafana.annotations) == 1
    assert "takes annotations again" in capfd.readouterr().err


def test_the_spool_is_bounded_and_counts_what_had_no_room(tmp_path: Path, grafana: StandIn) -> None:
    exporter = Exporter(tmp_path, grafana, limit=10)
    grafana.failing = CUT_BEFORE
    stalls = [a_stall(f"s{n}", NOW - 1000 + 5 * n) for n in range(25)]
    exporter.tell(with_stalls(*stalls))
    exporter.tell(with_stalls(*stalls, at=NOW + 1))
    assert (exporter.told()["annotations_pending"], exporter.told()["dropped"]) == (10, 15)
    grafana.failing = None
    exporter.tell(with_stalls(*stalls, at=NOW + 2))
    assert [start for start, _, _ in grafana.regions()] == [round((NOW - 1000 + 5 * n) * 1000) for n in range(15, 25)]
    assert exporter.told()["dropped"] == 15


def test_ten_thousand_wait_and_are_told(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool.sqlite")
    begun = time.monotonic()
    for batch in range(51):
        stalls = [a_stall(f"s{n}", NOW + n) for n in range(200)]
        report = with_stalls(*stalls, run=f"train-{batch:08x}")
        spool.put(list(annotations_of(report, minimum_seconds=1, details=False)))
    assert spool.pending == 10_000
    assert spool.counts == {"dropped": 200}
    assert pace.within(time.monotonic() - begun, 20)
    spool.close()


def test_a_broken_spool_is_put_aside(tmp_path: Path) -> None:
    path = tmp_path / "spool.sqlite"
    path.write_bytes(b"no database at all, but long enough to be taken for one" * 100)
    spool = Spool(path)
    assert spool.next() is None
    spool.close()
    assert path.with_name("spool.sqlite.broken").exists()


@pytest.mark.parametrize("answer", [b"<html>login</html>", b"[]", b'{"message": "Annotation added"}'])
def test_something_else_that_answers_200_is_no_grafana(
    tmp_path: Path, grafana: StandIn, monkeypatch: pytest.MonkeyPatch, answer: bytes
) -> None:
    exporter = Exporter(tmp_path, grafana)
    monkeypatch.setattr(type(exporter.pusher._grafana), "_exchange", lambda *_: (200, None, answer))
    exporter.tell(with_stalls(a_stall("s1", NOW - 60)))
    assert exporter.told()["up"] == 0
    assert exporter.told()["annotations_pending"] == 1


def test_hostile_names_become_tags_that_grafana_can_hold(tmp_path: Path, grafana: StandIn) -> None:
    Exporter(tmp_path, grafana).tell(with_stalls(a_stall("s1", NOW - 60), run="a,b\n" + "x" * 500 + "-3f2a91c0"))
    (annotation,) = grafana.annotations.values()
    assert all(len(tag) <= 100 and tag.isprintable() and "," not in tag for tag in annotation["tags"])


@pytest.mark.parametrize("through", ["file", "credential"])
def test_the_program_writes_them_and_a_restart_writes_none_again(
    tmp_path: Path, grafana: StandIn, through: str
) -> None:
    (tmp_path / "grafana_token").write_text(grafana.token)
    token_file = f", token_file: {tmp_path / 'grafana_token'}" if through == "file" else ""
    (tmp_path / "exporter.yaml").write_text(f"grafana: {{url: '{grafana.url}'{token_file}}}\n")
    environ = {"STATE_DIRECTORY": str(tmp_path / "state")}
    if through == "credential":
        environ["CREDENTIALS_DIRECTORY"] = str(tmp_path)
    publish(tmp_path / "report.json", with_stalls(a_stall("s1", time.time() - 60), at=time.time()))
    arguments = ("--config", str(tmp_path / "exporter.yaml"), "--listen", "127.0.0.1:0")
    for _ in range(2):
        before = len(grafana.requests)
        with exporter(tmp_path, *arguments, **environ) as running:
            wait_until(lambda: running.metrics().of("trainprobe_annotations_total", outcome="sent") == 1)
            assert running.metrics().of("trainprobe_source_up", source="grafana") == 1
            assert running.metrics().of("trainprobe_annotations_pending") == 0
    assert len(grafana.annotations) == 1
    assert len(grafana.requests) == before, "the second one had nothing to say"


@pytest.mark.parametrize("token", ["one\ntwo", "glsa_\ufffd"])
def test_a_token_that_is_no_header_is_told_and_tried_again(
    tmp_path: Path, grafana: StandIn, capfd: pytest.CaptureFixture[str], token: str
) -> None:
    exporter = Exporter(tmp_path, grafana)
    (tmp_path / "token").write_text(token)
    exporter.tell(with_stalls(a_stall("s1", NOW - 60)))
    assert "is its file one line of ASCII?" in capfd.readouterr().err
    (tmp_path / "token").write_text(grafana.token)
    exporter.tell()
    assert len(grafana.annotations) == 1
