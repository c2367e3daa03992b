"""The committed dashboards: what the code builds, on the grid, by the contract's names, with all toggles."""

from __future__ import annotations

import json
import re
from itertools import combinations
from typing import Any

import pytest

from grafana.causes import CAUSE_COLOURS, SHOWN, STATE_COLOURS, TOGGLES
from grafana.rules.alerts import ALERTS
from grafana.rules.build import GROUPS
from grafana.thresholds import Levels
from tests.observability.dashboards import (
    DIRECTORY,
    OF_SUMS,
    annotation_queries,
    dashboards,
    is_asked_of_prometheus,
    panel_queries,
    panels,
)
from tests.unit.exporters.reports import a_rank, a_report, a_run
from trainprobe.model.cause import KINDS, LOST, Kind, State
from trainprobe.model.report import Stall
from trainprobe_exporters.annotation import annotations_of
from trainprobe_exporters.catalogue import BY_NAME, METRICS

ALL = dashboards()
COLUMNS = 24
# The classic model is what every Grafana imports; its successor is for Grafana 12 and later alone.
pytestmark = pytest.mark.filterwarnings("ignore:Prefer using dashboardv2")
OF_RUNS = [uid for uid in ALL if uid != OF_SUMS]
RECORDED = {one.record for _, _, recordings in GROUPS for one in recordings}
SOURCE_ERRORS = "trainprobe_source_errors_total"  # at 0 with the source
OF_PROMETHEUS = {"up", "scrape_duration_seconds", "process_resident_memory_bytes"}

EXPORTER = "http://${__data.fields.instance}/"


def test_the_committed_files_are_what_the_code_builds() -> None:
    """If not: .venv/bin/python -m grafana.build"""
    pytest.importorskip("grafana_foundation_sdk", reason="the SDK needs Python 3.11")
    from grafana.build import built

    assert {path.name: path.read_text() for path in DIRECTORY.glob("*.json")} == built()


@pytest.mark.parametrize("uid", ALL)
def test_the_sdk_reads_back_what_it_wrote(uid: str) -> None:
    """Nothing in the files is unknown to the schema that the SDK was made from."""
    pytest.importorskip("grafana_foundation_sdk", reason="the SDK needs Python 3.11")
    from grafana_foundation_sdk.cog.encoder import JSONEncoder
    from grafana_foundation_sdk.cog.plugins import register_default_plugins
    from grafana_foundation_sdk.models.dashboard import Dashboard

    from grafana.dashboard import without_surplus

    register_default_plugins()  # so that it reads the options of each kind of panel too
    read = without_surplus(Dashboard.from_json(ALL[uid]))
    assert json.loads(json.dumps(read, cls=JSONEncoder)) == ALL[uid]


def test_addresses_are_those_that_links_and_alerts_use() -> None:
    assert {uid: d["uid"] for uid, d in ALL.items()} == {
        f"trainprobe-{name}": f"trainprobe-{name}" for name in ("fleet", "goodput", "hosts", "memory", "stalls")
    }
    assert all(re.fullmatch(r"[a-z-]{1,40}", uid) for uid in ALL)


@pytest.mark.parametrize("uid", ALL)
def test_each_panel_has_its_own_id_and_place(uid: str) -> None:
    everything = [*ALL[uid]["panels"], *(p for row in ALL[uid]["panels"] for p in row.get("panels", []))]
    ids = [panel["id"] for panel in everything]
    assert len(ids) == len(set(ids))
    assert min(ids) > 0
    for panel in everything:
        place = panel["gridPos"]
        assert 0 <= place["x"] < place["x"] + place["w"] <= COLUMNS, panel["title"]
    for one, other in combinations(ALL[uid]["panels"], 2):
        assert not _overlap(one["gridPos"], other["gridPos"]), (one["title"], other["title"])
    for row in ALL[uid]["panels"]:
        for one, other in combinations(row.get("panels", []), 2):
            assert not _overlap(one["gridPos"], other["gridPos"]), (one["title"], other["title"])


