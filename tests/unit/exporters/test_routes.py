"""What each path answers, and to whom; with a real snapshot file."""

from __future__ import annotations

import dataclasses
import gzip
import json
from pathlib import Path

import pytest

from tests.unit.exporters.reports import NOW, a_full_report, a_rank, a_report, a_run, a_stepping_rank
from tests.unit.exporters.test_source import publish
from tests.unit.exporters.told import Told, told
from trainprobe.model.moment import NS, Moment
from trainprobe.model.report import Rank, Report, Run, Stall, Verdict
from trainprobe.model.report import Source as ReportSource
from trainprobe.model.steprow import StepRow
from trainprobe.model.vocabulary import REPORT_STALE_SECONDS
from trainprobe.pipeline.report.verdict import HEALTHY, NO_STEP
from trainprobe.wire import history as wire
from trainprobe.wire.report import decode
from trainprobe_exporters.admission import Admission
from trainprobe_exporters.exposition import Format
from trainprobe_exporters.families import SeriesTable
from trainprobe_exporters.history import History
from trainprobe_exporters.passwords import Passwords
from trainprobe_exporters.publication import Publication
from trainprobe_exporters.request import Request
from trainprobe_exporters.routes import Response, Routes
from trainprobe_exporters.source import SnapshotReader

TOKEN = "t" * 43
BOOTED = NOW - 5000  # when CLOCK_MONOTONIC was 0


class Exporter:
    """The exporter without its sockets: a snapshot, a clock that a test sets, the routes."""

    def __init__(self, path: Path, token: str | None = TOKEN) -> None:
        self.path = path
        self.now = NOW
        self.set_by = 0.0  # what the time of day was set by since
        publication = Publication(SnapshotReader(path, decode), SeriesTable(), "1.2.3", self._clocks)
        self.routes = Routes(publication, Admission(token), History(path.parent / "history"))

    def _clocks(self) -> Moment:
        return Moment(round((self.now - BOOTED) * NS), round((self.now + self.set_by) * NS))

    def publish(self, report: Report) -> None:
        publish(self.path, report)

    def get(self, path: str, method: str = "GET", **headers: str) -> Response:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        path, _, query = path.partition("?")
        fields = dict(field.split("=") for field in query.split("&")) if query else {}
        return self.routes.answer(Request(method, path, fields, named))

    def metrics(self) -> Told:
        return told(self.get("/metrics").body)


@pytest.fixture
def exporter(tmp_path: Path) -> Exporter:
    return Exporter(tmp_path / "report.json")


def test_without_a_daemon_metrics_say_so_and_readiness_says_why(exporter: Exporter) -> None:
    assert exporter.metrics().of("trainprobe_source_up", source="daemon") == 0
    ready = exporter.get("/-/ready")
    assert ready.status == 503
    assert b"is absent: the daemon does not run" in ready.body
    assert exporter.get("/-/healthy").status == 200
    assert exporter.metrics().of("trainprobe_build_info", version="1.2.3") == 1


def test_with_a_daemon_all_is_well(exporter: Exporter) -> None:
    exporter.publish(a_full_report())
    seen = exporter.metrics()
    assert seen.of("trainprobe_source_up", source="daemon") == 1
    assert seen.of("trainprobe_ready") == 1
    assert seen.of("trainprobe_source_errors_total", source="daemon") == 0
    assert seen.of("trainprobe_source_duration_seconds", source="daemon") is not None
    assert exporter.get("/-/ready").status == 200


def test_what_the_host_does_not_have_is_named_but_no_failure(exporter: Exporter) -> None:
    exporter.publish(a_full_report())
    ready = exporter.get("/-/ready")
    assert (ready.status, ready.body) == (200, b"ready\nnot on this host: nvml: no NVIDIA driver\n")


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("psi", ReportSource("error", "read failed", "mount it")),
        ("bpf", ReportSource("unavailable", "no BTF", "use a kernel with CONFIG_DEBUG_INFO_BTF")),
    ],
)
def test_a_failed_source_and_missing_ebpf_degrade(exporter: Exporter, name: str, source: ReportSource) -> None:
    exporter.publish(a_report(sources={name: source}))
    ready = exporter.get("/-/ready")
    assert ready.status == 503
    assert exporter.metrics().of("trainprobe_ready") == 0
    assert ready.body == f"degraded\n{name}: {source.reason} ({source.remedy})\n".encode()


