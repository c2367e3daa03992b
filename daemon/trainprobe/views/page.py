"""The page: put together from ``assets`` into one HTML text that needs nothing else, live or with its data in it.

Names from trainings are hostile. They reach the page as JSON only, are shown as text only, and the policy that goes
with the page lets no script run but the page's own, known by its hash.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Iterable
from functools import cache
from importlib import resources
from typing import Any

from trainprobe.model.dataclass import dataclass
from trainprobe.model.message import Message
from trainprobe.model.text import spelt_out
from trainprobe.text.catalogue import catalogue
from trainprobe.text.page_words import said_by
from trainprobe.text.render import Speaker
from trainprobe.views.palette import CAUSES, PHASES, STATES, Appearance

SCRIPTS = ("words", "format", "dom", "story", "feed", "axis", "lanes", "timeline", "panels", "details", "main")
"""In this order, in one scope."""
_APPEARANCES = {
    "cause": [(key.value, look) for key, look in CAUSES.items()],
    "state": [(key.value, look) for key, look in STATES.items()],
    "phase": [(key.value, look) for key, look in PHASES.items()],
}


@dataclass(frozen=True)
class Page:
    """HTML, and the Content-Security-Policy that belongs to it."""

    html: str
    policy: str


@cache
def live(language: str = "en") -> Page:
    """The page that asks the server it came from, at ``api/v1/…`` below its own address."""
    return _assembled("null", language, connects=True)


@cache
def token_page(language: str = "en") -> Page:
    """What is shown without the right token: it asks for it, or takes the one that this browser tab had."""
    script, style = asset("door.js"), asset("door.css")
    policy = _policy(script, style, connects=False)
    return Page(_filled(asset("door.html"), {"STYLE": style, "SCRIPT": script}, language), policy)


def mailed(report: str, steps: Iterable[tuple[str, str, list[dict[str, Any]]]] = (), language: str = "en") -> str:
    """The page as one file that holds ``report`` (JSON text, in that language) and step rows by (run, rank)."""
    rows = [{"run": run, "rank": rank, "rows": list(of)} for run, rank, of in steps]
    data = f'{{"report":{report},"steps":{json.dumps(rows)}}}'
    return _assembled(data, language, connects=False, in_head=True).html


def _assembled(data: str, language: str, *, connects: bool, in_head: bool = False) -> Page:
    script = '(() => {\n"use strict";\n' + "\n".join(asset(f"{name}.js") for name in SCRIPTS) + "\n})();\n"
    style = asset("page.css") + _colours()
    policy = _policy(script, style, connects=connects)
    meta = f'<meta http-equiv="Content-Security-Policy" content="{policy}">' if in_head else ""
    parts = {"POLICY": meta, "STYLE": style, "SCRIPT": script, "LOOK": _inert(_looks(language)), "DATA": _inert(data)}
    parts["WORDS"] = _inert(json.dumps(_words(script, language)))
    return Page(_filled(asset("page.html"), parts, language), policy)


def _filled(template: str, parts: dict[str, str], language: str) -> str:
    """Each ``{{NAME}}`` once, each ``{{=English text}}`` in the language; what is put in is not looked at again."""
    known = parts | {"LANGUAGE": language}
    say = Speaker(language).say
    pieces = (piece.split("}}", 1) for piece in template.split("{{")[1:])
    filled = (html.escape(say(name[1:])) if name.startswith("=") else known[name] for name, _ in pieces)
    rest = (piece.partition("}}")[2] for piece in template.split("{{")[1:])
    return template.partition("{{")[0] + "".join(map("".join, zip(filled, rest)))


def _words(script: str, language: str) -> dict[str, str]:
    """What the script says, by its English text."""
    known = {} if language == "en" else catalogue(language).programs
    return {text: known[text] for text in sorted(said_by(script)) if text in known}


def _inert(text: str) -> str:
    """JSON that cannot end the element it stands in, nor begin a comment there."""
    return spelt_out(text).replace("<", "\\u003c")


def _policy(script: str, style: str, *, connects: bool) -> str:
    connect = "'self'" if connects else "'none'"
    return (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; connect-src {connect}; "
        "img-src data:; base-uri 'none'; form-action 'self'"
    )


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _looks(language: str) -> str:
    speaker = Speaker(language)

    def title(kind: str, key: str, look: Appearance) -> str:
        return speaker.message(Message(f"cause.{key}"), look.title) if kind == "cause" else speaker.say(look.title)

    titles = {f"{kind}s": {key: title(kind, key, look) for key, look in looks} for kind, looks in _APPEARANCES.items()}
    return json.dumps(titles)


def _colours() -> str:
    named = (
        f"--{kind}-{key}:light-dark({look.light},{look.dark});"
        for kind, looks in _APPEARANCES.items()
        for key, look in looks
    )
    return f":root {{{''.join(named)}}}\n"


@cache
def asset(name: str) -> str:
    return (resources.files("trainprobe.views") / "assets" / name).read_text(encoding="utf-8")