def _overlap(a: dict[str, int], b: dict[str, int]) -> bool:
    apart = (
        a["x"] + a["w"] <= b["x"] or b["x"] + b["w"] <= a["x"] or a["y"] + a["h"] <= b["y"] or b["y"] + b["h"] <= a["y"]
    )
    return not apart


@pytest.mark.parametrize("uid", ALL)
def test_lines_have_names_and_a_legend(uid: str) -> None:
    for panel in panels(ALL[uid]):
        refs = [target["refId"] for target in panel["targets"]]
        assert len(refs) == len(set(refs)), panel["title"]
        if panel["type"] == "timeseries":
            assert panel["options"]["legend"]["showLegend"] is True, panel["title"]
            assert all(t["legendFormat"] not in ("", "__auto") for t in panel["targets"]), panel["title"]


@pytest.mark.parametrize("uid", ALL)
def test_titles_tell_panels_apart(uid: str) -> None:
    titles = [panel["title"] for panel in panels(ALL[uid])]
    assert len(titles) == len(set(titles))


def test_queries_use_metrics_and_labels_of_the_catalogue() -> None:
    for asked in (*panel_queries(), *annotation_queries()):
        for name, matchers in re.findall(r"\b([a-z_][\w:]*)\{([^}]*)\}", asked.expr):
            if name in OF_PROMETHEUS or name in RECORDED:
                continue
            metric = BY_NAME.get(name) or BY_NAME.get(re.sub(r"_(bucket|sum|count)$", "", name))
            assert metric is not None, f"{asked}: {name}"
            labels = {matcher.split("=")[0].rstrip("!") for matcher in matchers.split(",")}
            assert labels <= {"job", "instance", *metric.labels}, f"{asked}: {name}"


def test_what_every_target_has_is_asked_of_ours_alone() -> None:
    """All jobs are every job of Prometheus, and what else it scrapes has these series too."""
    for asked in panel_queries():
        for name, matchers in re.findall(r"\b([a-z_]\w*)\{([^}]*)\}", asked.expr):
            if name in OF_PROMETHEUS:
                joined = "and on (job, instance) trainprobe_build_info{" in asked.expr
                assert joined or 'job=~"trainprobe.*"' in matchers.split(","), str(asked)


def test_events_are_counted_from_the_first_one_on() -> None:
    """A series that is not there before its first event has no increase then, and a rate no more."""
    late = {metric.name for metric in METRICS if re.search(r"_(errors|events_lost)_total$", metric.name)}
    late = {name for name in late if BY_NAME[name].own_labels and not BY_NAME[name].zero} - {SOURCE_ERRORS}
    assert len(late) == 3
    for asked in panel_queries():
        for name in late & set(re.findall(r"trainprobe_\w+", asked.expr)):
            assert re.search(rf"{name}\{{[^}}]*\}} unless {name}\{{", asked.expr), str(asked)


def test_every_metric_of_a_run_is_on_some_panel() -> None:
    """A metric that nobody draws is found only by those who know that it is there."""
    asked = " ".join(a.expr for a in (*panel_queries(), *annotation_queries()))
    drawn = set(re.findall(r"trainprobe_\w+", asked))
    drawn |= {re.sub(r"_bucket$", "", name) for name in drawn}
    assert {metric.name for metric in METRICS} - drawn == set()


def test_at_most_twelve_toggles_hold_each_cause_of_a_stall_once() -> None:
    assert len(TOGGLES) <= 12
    assert sorted(cause for toggle in TOGGLES for cause in toggle.causes) == sorted(
        cause for cause in KINDS if Kind.STALL in KINDS[cause]
    )
    assert len({toggle.colour for toggle in TOGGLES}) == len(TOGGLES)