def test_readiness_names_refused_users_to_those_only_who_may_see_the_report(exporter: Exporter) -> None:
    for reason in ("more than 64 runs of user 1001", "more than 64 runs of uids 1001, 1002"):
        exporter.now += 1
        exporter.publish(a_report(sources={"slots": ReportSource("error", reason)}, at=exporter.now))
        told = exporter.get("/-/ready").body.decode()
        assert told == "degraded\nslots: more than 64 runs of a user\n"
        assert reason in exporter.get(f"/-/ready?token={TOKEN}").body.decode()


def test_what_steers_a_display_is_spelt_out_in_json(exporter: Exporter) -> None:
    evil = "\u202egpj.exe\u2066\u200f\u061c\u2028\ufeff"
    exporter.publish(a_report(a_run("r", a_rank(verdict=Verdict("stall", "checkpoint", 1.0, 0.1, evil)), user=evil)))
    for query in ("", "&lang=zh"):
        told = exporter.get(f"/api/v1/report?token={TOKEN}{query}").body.decode()
        assert not set(evil) - set("gpj.exe") & set(told)
        assert json.loads(told)["runs"][0]["user"] == evil


def test_a_daemon_that_fell_silent_degrades(exporter: Exporter) -> None:
    exporter.publish(a_report(a_run()))
    assert exporter.get("/-/ready").status == 200
    exporter.now += REPORT_STALE_SECONDS + 1
    assert exporter.get("/-/ready").status == 503
    assert exporter.metrics().of("trainprobe_source_up", source="daemon") == 0
    exporter.publish(a_report(a_run(), at=exporter.now))
    assert exporter.get("/-/ready").status == 200
    assert exporter.metrics().of("trainprobe_source_up", source="daemon") == 1


def test_a_dead_daemon_is_not_ready_after_the_clock_was_set_back(exporter: Exporter) -> None:
    exporter.publish(dataclasses.replace(a_report(a_run("r")), generated_monotonic=NOW - BOOTED))
    assert exporter.get("/-/ready").status == 200
    exporter.set_by = -3600
    exporter.now += REPORT_STALE_SECONDS + 1
    assert exporter.get("/-/ready").status == 503
    seen = exporter.metrics()
    assert seen.of("trainprobe_source_up", source="daemon") == 0
    assert seen.all("trainprobe_run_info")
    exporter.now += 300
    assert not exporter.metrics().all("trainprobe_run_info"), "its series leave at their time, not an hour later"


def test_a_report_comes_with_the_clock_that_dates_it(exporter: Exporter) -> None:
    """The page's own machine may have any time of day."""
    exporter.publish(dataclasses.replace(a_report(a_run()), generated_monotonic=NOW - BOOTED))
    exporter.now += 7
    answer = exporter.get("/api/v1/report", authorization=f"Bearer {TOKEN}")
    made = json.loads(answer.body)["generated_monotonic"]
    assert float(answer.headers["X-Trainprobe-Monotonic"]) - made == pytest.approx(7)


def test_a_report_that_cannot_be_told_ends_no_metrics(exporter: Exporter, monkeypatch: pytest.MonkeyPatch) -> None:
    fold = SeriesTable.fold

    def fold_or_break(self: SeriesTable, report: Report) -> None:
        if report.generated == NOW + 1:
            raise ValueError("odd")
        fold(self, report)

    monkeypatch.setattr(SeriesTable, "fold", fold_or_break)
    for at, up in ((NOW, 1), (NOW + 1, 0), (NOW + 2, 1)):
        exporter.now = at
        exporter.publish(a_report(a_run("r"), at=at))
        seen = exporter.metrics()
        assert seen.of("trainprobe_source_up", source="daemon") == up
        assert seen.of("trainprobe_run_info", run="r", rank="0") == 1
    assert seen.of("trainprobe_source_errors_total", source="daemon") == 1


