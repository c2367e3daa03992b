"""`trainprobe report`: which runs, which form, whose."""

from __future__ import annotations

import dataclasses
import gzip
import json
import math
import os
import random
import re
import select
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

from tests.builders.users import mounted, reachable
from tests.unit.cli import reports
from trainprobe.cli import main, published
from trainprobe.cli import report as verb
from trainprobe.model.moment import NS
from trainprobe.model.report import Report, Run
from trainprobe.model.steprow import StepRow
from trainprobe.runtime.history.files import PUBLISHED, HistoryFiles
from trainprobe.runtime.publishing import rundir
from trainprobe.runtime.publishing.publish import Publisher
from trainprobe.runtime.sampling.report_readers import Readers
from trainprobe.wire import history
from trainprobe.wire import report as wire


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    made = reports.stalled()
    made.runs += reports.healthy().runs
    publish(tmp_path, made)
    return tmp_path


def publish(directory: Path, report: Report) -> None:
    rundir.write(str(directory / "report.json"), wire.encode(report).encode(), mode=0o640)


def call(directory: Path, *arguments: str) -> int:
    return main(["report", "--directory", str(directory), "--state", str(directory / "state"), *arguments])


def keep(directory: Path, report: Report) -> None:
    """What the daemon leaves of a run in its state directory."""
    files = HistoryFiles(directory / "state", -1)
    files.open()
    name = report.runs[0].run
    files.publish({name: report})