@pytest.mark.parametrize("uid", OF_RUNS)
def test_causes_are_drawn_from_counters_on_every_time_panel(uid: str) -> None:
    listed = [a for a in ALL[uid]["annotations"]["list"] if is_asked_of_prometheus(a)]
    assert [a["name"] for a in listed] == [*(t.name for t in TOGGLES), "Phases", "Exact starts"]
    for annotation in listed:
        assert "filter" not in annotation, "all panels"
        assert annotation["target"]["expr"] == annotation["expr"], "Grafana before 12 and after ask the same"
        assert ", " not in annotation["tagKeys"], "split without trimming"
    for toggle, annotation in zip(TOGGLES, listed):
        assert annotation["iconColor"] == toggle.colour
        assert annotation["hide"] is False
        series = re.findall(r"(trainprobe_stall_seconds_total\{[^}]*\})( offset \$__interval)?", annotation["expr"])
        assert [offset for _, offset in series] == ["", " offset $__interval"]
        assert f'cause=~"{"|".join(toggle.causes)}"' in series[0][0] == series[1][0]
    starts = listed[-1]
    assert (starts["useValueForTime"], starts["hide"], starts["enable"]) == (True, True, False)


@pytest.mark.parametrize("uid", OF_RUNS)
def test_eight_switches_are_seen_at_first_and_the_others_are_in_the_menu(uid: str) -> None:
    switches = [a for a in ALL[uid]["annotations"]["list"] if not a["hide"]]
    shown = {a["name"] for a in switches if "placement" not in a}
    assert shown == set(SHOWN)
    assert len(shown) <= 8
    assert {a.get("placement") for a in switches if a["name"] not in shown} == {"inControlsMenu"}


def test_a_run_has_its_alerts_the_live_page_and_the_distribution_of_its_steps() -> None:
    every = {
        panel["title"]: panel for row in ALL["trainprobe-stalls"]["panels"] for panel in (row, *row.get("panels", []))
    }
    alerts = every["Alerts of this run"]
    assert (alerts["type"], alerts["options"]["alertInstanceLabelFilter"]) == ("alertlist", '{run="$run"}')
    assert every["Alerts"]["collapsed"] is False
    names = {alert.name for alerts in ALERTS.values() for alert in alerts}
    assert {name for name in names if alerts["options"]["alertName"] not in name} == set()
    heat = every["Step times"]
    assert (heat["type"], heat["targets"][0]["format"]) == ("heatmap", "heatmap")
    assert "trainprobe_step_duration_seconds_bucket" in heat["targets"][0]["expr"]
    links = {link["title"]: link.get("url", "") for link in ALL["trainprobe-stalls"]["links"]}
    assert links["Live page"] == "http://${host:raw}/"
    address, _, searched = links["Alerts and runbooks"].partition("?search=")
    assert address == "/alerting/list"
    assert {name for name in names if searched not in name} == set()


@pytest.mark.parametrize("uid", ["trainprobe-fleet", "trainprobe-hosts"])
def test_a_row_of_a_host_leads_to_its_own_live_page(uid: str) -> None:
    assert EXPORTER in {url for panel in panels(ALL[uid]) for url in _links(panel)}


@pytest.mark.parametrize("uid", OF_RUNS)
def test_regions_are_on_where_one_run_is_looked_at(uid: str) -> None:
    """On the others a click draws them: all causes of all runs would cover everything, and cost as much."""
    on = {a["name"] for a in ALL[uid]["annotations"]["list"] if a["enable"] and not a["builtIn"]}
    every = {*(toggle.name for toggle in TOGGLES), "Phases"}
    assert (
        on
        == {
            "trainprobe-stalls": every,
            "trainprobe-fleet": set(),
            "trainprobe-hosts": set(),
            "trainprobe-memory": {"Memory"},
        }[uid]
    )