def test_each_report_is_told_by_the_next_scrape(exporter: Exporter) -> None:
    for wall in (10.0, 11.0, 12.0):
        exporter.publish(a_report(a_run("r", a_stepping_rank(wall=wall))))
        assert exporter.metrics().of("trainprobe_run_wall_seconds_total", run="r", rank="0") == wall


def test_the_text_is_made_once_for_a_report_and_lives_a_second(exporter: Exporter) -> None:
    exporter.publish(a_full_report())
    first = exporter.get("/metrics").body
    assert exporter.get("/metrics").body is first
    exporter.now += 1
    assert exporter.get("/metrics").body is not first


def test_openmetrics_to_whom_asks_for_it(exporter: Exporter) -> None:
    exporter.publish(a_full_report())
    accept = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,*/*;q=0.1"
    response = exporter.get("/metrics", accept=accept)
    assert response.content_type == Format.OPENMETRICS.value
    assert response.body.endswith(b"# EOF\n")
    plain = exporter.get("/metrics", accept="text/plain")
    assert plain.content_type == Format.TEXT.value
    assert told(response.body, Format.OPENMETRICS).keys() == told(plain.body).keys()


def test_compressed_to_whom_asks_for_it(exporter: Exporter) -> None:
    exporter.publish(a_full_report())
    plain = exporter.get("/metrics")
    assert "Content-Encoding" not in plain.headers
    compressed = exporter.get("/metrics", accept_encoding="gzip")
    assert compressed.headers["Content-Encoding"] == "gzip"
    assert gzip.decompress(compressed.body) == plain.body
    assert "Accept-Encoding" in compressed.headers["Vary"]


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "TRACE"])
def test_nothing_can_be_changed(exporter: Exporter, method: str) -> None:
    response = exporter.get("/metrics", method)
    assert (response.status, response.headers["Allow"]) == (405, "GET, HEAD")


@pytest.mark.parametrize("path", ["/index.html", "/metrics/", "/../etc/passwd", "/-/quit"])
def test_other_paths_are_not_there(exporter: Exporter, path: str) -> None:
    assert exporter.get(path).status == 404


@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_report_that_is_gone_is_gone_in_each_language(exporter: Exporter, language: str) -> None:
    exporter.publish(a_full_report())
    assert exporter.get(f"/api/v1/report?token={TOKEN}&lang={language}").status == 200
    exporter.path.unlink()
    assert exporter.get(f"/api/v1/report?token={TOKEN}&lang={language}").status == 503


def test_the_report_opens_to_the_token_only(exporter: Exporter) -> None:
    exporter.publish(a_full_report())
    good = [{"authorization": f"Bearer {TOKEN}"}, {"authorization": f"bearer {TOKEN}"}]
    for headers in good:
        response = exporter.get("/api/v1/report", **headers)
        assert (response.status, response.content_type) == (200, "application/json")
        assert json.loads(response.body)["runs"][0]["run"] == "train.py-3f2a91c0"
    assert exporter.get(f"/api/v1/report?token={TOKEN}").status == 200
    for headers in ({}, {"authorization": "Bearer"}, {"authorization": "Bearer x"}, {"authorization": "Basic é"},
                    {"authorization": f"Bearer {TOKEN}x"}):  # fmt: skip
        refused = exporter.get("/api/v1/report", **headers)
        assert (refused.status, refused.headers["WWW-Authenticate"]) == (401, "Bearer")
    assert exporter.get("/api/v1/report?token=").status == 401


def test_without_a_token_file_the_api_stays_shut(tmp_path: Path) -> None:
    exporter = Exporter(tmp_path / "report.json", token=None)
    exporter.publish(a_full_report())
    for headers in ({}, {"authorization": "Bearer "}, {"authorization": "Bearer None"}):
        assert exporter.get("/api/v1/report", **headers).status == 503
    assert exporter.get("/metrics").status == 200


def test_without_a_snapshot_the_report_says_why(exporter: Exporter) -> None:
    response = exporter.get(f"/api/v1/report?token={TOKEN}")
    assert response.status == 503
    assert b"is absent" in response.body


def test_stalls_since_a_time_open_ones_always(exporter: Exporter) -> None:
    def a_stall(name: str, start: float, end: float | None) -> Stall:
        return Stall(name, start, end, 1.0, "checkpoint", {"checkpoint": 1.0}, 5, 1)

    first = a_rank(stalls=[a_stall("old", NOW - 90, NOW - 80), a_stall("late", NOW - 50, NOW - 40)])
    second = a_rank("1", stalls=[a_stall("open", NOW - 85, None)])
    exporter.publish(a_report(a_run("r", first, second)))

    def told_for(query: str) -> list[tuple[str, str]]:
        response = exporter.get(f"/api/v1/stalls?{query}", authorization=f"Bearer {TOKEN}")
        assert (response.status, response.content_type) == (200, "application/json")
        return [(row["rank"], row["id"]) for row in json.loads(response.body)["stalls"]]

    assert told_for("") == [("0", "old"), ("1", "open"), ("0", "late")]
    assert told_for(f"since={NOW - 45}") == [("1", "open"), ("0", "late")]
    assert told_for("rank=0") == [("0", "old"), ("0", "late")]
    assert told_for("run=another") == []
    for query in ("since=yesterday", "since=nan"):
        assert exporter.get(f"/api/v1/stalls?{query}", authorization=f"Bearer {TOKEN}").status == 400
    assert exporter.get("/api/v1/stalls").status == 401


def test_the_unix_socket_and_a_name_open_what_the_token_opens(exporter: Exporter) -> None:
    exporter.publish(a_full_report())
    for local, user, status in ((True, "", 200), (False, "ann", 200), (False, "", 401)):
        request = Request("GET", "/api/v1/report", {}, {}, is_local=local, user=user)
        assert exporter.routes.answer(request).status == status


def test_a_web_configuration_with_names_guards_everything(exporter: Exporter) -> None:
    exporter.publish(a_full_report())
    exporter.routes.admission = Admission(TOKEN, Passwords(plain={"ann": "secret"}), guards_all=True)
    for path in ("/metrics", "/-/healthy", "/-/ready", "/api/v1/report", "/none"):
        refused = exporter.get(path)
        assert refused.status == 401
        assert refused.headers["WWW-Authenticate"].startswith("Basic ")
    assert exporter.get("/metrics", authorization=f"Bearer {TOKEN}").status == 200


def test_the_page_opens_with_the_token_and_shows_a_door_without(exporter: Exporter) -> None:
    opened = exporter.get(f"/?token={TOKEN}")
    assert (opened.status, opened.content_type) == (200, "text/html; charset=utf-8")
    assert b'id="timeline"' in opened.body
    assert "connect-src 'self'" in opened.headers["Content-Security-Policy"]
    assert "frame-ancestors 'none'" in opened.headers["Content-Security-Policy"]
    for path in ("/", "/?token=wrong"):
        door = exporter.get(path)
        assert (door.status, door.content_type) == (401, "text/html; charset=utf-8")
        assert b"trainprobe page" in door.body
        assert b'id="timeline"' not in door.body


def test_the_token_is_taken_in_a_header_that_leaves_authorization_to_a_proxy(exporter: Exporter) -> None:
    exporter.publish(a_full_report())
    proxied = {"authorization": "Basic cHJveHk6c2VjcmV0"}
    assert exporter.get("/api/v1/report", **proxied, x_trainprobe_token=TOKEN).status == 200
    assert exporter.get("/api/v1/report", **proxied, x_trainprobe_token=TOKEN + "x").status == 401
    assert exporter.get("/api/v1/report", authorization="Bearer x", x_trainprobe_token=TOKEN).status == 401


@pytest.mark.parametrize(
    ("asked", "language"), [("zh-CN,zh;q=0.9,en;q=0.8", "zh"), ("de-DE, en;q=0.5", "en"), ("fr", "en"), ("", "en")]
)
def test_page_and_door_are_in_the_readers_language(exporter: Exporter, asked: str, language: str) -> None:
    headers = {"accept-language": asked} if asked else {}
    for path in ("/", f"/?token={TOKEN}"):
        assert f'<html lang="{language}">'.encode() in exporter.get(path, **headers).body
    assert b'<html lang="zh">' in exporter.get(f"/?token={TOKEN}&lang=zh").body


def test_page_and_report_are_compressed_to_whom_asks_for_it(exporter: Exporter) -> None:
    exporter.publish(a_full_report())
    for path in ("/", "/api/v1/report"):
        plain = exporter.get(path, x_trainprobe_token=TOKEN)
        small = exporter.get(path, x_trainprobe_token=TOKEN, accept_encoding="gzip, br")
        assert small.headers["Content-Encoding"] == "gzip"
        assert gzip.decompress(small.body) == plain.body
        assert len(small.body) < len(plain.body) / 2


def test_steps_are_rows_of_one_rank(exporter: Exporter) -> None:
    folder = exporter.path.parent / "history" / wire.STEPS / "train.py-3f2a91c0"
    folder.mkdir(parents=True)
    rows = [StepRow(NOW + at, 0.5, 1, 0.5, 0.5, {"compute": 0.5}) for at in range(5)]
    segment = folder / str(wire.SegmentName("0", "step", 1))
    segment.write_text(wire.header(wire.STEPS) + "".join(map(wire.step_line, rows)))

    def asked(**query: str) -> Response:
        headers = {"x-trainprobe-token": TOKEN}
        return exporter.routes.answer(Request("GET", "/api/v1/steps", query, headers))

    told = json.loads(asked(run="train.py-3f2a91c0", rank="0").body)
    assert told["rows"] == [dataclasses.asdict(row) for row in rows]
    assert len(json.loads(asked(run="train.py-3f2a91c0", since=str(NOW + 3)).body)["rows"]) == 2
    assert sum(row["count"] for row in json.loads(asked(run="train.py-3f2a91c0", points="2").body)["rows"]) == 5
    assert json.loads(asked(run="other", rank="0").body)["rows"] == []
    for wrong in ({}, {"run": "r", "points": "0"}, {"run": "r", "points": "-3"}, {"run": "r", "since": "yesterday"}):
        assert asked(**wrong).status == 400
    assert exporter.get("/api/v1/steps").status == 401


def test_a_reader_of_another_language_gets_its_sentences(exporter: Exporter) -> None:
    verdict = Verdict.of(HEALTHY(steps=93, seconds=10.0))
    stall = Stall("s", 1.0, 2.0, 1.0, "unknown", {}, 1, 1, None, "", [])
    stall.message = NO_STEP()
    stall.summary = str(stall.message)
    rank = Rank(0, 1, 7, verdict=verdict, stalls=[stall])
    exporter.publish(Report(generated=exporter.now, runs=[Run("a-1", [], "ann", "/", 1.0, ranks=[rank])]))

    def said(language: str) -> tuple[str, str]:
        report, stalls = (
            json.loads(exporter.get(f"/api/v1/{what}?token={TOKEN}{language}").body) for what in ("report", "stalls")
        )
        return report["runs"][0]["ranks"][0]["verdict"]["summary"], stalls["stalls"][0]["summary"]

    assert said("&lang=zh") == ("状态良好：10.0 s 内 93 步，没有值得处理的时间浪费", "没有看到训练步")
    english = ("healthy: 93 steps in 10.0 s, nothing lost that is worth a change", "no training step was seen")
    assert said("") == said("&lang=en") == said("&lang=../x") == english
