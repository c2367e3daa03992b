"""What the guides of CONTRIBUTING have somebody add, all in one copy of the tree, whose checks then pass.

A cause is one Python file, one page and its translation; a gauge is a line of the catalogue where its value is in the
report already, and two more lines where it is not. Whatever else knows of them is generated.
"""

from __future__ import annotations

import json

import pytest

from tests.house.copy import Copy

pytestmark = pytest.mark.timeout(1800)
FILE = '''"""The driver waits for the answer of a name server."""

from __future__ import annotations

from collections.abc import Mapping

from trainprobe.causes import groups
from trainprobe.causes.advice import AdviceInput
from trainprobe.causes.base import Claim, Window, seconds, take_items
from trainprobe.causes.spec import CauseSpec, OrderedRule
from trainprobe.derive.steps.ledger import Item
from trainprobe.model.cause import Cause, Kind, State
from trainprobe.model.message import Message, template
from trainprobe.model.report import Evidence

PORT = ":53"
SUMMARY = template("dns_wait.summary", "waiting for the name server {peer}")
CHAIN = template("dns_wait.chain", "training thread waits for the name server {peer}")
WAITED = template("dns_wait.waited", "training thread waited for a name server")
CACHE = template("dns_wait.advice.cache", "run a caching resolver on the host: {seconds:.1f} s a look-up")


def claim(window: Window, left: Mapping[Item, float]) -> Claim | None:
    """State `network`, where the peer listens on the port of name servers."""
    seen = window.late.inspection
    taken = take_items(left, states=[State.NETWORK])
    if seen is None or not seen.peer.endswith(PORT) or not taken:
        return None
    waited = seconds(sum(taken.values()))
    return Claim(
        Cause.DNS_WAIT,
        taken,
        SUMMARY(peer=seen.peer),
        [CHAIN(peer=seen.peer)],
        [Evidence.of(WAITED(), waited, "s", window.driver_pid)],
    )


def _advice(f: AdviceInput) -> list[Message]:
    return [CACHE(seconds=f.each)]


SPEC = CauseSpec(
    "dns_wait",
    kinds=frozenset({Kind.STALL, Kind.BOTTLENECK}),
    title="waiting for a name server",
    colours=("#0e6f5c", "#2ee6c5"),
    group=groups.RANKS,
    rules=(OrderedRule(claim, stall=185, ordinary=95),),
    advice=_advice,
)
'''
PAGE = """# `dns_wait`: waiting for a name server

Kind: stall, bottleneck.

## What you see

A step is late when a new host is asked for.

## How it is found

The driver is blocked on a socket whose peer listens on port 53.

## What it is not

[`network`](network.md): any other server.

## What to do

Run a caching resolver on the host.
"""
CHINESE = """
#, python-brace-format
msgctxt "dns_wait.summary"
msgid "waiting for the name server {peer}"
msgstr "等待域名服务器 {peer}"

#, python-brace-format
msgctxt "dns_wait.chain"
msgid "training thread waits for the name server {peer}"
msgstr "训练线程等待域名服务器 {peer}"

msgctxt "cause.dns_wait"
msgid "waiting for a name server"
msgstr "等待域名服务器"

msgctxt "dns_wait.waited"
msgid "training thread waited for a name server"
msgstr "训练线程等待域名服务器"

#, python-brace-format
msgctxt "dns_wait.advice.cache"
msgid "run a caching resolver on the host: {seconds:.1f} s a look-up"
msgstr "在主机上运行带缓存的解析器：每次查询 {seconds:.1f} 秒"
"""
PO = "daemon/trainprobe/text/locale/zh/LC_MESSAGES/trainprobe.po"
ADVICE = "run a caching resolver on the host: 1.5 s a look-up"
JUDGED = """
from tests.builders.driver import Driver, moment, played
from tests.unit.pipeline.test_pipeline import rank_of
from trainprobe.model.cells import Leaf
from trainprobe.model.frame import Frame
from trainprobe.model.sample import Inspection

for peer in ("10.0.0.2:53", "10.0.0.2:443"):
    driver = Driver()
    driver.begin()
    driver.train(40)
    pipeline = played(driver)
    driver.spend(1.5, Leaf.SOCKET)
    seen = Inspection(driver.pid, driver.tid, "S", peer=peer)
    pipeline.step(Frame(moment(driver.now), threads=(driver.sample(Leaf.SOCKET),), inspections=(seen,)))
    driver.train(20)
    stall = rank_of(played(driver, pipeline), driver).stalls[-1]
    print(stall.cause, "|", stall.summary, "|", stall.advice[0])
"""
CATALOGUE = "exporters/trainprobe_exporters/catalogue.py"
KNOWN = """    _gauge("open_fds_peak", _of(), "Most file descriptors that were open at once.", at_end=_GONE,
           value=OfRank(lambda r: r.fds.open_peak)),"""