@pytest.mark.parametrize("uid", OF_RUNS)
def test_regions_that_exporters_push_are_a_toggle_that_is_off(uid: str) -> None:
    (pushed,) = [
        a for a in ALL[uid]["annotations"]["list"] if a["datasource"]["type"] == "grafana" and not a["builtIn"]
    ]
    assert (pushed["enable"], pushed["hide"]) == (False, False)
    (annotation,) = annotations_of(
        a_report(a_run("$run", a_rank(stalls=[Stall("s", 1.0, 3.0, 2.0, "swap", {}, 1, 1)]))),
        minimum_seconds=1,
        details=False,
    )
    assert set(pushed["target"]["tags"]) <= set(annotation.tags), "an exporter gives these tags"
    assert pushed["target"]["type"] == "tags"


@pytest.mark.parametrize("uid", OF_RUNS)
def test_variables_are_those_of_all_dashboards(uid: str) -> None:
    names = [variable["name"] for variable in ALL[uid]["templating"]["list"]]
    assert names == ["datasource", "job", "host", "namespace", "pod", "slurm_job", "run", "rank"]


def test_the_dashboard_of_sums_asks_rules_alone_and_has_a_price() -> None:
    dashboard = ALL[OF_SUMS]
    assert [v["name"] for v in dashboard["templating"]["list"]] == ["datasource", "job", "user", "price"]
    assert [a["builtIn"] for a in dashboard["annotations"]["list"]] == [1], "no regions: it would ask for raw series"
    asked = [asked.expr for asked in panel_queries() if asked.dashboard == OF_SUMS]
    assert {name for expr in asked for name in re.findall(r"[\w:]*trainprobe_[\w:]+", expr)} <= RECORDED
    assert sum("$price" in expr for expr in asked) >= 5


def test_links_of_tables_lead_to_dashboards_that_exist() -> None:
    led = []
    for dashboard in ALL.values():
        for panel in panels(dashboard):
            for url in _links(panel):
                led.append(url)
                assert url == EXPORTER or re.match(r"/d/([a-z-]+)\?", url)[1] in ALL  # type: ignore[index]
                named = set(re.findall(r"\$\{__data\.fields\.(\w+)\}", url))
                columns = set(panel["transformations"][1]["options"]["renameByName"].values())
                assert named <= columns, f"{panel['title']}: the link reads {named} of {columns}"
    assert len(led) == 8


def _links(panel: dict[str, Any]) -> list[str]:
    found = [p for o in panel["fieldConfig"]["overrides"] for p in o["properties"] if p["id"] == "links"]
    return [link["url"] for properties in found for link in properties["value"]]


def test_a_panel_of_gpus_says_why_it_has_no_data() -> None:
    """Without a GPU "No data" would look like a fault."""
    said = set()
    for panel in (panel for dashboard in ALL.values() for panel in panels(dashboard)):
        asked = " ".join(target["expr"] for target in panel["targets"])
        names = set(re.findall(r"trainprobe_[a-z_0-9]+", asked)) - {"trainprobe_run_gpu_info"}
        if panel["type"] != "table" and names and all(name.startswith("trainprobe_gpu_") for name in names):
            said.add(panel["fieldConfig"]["defaults"].get("noValue", f"nothing: {panel['title']}"))
    assert said
    assert all(text.startswith("no GPU seen") for text in said), said


def test_each_cause_and_state_has_a_colour() -> None:
    assert set(CAUSE_COLOURS) == set(LOST)
    assert len(set(CAUSE_COLOURS.values())) == len(LOST)
    assert set(STATE_COLOURS) == set(State)
    assert all(re.fullmatch(r"#[0-9A-F]{6}", colour) for colour in (*CAUSE_COLOURS.values(), *STATE_COLOURS.values()))


@pytest.mark.parametrize(
    ("levels", "colours"),
    [(Levels(1, 2), ["green", "#EAB839", "red"]), (Levels(2, 1), ["red", "#EAB839", "green"])],
)
def test_levels_rise_or_fall(levels: Levels, colours: list[str]) -> None:
    values = [value for value, _ in levels.steps]
    assert values[0] is None
    assert sorted(values[1:]) == values[1:] == [1, 2]  # type: ignore[type-var]
    assert [colour for _, colour in levels.steps] == colours
