"""The simulated fleet: what its hosts serve is what an exporter would, within the bounds, and it goes on."""

from __future__ import annotations

import re

import pytest
from prometheus_client.parser import text_string_to_metric_families

from benchmarks.fleet.__main__ import SERIES_PER_HOST, problems
from benchmarks.fleet.asking import Asked
from benchmarks.fleet.hosts import COHORTS, Fleet, place_of
from benchmarks.fleet.measure import Found
from trainprobe_exporters.catalogue import MAX_SERIES_PER_RANK

BEGAN, LIFE = 1.8e9, 1200.0


def samples(fleet: Fleet, host: int, age: float) -> dict[tuple[str, str, str], float]:
    """Values of a host's series by name, run and rank; of several with these the last."""
    families = text_string_to_metric_families(fleet.text(host, BEGAN + age).decode())
    return {
        (one.name, one.labels.get("run", ""), one.labels.get("rank", "")): one.value
        for family in families
        for one in family.samples
    }


@pytest.mark.parametrize("host", [0, 5, 77])
def test_a_host_serves_as_many_series_as_the_contract_allows(host: int) -> None:
    lines = [line for line in Fleet(BEGAN, LIFE, 15).text(host, BEGAN + 60).decode().splitlines() if line[0] != "#"]
    ranks = [line for line in lines if ',rank="' in line or '{rank="' in line]
    assert len(ranks) == 8 * MAX_SERIES_PER_RANK, "the worst that a host can be"
    assert len(lines) <= SERIES_PER_HOST


def test_the_hosts_of_a_run_share_its_name_and_count_its_ranks_on() -> None:
    fleet, hosts = Fleet(BEGAN, LIFE, 15), [3, 13]
    assert [place_of(host).number for host in hosts] == [0, 1]
    runs = [{run for _, run, _ in samples(fleet, host, 60)} - {""} for host in hosts]
    assert runs[0] == runs[1]
    ranks = [{rank for _, _, rank in samples(fleet, host, 60)} - {""} for host in hosts]
    assert ranks == [{str(rank) for rank in range(8)}, {str(rank) for rank in range(8, 16)}]
    assert b"hhhhhhhh" not in fleet.text(3, BEGAN + 60)


def test_counters_grow_and_runs_come_and_go() -> None:
    fleet = Fleet(BEGAN, LIFE, 15)
    first, second, after = (samples(fleet, 4, age) for age in (60, 120, LIFE / 2 + 60))
    steps = {key for key in first if key[0] == "trainprobe_steps_total"}
    assert steps
    assert all(second[key] > first[key] for key in steps)
    before, later = ({run for _, run, _ in one if run} for one in (second, after))
    assert (len(before), len(later)) == (1, 2), "the run that has ended lingers"
    assert before < later


def test_a_cohort_has_a_late_rank_that_waits_for_nobody() -> None:
    host = next(number for number, cohort in enumerate(COHORTS) if cohort.late)
    text = Fleet(BEGAN, LIFE, 15).text(host, BEGAN + 60).decode()
    assert 'rank="2",state="collective"' in text
    assert 'rank="3",state="collective"' not in text
    (late,) = re.findall(r'trainprobe_lost_seconds_total\{[^}]*rank="3",cause="data_inline"\} (\S+)', text)
    assert float(late) > 0


def test_what_is_over_a_limit_is_a_problem() -> None:
    fine = Found(1, hosts_up=1, series_per_rank=160, series_per_host=1650, queries=[Asked("q", "up", 0.5)])
    assert [*problems(fine)] == []
    over = Found(
        2, hosts_up=1, series_per_rank=161, series_per_host=1651, rule_seconds={"a": 40.0, "b": 40.0},
        rule_errors={"r": "many-to-many"}, queries=[Asked("q", "up", 1.5), Asked("e", "up", error="too many samples")],
    )  # fmt: skip
    assert len([*problems(over)]) == 7