def test_text_is_for_people(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(directory) == 0
    out = capsys.readouterr().out
    assert out.startswith("12.1 % lost")
    assert "healthy: 587 steps" in out


def test_json_is_the_report(directory: Path, tmp_path: Path) -> None:
    assert call(directory, "--format", "json", "-o", str(tmp_path / "out.json")) == 0
    assert json.loads((tmp_path / "out.json").read_text())["version"] == 1


def test_html_is_the_page_with_the_report_in_it(directory: Path, tmp_path: Path) -> None:
    assert call(directory, "--format", "html", "-o", str(tmp_path / "out.html")) == 0
    text = (tmp_path / "out.html").read_text()
    assert text.startswith("<!DOCTYPE html>")
    assert "train.py-3f2a91c0" in text


def kept_steps(directory: Path, run: str, rows: list[StepRow]) -> None:
    """Two segments of the finest tier, as the daemon writes them."""
    folder = directory / "state" / PUBLISHED / history.STEPS / run
    folder.mkdir(parents=True)
    for number, part in ((1, rows[:2]), (2, rows[2:])):
        name = str(history.SegmentName("0", "step", number))
        (folder / name).write_text(history.header(history.STEPS) + "".join(map(history.step_line, part)))


def steps_of(html: str) -> list[dict[str, object]]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', html, re.DOTALL)
    assert found is not None
    told: list[dict[str, object]] = json.loads(found[1])["steps"]
    return told


ROWS = [StepRow(reports.START + at, 0.5, 1, 0.5, 0.5, {"compute": 0.5}) for at in range(5)]


def test_pages_and_traces_have_the_steps_that_are_kept(directory: Path, tmp_path: Path) -> None:
    kept_steps(directory, "train.py-3f2a91c0", ROWS)
    assert call(directory, "--format", "html", "-o", str(tmp_path / "out.html")) == 0
    [told] = steps_of((tmp_path / "out.html").read_text())
    assert told == {"run": "train.py-3f2a91c0", "rank": "0", "rows": [dataclasses.asdict(row) for row in ROWS]}
    assert call(directory, "--format", "perfetto", "-o", str(tmp_path / "out.json")) == 0
    events = json.loads((tmp_path / "out.json").read_text())["traceEvents"]
    assert sum(event["name"] == "step" for event in events) == 5


def test_a_trace_is_added_to_a_profile_on_its_axis(directory: Path, tmp_path: Path) -> None:
    profile = {"baseTimeNanoseconds": 5_000_000_000, "traceEvents": [{"name": "theirs", "ts": 1}], "kept": 1}
    for path, data in (
        (tmp_path / "profile.json", json.dumps(profile).encode()),
        (tmp_path / "profile.json.gz", gzip.compress(json.dumps(profile).encode())),
    ):
        path.write_bytes(data)
        assert call(directory, "--format", "perfetto", "--merge", str(path), "-o", str(tmp_path / "both.json")) == 0
        both = json.loads((tmp_path / "both.json").read_text())
        assert (both["kept"], both["baseTimeNanoseconds"]) == (1, 5_000_000_000)
        assert both["traceEvents"][0]["name"] == "theirs"
        [first] = [event for event in both["traceEvents"] if event["name"] == "startup"][:1]
        assert first["ts"] / 1e6 + 5 == pytest.approx(reports.START, abs=60)


@pytest.mark.parametrize("base", [None, 1 << 90, -(10**400), 1.5], ids=["none", "large", "negative", "fraction"])
def test_what_a_profile_has_that_is_no_number_is_null_in_the_trace(
    directory: Path, tmp_path: Path, base: float | None
) -> None:
    """A base time that no clock has counts from 1970."""
    profile, both = tmp_path / "profile.json", tmp_path / "both.json"
    theirs = {"name": "theirs", "ts": math.inf, "args": {"a": math.nan}}
    told = json.dumps({"baseTimeNanoseconds": base, "traceEvents": [theirs]})
    profile.write_text(told.replace("Infinity", "1e999"))
    assert call(directory, "--format", "perfetto", "--merge", str(profile), "-o", str(both)) == 0
    events = json.loads(both.read_text(), parse_constant=pytest.fail)["traceEvents"]
    assert events[0] == {"name": "theirs", "ts": None, "args": {"a": None}}
    [first] = [event for event in events if event["name"] == "startup"][:1]
    assert first["ts"] / 1e6 == pytest.approx(reports.START, abs=60)


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"traceEvents": 1}', "\x1f\x8bno gzip", "[" * 100_000],
    ids=["empty", "list", "object", "number", "cut", "deep"],
)
def test_what_is_no_profile_is_not_merged(
    directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    (tmp_path / "profile.json").write_text(text, encoding="latin-1")
    assert call(directory, "--format", "perfetto", "--merge", str(tmp_path / "profile.json")) == 1
    assert "profile.json" in capsys.readouterr().err


def test_merging_is_for_traces_only(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(directory, "--merge", "x") == 2
    assert "--format perfetto" in capsys.readouterr().err


def test_a_report_file_of_run_takes_every_form(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "run.json"
    file.write_text(wire.encode(reports.stalled()))
    nowhere = tmp_path / "nowhere"
    assert call(nowhere, "--input", str(file)) == 0
    assert "12.1 % lost" in capsys.readouterr().out
    assert call(nowhere, "--input", str(file), "--format", "html", "-o", str(tmp_path / "run.html")) == 0
    assert "train.py-3f2a91c0" in (tmp_path / "run.html").read_text()
    file.write_text("[]")
    for path in (file, tmp_path / "missing.json"):
        assert call(nowhere, "--input", str(path)) == 1
        assert str(path) in capsys.readouterr().err


def test_one_run_by_the_beginning_of_its_name(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(directory, "--run", "train.py-3f") == 0
    assert "healthy" not in capsys.readouterr().out


@pytest.mark.parametrize("job", ["14", "12_3", "12", "14.0"])
def test_the_runs_of_a_slurm_job(directory: Path, capsys: pytest.CaptureFixture[str], job: str) -> None:
    """By the job, the array's task, the array, and the step."""
    made = reports.stalled()
    made.runs[0].run = "14.0-3f2a91c0"
    made.runs[0].labels = {"slurm_job": "14", "slurm_job_name": "sweep", "slurm_array_task": "12_3"}
    made.runs += reports.healthy().runs
    publish(directory, made)
    assert call(directory, "--slurm-job", job) == 0
    out = capsys.readouterr().out
    assert "Slurm job 12_3 sweep" in out
    assert "healthy" not in out
    assert call(directory, "--slurm-job", "1") == 1
    assert "no run '1'" in capsys.readouterr().err


@pytest.mark.parametrize("pod", ["trainer-0", "team-a/trainer-0", "6f1b0c9e"])
def test_the_runs_of_a_pod(directory: Path, capsys: pytest.CaptureFixture[str], pod: str) -> None:
    made = reports.stalled()
    made.runs[0].labels = {
        "pod_uid": "6f1b0c9e", "namespace": "team-a", "pod": "trainer-0", "container_name": "main",
    }  # fmt: skip
    made.runs += reports.healthy().runs
    publish(directory, made)
    assert call(directory, "--pod", pod) == 0
    out = capsys.readouterr().out
    assert "pod team-a/trainer-0/main" in out
    assert "healthy" not in out
    assert call(directory, "--pod", "team-b/trainer-0") == 1


def test_an_unknown_run_is_told_with_the_known_ones(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(directory, "--run", "other") == 1
    assert "train.py-3f2a91c0, train.py-00000001" in capsys.readouterr().err


def test_since_leaves_out_what_was_before() -> None:
    made = reports.stalled()
    made.runs += reports.healthy().runs
    later = verb.later(made, reports.START + 150)
    assert [run.run for run in later.runs] == ["train.py-3f2a91c0"]
    rank = later.runs[0].ranks[0]
    assert [stall.id for stall in rank.stalls] == ["s2", "s3", "w0"]
    assert [saved.path for saved in rank.checkpoints] == ["/data/async.pt"]
    assert rank.warnings == []
    assert len(made.runs[0].ranks[0].stalls) == 5


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("30m", 1800), ("2h", 7200), ("1.5d", 129600)])
def test_durations(text: str, seconds: float) -> None:
    assert verb.since(text) == seconds


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("--since", "yesterday"), "90s, 30m, 2h, 7d"),
        (("--format", "pdf"), "there are: text, json, html, perfetto"),
    ],
)
def test_what_cannot_be_had_is_said(
    directory: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], why: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        call(directory, *arguments)
    assert ended.value.code == 2
    assert why in capsys.readouterr().err