NEW = """    _gauge("log_files", _of(), "Log files that the rank has written.",
           value=OfRank(lambda r: r.counters.log_files)),"""
PUBLISHED = """
from dataclasses import replace
from tests.replay.cause_pages import replayed
from trainprobe.pipeline.report.restart_merge import continued
from trainprobe_exporters.families import SeriesTable

report = replayed("logging")
(rank,) = report.runs[0].ranks
unread = replace(rank, counters=replace(rank.counters, log_files=None))
both = [continued(replace(rank, exit=None), replace(one, exit=None)) for one in (rank, unread)]
print(*{one.counters.log_files for one in both} ^ {rank.counters.log_files})
report.runs[0].ended, rank.exit = None, None
series = SeriesTable()
series.fold(report)
values = {f.metric.name: f.samples[0][1] for f in series.families(report.generated, fresh=True)}
print(values["trainprobe_log_files"] >= 1, values["trainprobe_open_fds_peak"] >= values["trainprobe_open_fds"])
"""


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Copy:
    """With a cause and two gauges; everything is generated and checked."""
    copy = Copy.into(tmp_path_factory.mktemp("tree"))
    before = other_figures(copy)
    copy.insert(CATALOGUE, r"OfRank\(lambda r: r.counters.max_fds\)", KNOWN)
    assert len(copy.written) == 1
    copy.make("generated")
    copy.make("lint")
    drawn(copy, before, "trainprobe_open_fds_peak")

    copy.insert(CATALOGUE, r"OfRank\(lambda r: r.counters.max_fds\)", NEW)
    copy.insert("daemon/trainprobe/model/report.py", "    max_fds: int", "    log_files: int | None = None")
    built = "        log_files=len(rank.files.logs),"
    copy.insert("daemon/trainprobe/pipeline/report/counters.py", "max_fds=max_fds", built)
    assert len(copy.written) == 3
    copy.add("daemon/trainprobe/causes/stalls/dns_wait.py", FILE)
    copy.add("docs/causes/dns_wait.md", PAGE)
    copy.append(PO, CHINESE)
    assert len(copy.written) == 3 + 3
    copy.make("generated")
    copy.check()
    drawn(copy, before, "trainprobe_open_fds_peak", "trainprobe_log_files")
    return copy


def test_a_cause_is_one_file_one_page_and_its_translation(copy: Copy) -> None:
    stalls = json.loads(copy.text("grafana/dashboards/trainprobe-stalls.json"))
    (toggle,) = [one for one in stalls["annotations"]["list"] if one["name"] == "Ranks and network"]
    assert 'cause=~"collective_wait|network|dns_wait"' in toggle["expr"]
    coloured = {
        override["matcher"]["options"]
        for panel in stalls["panels"]
        for override in panel.get("fieldConfig", {}).get("overrides", ())
    }
    assert "dns_wait" in coloured
    assert 'Appearance("waiting for a name server", "#0e6f5c", "#2ee6c5")' in copy.text(
        "daemon/trainprobe/views/palette.py"
    )
    assert "- [`dns_wait`](dns_wait.md): waiting for a name server" in copy.text("docs/causes/index.md")
    assert "| Ranks and network | `collective_wait`, `network`, `dns_wait` |" in copy.text("docs/grafana.md")
    assert "dns_wait: stall bottleneck\n" in copy.text("tests/contract/causes.txt")
    by_name, by_another = copy.python(JUDGED).splitlines()
    assert by_name == f"dns_wait | waiting for the name server 10.0.0.2:53 | {ADVICE}"
    assert by_another.startswith("network | waiting on a socket to 10.0.0.2:443")


def test_a_gauges_value_is_published_and_survives_a_daemons_restart(copy: Copy) -> None:
    assert copy.python(PUBLISHED).split("\n")[:2] == ["", "True True"]


def other_figures(copy: Copy) -> set[str]:
    """What the row of panels that no dashboard draws by itself asks for."""
    stalls = json.loads(copy.text("grafana/dashboards/trainprobe-stalls.json"))
    rows = [panel for panel in stalls["panels"] if panel["title"] == "Other figures"]
    return {target["expr"] for row in rows for panel in row["panels"] for target in panel["targets"]}


def drawn(copy: Copy, before: set[str], *metrics: str) -> None:
    """Each on a panel of its own, and on the page of metrics."""
    added = other_figures(copy) - before
    assert len(added) == len(metrics)
    for metric in metrics:
        assert any(f"{metric}{{" in expr for expr in added)
        assert f"| `{metric}` | gauge | `run`, `rank` |" in copy.text("docs/metrics.md")
