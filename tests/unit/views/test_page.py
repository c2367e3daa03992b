"""The page as text: it needs nothing else, and what a training calls itself stays data in it."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.cli import reports
from trainprobe.model.cause import Cause, Phase, State
from trainprobe.text.page_words import said_by
from trainprobe.views import page, palette
from trainprobe.wire import report as wire


class Elements(HTMLParser):
    """Every element with its attributes and, for scripts and styles, its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None], str]] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs), ""))

    def handle_endtag(self, tag: str) -> None:
        self.found.append(("/" + tag, {}, ""))

    def handle_data(self, data: str) -> None:
        if self.found:
            tag, attributes, text = self.found[-1]
            self.found[-1] = (tag, attributes, text + data)

    def texts(self, tag: str, **having: str) -> list[str]:
        return [t for name, given, t in self.found if name == tag and having.items() <= given.items()]


def embedded(html: str) -> dict[str, object]:
    [text] = Elements(html).texts("script", id="data")
    told: dict[str, object] = json.loads(text)
    return told


def test_every_key_has_a_name_and_a_colour() -> None:
    """A cause that is added later must not be drawn without either."""
    assert palette.CAUSES.keys() == set(Cause)
    assert palette.STATES.keys() == set(State)
    assert palette.PHASES.keys() == set(Phase)
    for one in (*palette.CAUSES.values(), *palette.STATES.values(), *palette.PHASES.values()):
        assert one.title
        assert re.fullmatch(r"#[0-9a-f]{6}", one.light)
        assert re.fullmatch(r"#[0-9a-f]{6}", one.dark)


@pytest.mark.parametrize(
    "html", [page.live().html, page.token_page().html, page.mailed(wire.encode(reports.stalled()))]
)
def test_nothing_is_fetched_from_elsewhere(html: str) -> None:
    for tag, attributes, _ in Elements(html).found:
        for name in ("src", "href", "action", "srcset", "poster", "data"):
            value = attributes.get(name)
            assert value is None or value.startswith(("data:", "#")), (tag, value)
    assert not re.search(r"@import|url\((?!data:)", html)


@pytest.mark.parametrize("made", [page.live(), page.token_page()])
def test_the_policy_knows_the_very_script_and_style(made: page.Page) -> None:
    elements = Elements(made.html)
    [script] = [text for tag, given, text in elements.found if tag == "script" and "type" not in given]
    [style] = elements.texts("style")
    for kind, text in (("script", script), ("style", style)):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in made.policy
    assert "unsafe" not in made.policy


def test_the_live_page_may_ask_its_own_server_only_and_the_mailed_one_nobody() -> None:
    assert "connect-src 'self'" in page.live().policy
    mailed = page.mailed(wire.encode(reports.healthy()))
    [policy] = [given["content"] for _, given, _ in Elements(mailed).found if "http-equiv" in given]
    assert policy is not None
    assert "connect-src 'none'" in policy


def test_the_mailed_page_holds_the_report_and_its_steps() -> None:
    rows = [{"start": 1.0, "seconds": 0.5, "count": 1, "min": 0.5, "max": 0.5, "states": {"compute": 0.5}}]
    text = wire.encode(reports.stalled())
    told = embedded(page.mailed(text, [("r", "0", rows)]))
    assert told == {"report": json.loads(text), "steps": [{"run": "r", "rank": "0", "rows": rows}]}


USUAL = [(tag, given) for tag, given, _ in Elements(page.mailed(wire.encode(reports.stalled()))).found]
HOSTILE = st.text(max_size=40) | st.sampled_from(
    ["</script><script>alert(1)</script>", "<!--<script>", "]]>", "{{SCRIPT}}", "\u2028x", "</SCRIPT >", "<img src=x>"]
)


@settings(max_examples=15)
@given(HOSTILE, HOSTILE)
def test_no_name_gets_out_of_its_place(name: str, path: str) -> None:
    report = reports.stalled()
    report.runs[0].run = report.runs[0].command[0] = name
    report.runs[0].ranks[0].stalls[0].summary = path
    text = wire.encode(report)
    html = page.mailed(text)
    shape = [(tag, given) for tag, given, _ in Elements(html).found]
    assert shape == USUAL
    assert embedded(html)["report"] == json.loads(text)


def test_the_mailed_page_holds_no_character_that_steers_a_display() -> None:
    evil = "\u202egpj.exe\u2066\u200f\u061c\u2028\ufeff"
    assert not set(evil) - set("gpj.exe") & set(page.mailed(f'{{"cwd":"{evil}"}}'))


@pytest.mark.parametrize("made", [page.live("zh").html, page.token_page("zh").html, page.mailed("{}", (), "zh")])
def test_a_page_in_chinese_has_a_translation_for_all_that_it_says(made: str) -> None:
    assert '<html lang="zh">' in made
    assert not re.search(r"\{\{=", made)
    script = Elements(made).texts("script")[-1]
    words = json.loads(next(iter(Elements(made).texts("script", id="words")), "{}"))
    assert said_by(script) - words.keys() == set()
    visible = [text for tag, given, text in Elements(made).found if tag not in ("script", "style", "title", "code")]
    labels = [given.get("aria-label") or "" for _, given, _ in Elements(made).found]
    english = [text for text in (*visible, *labels) if re.search(r"[a-z]{3,} [a-z]{3,}", text)]
    assert [text for text in english if "trainprobe report" not in text] == []


ATTRIBUTES = re.compile(
    r"class: |font = |getContext|querySelector|matchMedia|performance|createElement|addEventListener"
)
PROSE = re.compile(r'["`](?:[A-Z]?[a-z]+,? ){1,}[a-z]+[^"`]*["`]')


@pytest.mark.parametrize("name", page.SCRIPTS)
def test_no_script_says_anything_past_the_translations(name: str) -> None:
    """A sentence in a script stands in ``say``, ``word`` or ``many``."""
    said = said_by(script := page.asset(f"{name}.js"))
    code = re.sub(r"^\s*//.*$", "", script, flags=re.MULTILINE)
    for line in code.splitlines():
        for prose in PROSE.findall(re.sub(r'(?:class|"aria-[a-z]+"|role): ["`][^"`]*["`]', "", line)):
            text = prose.strip('"`')
            assert text in said or ATTRIBUTES.search(line), (name, prose)
