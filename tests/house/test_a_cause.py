"""A cause is one Python file, one page and its translation; whatever else knows of it is generated."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.house.copy import Copy

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
CHAIN = template("dns_wait.chain", "driver waits for the name server {peer}")
WAITED = template("dns_wait.waited", "driver waited for a name server")
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
    light="#0e6f5c",
    dark="#2ee6c5",
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
msgid "driver waits for the name server {peer}"
msgstr "训练线程等待域名服务器 {peer}"

msgctxt "cause.dns_wait"
msgid "waiting for a name server"
msgstr "等待域名服务器"

msgctxt "dns_wait.waited"
msgid "driver waited for a name server"
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


@pytest.mark.timeout(1800)
def test_a_cause_is_one_file_one_page_and_its_translation(tmp_path: Path) -> None:
    copy = Copy.into(tmp_path)
    copy.add("daemon/trainprobe/causes/stalls/dns_wait.py", FILE)
    copy.add("docs/causes/dns_wait.md", PAGE)
    copy.append(PO, CHINESE)
    copy.make("generated")
    copy.check()
    assert len(copy.written) == 3

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
