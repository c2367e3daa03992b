from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings

from tests.unit.wire import strategies
from trainprobe.model.message import Message
from trainprobe.model.report import Checkpoint, Rank, Report, Run, Stall, Verdict, Warning_
from trainprobe.wire import report
from trainprobe.wire.codec import WireError, valid_text

# CONTRACT.md "Report JSON, version 1": object -> its keys. Additions are allowed, absences are not.
CONTRACT = {
    "": "version generated host sources events_lost cost runs",
    "host": "name kernel cpus memory_bytes",
    "cost": "cpu_seconds rss_bytes bpf_seconds share_of_run",
    "sources.bpf": "state reason remedy",
    "runs.0": "run command user cwd started ended labels ranks",
    "runs.0.ranks.0": (
        "rank world_size pid container_pid exit wall_seconds productive_seconds verdict bound steps phases ledger lost"
        " stalls bottlenecks warnings checkpoints workers memory fds gpus slow_files logs totals"
    ),
    "runs.0.ranks.0.verdict": "kind cause seconds share summary message",
    "runs.0.ranks.0.bound": "by why message",
    "runs.0.ranks.0.steps": (
        "count source reason median_seconds p99_seconds per_second variation_ratio drift_ratio_per_1000_steps message"
    ),
    "runs.0.ranks.0.phases.0": "phase start end",
    "runs.0.ranks.0.exit": "code signal reason message",
    "runs.0.ranks.0.stalls.0": (
        "id start end seconds cause shares first_step steps period summary chain evidence python_stack advice"
        " message chain_messages advice_messages"
    ),
    "runs.0.ranks.0.stalls.0.period": "steps seconds",
    "runs.0.ranks.0.stalls.0.message": "id params",
    "runs.0.ranks.0.stalls.0.evidence.0": "what value unit pid path key message",
    "runs.0.ranks.0.bottlenecks.0": "cause share seconds summary evidence advice message advice_messages",
    "runs.0.ranks.0.warnings.0": "cause time eta_seconds summary evidence advice message advice_messages",
    "runs.0.ranks.0.checkpoints.0": (
        "path start end bytes seconds write_seconds fsync_seconds rename_seconds serialize_seconds blocked_seconds"
        " by outcome error"
    ),
    "runs.0.ranks.0.workers": "started ended live exits",
    "runs.0.ranks.0.workers.exits.0": "pid time code signal reason sender_pid",
    "runs.0.ranks.0.memory": (
        "pss_bytes pss_peak_bytes swap_bytes shm_bytes shm_bytes_per_batch limit_bytes limit_scope"
    ),
    "runs.0.ranks.0.fds": "open_peak limit",
    "runs.0.ranks.0.gpus.0": "uuid index utilization_mean idle_seconds",
    "runs.0.ranks.0.slow_files.0": "path reads seconds",
    "runs.0.ranks.0.logs.0": "path bytes writes seconds",
    "runs.0.ranks.0.totals": "stalls checkpoints exits warnings",
}


@given(strategies.of_class(Report))
@settings(max_examples=60, deadline=None)
def test_a_report_is_read_back_as_it_was_written(original: Report) -> None:
    original.version = 1
    text = report.encode(original)
    again = report.decode(text)
    assert report.encode(again) == text
    if "\ufffd" not in text:
        assert again == original


@given(strategies.of_class(Report))
@settings(max_examples=40, deadline=None)
def test_it_is_valid_utf8_and_strict_json(original: Report) -> None:
    original.version = 1
    data = report.encode(original).encode("utf-8")

    def refuse(name: str) -> None:
        raise AssertionError(name)

    json.loads(data.decode("utf-8"), parse_constant=refuse)


def filled() -> Report:
    from trainprobe.model import report as m

    stall = Stall("a", 1.0, None, 2.0, "checkpoint", {"checkpoint": 2.0}, 30, 1, m.Period(30, 60.0))
    stall.evidence.append(m.Evidence("bytes", 7, "B"))
    stall.message = Message("checkpoint.summary", {"path": "/c.pt"})
    rank = Rank(0, 1, 77, exit=m.Exit(0, None), verdict=Verdict(), stalls=[stall])
    rank.phases.append(m.PhaseSpan("startup", 1.0, 2.0))
    rank.bottlenecks.append(m.Bottleneck("logging", 0.1, 1.0))
    rank.warnings.append(Warning_("fd_exhaustion", 1.0))
    rank.checkpoints.append(Checkpoint("/c.pt", 1.0, 2.0, 3, 1.0))
    rank.workers.exits.append(m.WorkerExit(5, 1.0, None, 9, "killed", 4))
    rank.gpus.append(m.Gpu("u", 0))
    rank.slow_files.append(m.SlowFile("/f", 1, 1.0))
    rank.logs.append(m.LogFile("/l", 1, 1, 1.0))
    run = Run("train.py-3f2a91c0", ["python", "train.py"], "ann", "/home/ann", 1.0, ranks=[rank])
    return Report(generated=2.0, sources={"bpf": m.Source("up")}, runs=[run])