def test_without_a_daemon_it_says_how_to_get_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(tmp_path) == 1
    assert "systemctl start trainprobe" in capsys.readouterr().err


def test_without_a_daemon_what_was_kept_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keep(tmp_path, reports.healthy())
    assert call(tmp_path) == 0
    out, err = capsys.readouterr()
    assert "healthy: 587 steps" in out
    assert "no daemon runs; this is what was kept" in err


def test_since_asks_the_history_beside_the_daemon(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A run of before the daemon's restart, and those that go on; each once."""
    fresh = reports.stalled()
    fresh.runs += reports.healthy().runs
    fresh.generated = time.time()
    publish(directory, fresh)
    before = reports.healthy()
    before.runs[0].run = "before.py-0badcafe"
    before.runs[0].ended = time.time() - 600
    keep(directory, before)
    stale = reports.stalled()
    stale.generated = 1.0
    stale.runs[0].ranks[0].steps.count = 1
    keep(directory, stale)
    assert call(directory, "--format", "json", "-o", str(directory / "now.json")) == 0
    assert call(directory, "--since", "9999d", "--format", "json", "-o", str(directory / "all.json")) == 0
    now, every = (wire.decode((directory / name).read_bytes()) for name in ("now.json", "all.json"))
    assert "before.py-0badcafe" not in {run.run for run in now.runs}
    assert sorted(run.run for run in every.runs) == sorted(["before.py-0badcafe", *(run.run for run in now.runs)])
    assert all(run.ranks[0].steps.count > 1 for run in every.runs)
    assert call(directory, "--run", "before.py") == 0
    assert "healthy" in capsys.readouterr().out


def test_a_run_that_leaves_the_history_meanwhile_is_left_out(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The daemon removes the oldest ones when it wants room: their names were listed, and are no more."""
    keep(directory, reports.healthy())
    [run] = (directory / "state" / PUBLISHED / history.RUNS).glob("*.json")
    run.with_name("gone-0badcafe.json").symlink_to("nowhere")
    assert call(directory, "--since", "9999d") == 0
    assert "healthy" in capsys.readouterr().out


@pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user needs root")
def test_an_owner_reads_his_post_mortem_without_root_and_nobody_elses() -> None:
    with tempfile.TemporaryDirectory(prefix="trainprobe-owner-") as made:
        directory = Path(made)
        directory.chmod(0o711)
        files = HistoryFiles(directory / "state", -1)
        files.open()
        (directory / "run").mkdir(mode=0o751)
        for uid, report in ((4242, reports.healthy()), (4243, reports.stalled())):
            files.publish({report.runs[0].run: report})
            files.publish_to(uid, [report.runs[0].run])
        told = as_user(4242, directory)
        assert "healthy: 587 steps" in told
        assert "train.py-3f2a91c0" not in told
        assert "no daemon publishes here" in as_user(4244, directory)


@pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user needs root")
def test_an_owner_who_can_be_given_no_file_is_told_why() -> None:
    with reachable() as directory, mounted("ramfs", directory / "run"):
        publisher = Publisher(directory / "run")
        publisher.open()
        publisher.publish(dataclasses.replace(reports.healthy(), runs=[Run("r", [], "4242", "/", 1.0)]), NS)
        told = as_user(4242, directory)
        assert "without POSIX ACLs" in told
        assert "sudo trainprobe report" in told
        publisher.close()


def as_user(uid: int, directory: Path) -> str:
    """What `trainprobe report` says to a user."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.setgroups([])
        os.setgid(uid)
        os.setuid(uid)
        os.dup2(writing, 1)
        os.dup2(writing, 2)
        sys.stdout = sys.stderr = open(writing, "w")  # noqa: SIM115 - the process ends at once
        code = main(["report", "--directory", str(directory / "run"), "--state", str(directory / "state")])
        sys.stdout.flush()
        os._exit(code)
    os.close(writing)
    with open(reading) as said:
        text = said.read()
    os.waitpid(child, 0)
    return text


def test_an_owner_sees_his_own(
    directory: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root may read everything, so the refusal is played."""
    users = directory / "users"
    users.mkdir()
    (users / "4242.json").write_text(wire.encode(reports.healthy()))
    read = published.decoded

    def refusing(path: Path) -> Report:
        if path.name == "report.json":
            raise PermissionError(13, "Permission denied", str(path))
        return read(path)

    monkeypatch.setattr(published, "decoded", refusing)
    monkeypatch.setattr(os, "getuid", lambda: 4242)
    assert call(directory) == 0
    assert capsys.readouterr().out.startswith("healthy")
    monkeypatch.setattr(os, "getuid", lambda: 4243)
    assert call(directory) == 3
    assert "group trainprobe" in capsys.readouterr().err


def test_an_old_report_is_called_old(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """kill -9 leaves the last one behind."""
    assert call(directory) == 0
    assert "has published nothing for" in capsys.readouterr().err


def test_an_old_report_is_old_also_after_the_clock_was_set_back(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What the daemon wrote last before it was killed seems to be of the hour to come."""
    made = dataclasses.replace(
        reports.stalled(), generated=time.time() + 3600, generated_monotonic=time.monotonic() - 60
    )
    publish(directory, made)
    assert call(directory) == 0
    assert "has published nothing for 60." in capsys.readouterr().err


def test_a_new_report_is_new_also_after_the_clock_was_set_forward(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    publish(directory, dataclasses.replace(reports.stalled(), generated_monotonic=time.monotonic()))
    assert call(directory) == 0
    assert capsys.readouterr().err == ""


def test_what_is_no_report_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "report.json").write_text('{"version": 7}')
    assert call(tmp_path) == 1
    assert "it is of version 7, and this program reads version 1" in capsys.readouterr().err


def as_of(report: Report, age: float) -> Report:
    """The report, made so many seconds ago."""
    return dataclasses.replace(report, generated=time.time() - age, generated_monotonic=time.monotonic() - age)


def test_who_opens_an_old_report_gets_the_one_that_the_daemon_then_makes(tmp_path: Path) -> None:
    """As the daemon does it: it looks when its report is opened, and tells anew."""
    age = random.uniform(4, 40)
    publish(tmp_path, as_of(reports.stalled(), age))
    readers = Readers()
    readers.follow(str(tmp_path / "report.json"))

    def tell_anew() -> None:
        select.select([readers.fileno()], [], [], 10)
        publish(tmp_path, as_of(reports.healthy(), 0.0))

    daemon = threading.Thread(target=tell_anew)
    daemon.start()
    found = published.fresh(tmp_path)
    daemon.join()
    readers.close()
    assert [run.run for run in found.runs] == [run.run for run in reports.healthy().runs]


@pytest.mark.parametrize("age", [0.0, 2.0, 50.0], ids=["new", "of this moment", "of a daemon that is gone"])
def test_for_no_other_is_waited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, age: float) -> None:
    publish(tmp_path, as_of(reports.stalled(), age))
    monkeypatch.setattr(published.time, "sleep", lambda _: pytest.fail("it waited"))
    assert published.fresh(tmp_path).runs


def test_for_that_of_a_host_where_nobody_trains_is_not_waited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is written each ten seconds, whoever reads it."""
    publish(tmp_path, as_of(dataclasses.replace(reports.healthy(), runs=[]), 8.0))
    monkeypatch.setattr(published.time, "sleep", lambda _: pytest.fail("it waited"))
    assert published.fresh(tmp_path).runs == []


def test_a_daemon_that_makes_none_is_not_waited_for_without_end(tmp_path: Path) -> None:
    publish(tmp_path, as_of(reports.stalled(), 10.0))
    began = time.monotonic()
    assert published.fresh(tmp_path).runs
    assert time.monotonic() - began < 10 * published.ANEW_SECONDS
