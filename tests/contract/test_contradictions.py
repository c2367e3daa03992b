"""The checker of contradictions finds each kind in a report that has it, and nothing in one that agrees with itself."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.builders.driver import Driver, moment, played
from tests.contract.contradictions import contradictions
from trainprobe.wire import report as wire

Json = dict[str, Any]


def report_of(stalls: int = 3) -> Json:
    driver = Driver()
    driver.begin()
    driver.train(40)
    for _ in range(stalls):
        driver.spend(1.2)
        driver.train(30)
    driver.exit()
    made: Json = json.loads(wire.encode(played(driver).report(moment(driver.now))))
    return made


def healthy(rank: Json) -> None:
    rank["verdict"]["message"] = {"id": "verdict.healthy", "params": {}}


def verdict(**values: object) -> Callable[[Json], None]:
    return lambda rank: rank["verdict"].update(values)


def changed(*path: str | int, to: object) -> Callable[[Json], None]:
    def change(rank: Json) -> None:
        place: Any = rank
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = to

    return change


def input_bound(rank: Json) -> None:
    rank["lost"], rank["stalls"], rank["bound"]["by"] = {}, [], "input"
    healthy(rank)


CASES: list[tuple[str, Callable[[Json], None]]] = [
    ("productive, phases and lost", changed("productive_seconds", to=1.0)),
    ("the ledger has", changed("ledger", "compute", to=99.0)),
    ("has 9.000 s in it", changed("phases", -1, "states", to={"compute": 9.0})),
    ("healthy, and 3.6", healthy),
    ("healthy, and input-bound", input_bound),
    ("which lost nothing", verdict(cause="logging")),
    ("verdict cpu_bound 9.0", verdict(seconds=9.0)),
    ("are not", verdict(share=0.9)),
    ("ended by", verdict(kind="end")),
    ("no step was seen", lambda rank: rank["verdict"].update(message={"id": "verdict.no_step", "params": {}})),
    ("no source of them", changed("steps", "source", to="none")),
    ("stalls in all", changed("totals", "stalls", to=0)),
    ("shares are", changed("stalls", 0, "seconds", to=2.0)),
    ("goes on, and the rank has ended", changed("stalls", 0, "end", to=None)),
    ("in stalls and ordinary steps", changed("lost", "cpu_bound", to=0.1)),
    ("and signal 9", changed("exit", "signal", to=9)),
    ("exit code 0, and killed", changed("exit", "ending", to="killed")),
    ("workers started", changed("workers", "ended", to=9)),
]


@pytest.mark.parametrize(("words", "break_it"), CASES)
def test_a_contradiction_is_found(words: str, break_it: Callable[[Json], None]) -> None:
    report = report_of()
    assert contradictions(report) == []
    broken = copy.deepcopy(report)
    break_it(broken["runs"][0]["ranks"][0])
    assert any(words in found for found in contradictions(broken)), contradictions(broken)


def test_advice_on_a_named_rank_where_none_is_named_is_found() -> None:
    report = report_of()
    stall = report["runs"][0]["ranks"][0]["stalls"][0]
    stall["advice_messages"] = [{"id": "collective_wait.advice.faster_rank", "params": {}}]
    assert any("none is named" in found for found in contradictions(report))
    stall["message"] = {"id": "collective_wait.late", "params": {"rank": 1}}
    assert contradictions(report) == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("healthy\n\nWhere the time went\n  startup   9.0 s  104 %  phase", "a share of 104 %"),
        ("healthy\nplain · still running · finished", "still running, and the run has ended"),
        ("no training step was seen\n", "and steps are counted"),
    ],
)
def test_a_text_that_contradicts_itself_is_found(text: str, words: str) -> None:
    assert any(words in found for found in contradictions(report_of(), text))
    assert contradictions(report_of(), "healthy\n\nWhere the time went\n  startup   9.0 s  100 %  phase") == []


def test_saves_that_were_waited_for_and_cost_nothing_are_found() -> None:
    report = report_of()
    rank = report["runs"][0]["ranks"][0]
    rank["checkpoints"], rank["totals"]["checkpoints"] = [{"end": 2.0, "blocked_seconds": 3.0}], 1
    assert any("are lost to them" in found for found in contradictions(report, "healthy"))


def setting(name: str, now: str, reason: str = "", proposed: str | None = None, gain: float = 0.0) -> Json:
    return {
        "gain_seconds": gain,
        "settings": [{"name": name, "now": now, "reason": reason, "proposed": proposed, "gain": gain}],
    }


@pytest.mark.parametrize(
    ("advice", "words"),
    [
        (setting("num_workers", "4"), "0 workers were ever started"),
        (setting("num_workers", "0", proposed="0"), "in the place of itself"),
        (setting("prefetch_factor", "2", gain=1e6), "a gain of"),
        (setting("log interval", "9 writes", "logging costs nothing here"), "are lost to logging"),
        (setting("evaluation interval", "none seen", "no evaluation was seen"), "of evaluation"),
    ],
)
def test_advice_that_contradicts_the_report_is_found(advice: Json, words: str) -> None:
    report = report_of()
    rank = report["runs"][0]["ranks"][0]
    if "log" in advice["settings"][0]["name"]:
        rank["lost"]["logging"] = 1.0
    if "evaluation" in advice["settings"][0]["name"]:
        rank["counters"]["phase_seconds"]["evaluation"] = 1.0
    assert any(words in found for found in contradictions(report, advice=advice))
    assert contradictions(report_of(), advice=setting("num_workers", "0")) == []


def test_two_intervals_for_one_save_and_one_that_takes_more_are_found() -> None:
    report = report_of()
    stall = report["runs"][0]["ranks"][0]["stalls"][0]
    params = {"better": 640, "every": 70, "share": 0.08, "setting": None}
    stall["cause"], stall["advice_messages"] = "checkpoint", [{"id": "checkpoint.advice.save_rarer", "params": params}]
    advice = setting("checkpoint interval", "every 70 steps")
    advice["settings"][0]["proposed"] = "970"
    assert any("970 is proposed, and the report says ['640']" in one for one in contradictions(report, advice=advice))
    params["better"] = 100
    assert any("is more than 1 % every 100" in one for one in contradictions(report, advice=advice))