@pytest.mark.parametrize("path", CONTRACT)
def test_every_name_of_the_contract_is_there(path: str) -> None:
    value = json.loads(report.encode(filled()))
    for key in filter(None, path.split(".")):
        value = value[int(key) if key.isdigit() else key]
    assert set(CONTRACT[path].split()) <= set(value)


def test_what_json_cannot_say_is_null() -> None:
    made = filled()
    made.runs[0].ranks[0].steps.p99_seconds = float("nan")
    evidence = made.runs[0].ranks[0].stalls[0].evidence
    evidence[0] = replace(evidence[0], value=float("-inf"))
    rank = json.loads(report.encode(made))["runs"][0]["ranks"][0]
    assert rank["steps"]["p99_seconds"] is None
    assert rank["stalls"][0]["evidence"][0]["value"] is None


def test_names_that_are_no_unicode_become_valid() -> None:
    made = filled()
    made.runs[0].cwd = b"/data/\xff\xfe".decode("utf-8", "surrogateescape")
    assert json.loads(report.encode(made).encode())["runs"][0]["cwd"] == "/data/\ufffd\ufffd"
    assert valid_text("plain é") == "plain é"


WITH_MEMORY = (
    '{"version": 1, "runs": [{"run": "a", "command": [], "user": "", "cwd": "", "started": 0, '
    '"memory": {"used_bytes": %s}}]}'
)


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("null", "it has no version"),
        ('{"version": 2}', "it is of version 2, and this program reads version 1"),
        ('{"version": 1, "runs": [{"run": "a"}]}', "runs.0.command: is missing"),
        ('{"version": 1, "generated": "now"}', "generated: expected a number"),
        ('{"version": 1, "sources": {"bpf": {"state": 1}}}', "sources.bpf.state: expected text"),
        ("\x00", "not JSON"),
        (WITH_MEMORY % "7.5", "runs.0.memory.used_bytes: expected text, found 7.5"),
        (WITH_MEMORY % ("[" * 500 + "]" * 500), "runs.0.memory.used_bytes: expected text, found list"),
        ('{"version": 1, "generated": 1e19}', "generated: expected a number, found 1e+19: too large"),
        ('{"version": 1, "generated": -1e308}', "generated: expected a number, found -1e+308: too large"),
        ('{"version": 1, "generated": 1%s}' % ("0" * 400), "too large"),
        ('{"version": 1, "events_lost": 9223372036854775808}', "events_lost: expected a whole number, found 922"),
    ],
)
def test_what_is_no_report_is_refused_with_the_place(text: str, where: str) -> None:
    with pytest.raises(WireError) as caught:
        report.decode(text)
    assert where in str(caught.value)


def test_what_is_read_can_be_multiplied_and_divided() -> None:
    """The largest number is 2^63; what is too small to be measured is 0."""
    assert report.decode('{"version": 1, "generated": 9223372036854775807}').generated == 2**63
    for small, read in (("1e-18", 1e-18), ("-1e-18", -1e-18), ("1e-19", 0.0), ("-5e-324", 0.0)):
        assert report.decode(f'{{"version": 1, "generated": {small}}}').generated == read


def test_a_later_version_one_may_say_more() -> None:
    value = json.loads(report.encode(filled()))
    value["moon"] = "full"
    value["runs"][0]["ranks"][0]["stalls"][0]["colour"] = "red"
    assert report.decode(json.dumps(value)) == filled()


def nested(depth: int) -> object:
    return {"id": "a", "params": {"part": nested(depth - 1)}} if depth else {"id": "a", "params": {}}


@pytest.mark.parametrize(
    ("message", "path"),
    [
        ("checkpoint", "message"),
        ({"params": {}}, "message"),
        ({"id": 7}, "message"),
        ({"id": "a", "params": []}, "message.params"),
        ({"id": "a", "params": {"x": True}}, "message.params.x"),
        ({"id": "a", "params": {"x": 1 << 64}}, "message.params.x"),
        ({"id": "a", "params": {"x": [[1]]}}, "message.params.x"),
        ({"id": "a", "params": {"x": {"id": "b", "params": 1}}}, "message.params.x.params"),
        (nested(200), "message.params.part"),
    ],
)
def test_a_message_that_is_none_is_refused_with_its_place(message: object, path: str) -> None:
    value = json.loads(report.encode(filled()))
    value["runs"][0]["ranks"][0]["stalls"][0]["message"] = message
    with pytest.raises(WireError) as error:
        report.decode(json.dumps(value))
    assert str(error.value).startswith(f"runs.0.ranks.0.stalls.0.{path}")


def test_a_message_keeps_its_parts() -> None:
    made = filled()
    parts = [Message("b", {"x": 1.5}), "c", 3]
    made.runs[0].ranks[0].stalls[0].message = Message("a", {"one": parts[0], "all": parts, "none": None})
    assert report.decode(report.encode(made)) == made
