from __future__ import annotations

import json
import typing

import pytest
from hypothesis import given, settings

from tests.unit.wire import strategies
from trainprobe.model.cells import CELLS, LEAVES, Leaf, Region, RowKind, cell
from trainprobe.model.event import Event, MarkRow, RunEnded
from trainprobe.model.frame import Frame
from trainprobe.model.moment import Moment
from trainprobe.wire import codec, frame
from trainprobe.wire.codec import WireError

AT = Moment(5_000_000_000, 1_760_000_000_000_000_000)


@given(strategies.of_class(Frame))
@settings(max_examples=150, deadline=None)
def test_what_is_written_is_read_back_exactly(original: Frame) -> None:
    """Any frame at all: hostile names, huge counters, every kind of event."""
    line = frame.encode(original)
    assert "\n" not in line
    assert line.isascii()
    assert frame.decode(line) == original


def test_every_kind_of_event_has_a_tag() -> None:
    """An event without one would make the recorder fail in the middle of a run."""
    assert set(typing.get_args(Event)) == set(frame._EVENTS.values())


def row(**changes: object) -> MarkRow:
    cells = [0] * CELLS
    cells[cell(Region.BACKWARD, Leaf.CPU)] = 123
    values: dict[str, object] = {
        "kind": RowKind.OPTIMIZER,
        "at_ns": 1,
        "pid": 2,
        "tid": 2,
        "name": "Optimizer.step#SGD.step",
        "region": Region.STEP,
        "opened_ns": 0,
        "steps": 1,
        "fetches": 1,
        "inline_fetches": 0,
        "backwards": 1,
        "major_faults": 0,
        "cells": tuple(cells),
        "pool": (0,) * LEAVES,
        "files": (),
    }
    return MarkRow(**{**values, **changes})  # type: ignore[arg-type]


def test_a_step_row_is_short() -> None:
    """152 cells, of which one is in use: the line grows with the use, not with the room."""
    assert len(frame.encode(Frame(AT, events=(row(),)))) < 300


def test_unknown_fields_are_ignored() -> None:
    line = json.loads(frame.encode(Frame(AT, events=(RunEnded("r", 1),))))
    line["weather"] = "fine"
    line["events"][0]["mood"] = ["good"]
    assert frame.decode(json.dumps(line)) == Frame(AT, events=(RunEnded("r", 1),))


def test_events_of_an_unknown_kind_are_skipped() -> None:
    line = json.loads(frame.encode(Frame(AT, events=(RunEnded("r", 1),))))
    line["events"] = [{"e": "eclipse", "at_ns": 1}, *line["events"], "noise"]
    assert frame.decode(json.dumps(line)).events == (RunEnded("r", 1),)


@pytest.mark.parametrize("tag", ["[]", "{}", "7", "null"])
def test_a_tag_that_is_no_name_is_an_unknown_kind(tag: str) -> None:
    assert frame.decode(f'{{"at": [1, 2], "events": [{{"e": {tag}}}]}}').events == ()


@pytest.mark.parametrize(
    ("line", "where"),
    [
        ("", "not JSON"),
        ("[]", "expected an object"),
        ("{}", "expected a list"),
        ('{"at":[1]}', "at: expected two clocks"),
        ('{"at":[1,2.5]}', "1: expected a whole number"),
        ('{"at":[1,1e999]}', "expected a whole number"),
        ('{"at":[1,99999999999999999999999]}', "expected a whole number"),
        ('{"at":[1,2],"events":[{"e":"run_end","run":1,"at_ns":1}]}', "events.0.run: expected text"),
        ('{"at":[1,2],"events":[{"e":"run_end","run":"r"}]}', "events.0.at_ns: is missing"),
        ('{"at":[1,2],"cost":{"cpu_seconds":NaN,"rss_bytes":1}}', "cost.cpu_seconds: expected a number"),
        ('{"at":[1,2],"threads":[{"cells":[1000000000]}]}', "threads.0: no sparse list"),
        ('{"at":[1,2],"threads":[{"cells":[2,5,1]}]}', "threads.0: index 5 of 2"),
        ('{"at":[1,2],"threads":[{"cells":[2,-1,1]}]}', "threads.0: index -1 of 2"),
        ('{"at":[1,2],"threads":7}', "expected a list"),
        ("[" * 100_000, "not JSON"),
        ('{"at":[' + "9" * 10_000 + ",1]}", "not JSON"),
    ],
)
def test_hostile_lines_are_refused_with_the_place(line: str, where: str) -> None:
    with pytest.raises(WireError) as caught:
        frame.decode(line)
    assert where in str(caught.value)


def test_numbers_that_json_cannot_say_become_null() -> None:
    from trainprobe.model.sample import HostSample

    line = frame.encode(Frame(AT, host=HostSample(cpus=1, load=float("inf"))))
    assert json.loads(line)["host"] == {"cpus": 1, "load": None}


@pytest.mark.parametrize("odd", [True, 1.0, "1", None, 1 << 63, -(1 << 63) - 1, []])
@pytest.mark.parametrize("at", [0, 1, 2])
def test_a_list_of_whole_numbers_has_nothing_else_at_any_place(odd: object, at: int) -> None:
    values: list[object] = [-(1 << 63), 0, (1 << 63) - 1]
    assert codec.decode(list[int], values) == values
    values[at] = odd
    with pytest.raises(WireError, match=rf"^{at}: expected a whole number, found "):
        codec.decode(list[int], values)
