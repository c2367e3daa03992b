"""The page: put together from ``assets`` into one HTML text that needs nothing else, live or with its data in it.

Names from trainings are hostile. They reach the page as JSON only, are shown as text only, and the policy that goes
with the page lets no script run but the page's own, known by its hash.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from trainprobe.model.text import spelt_out
from trainprobe.views.look import CAUSES, PHASES, STATES, Look

SCRIPTS = ("format", "dom", "story", "feed", "axis", "lanes", "timeline", "panels", "details", "main")
"""In this order, in one scope."""


@dataclass(frozen=True)
class Page:
    """HTML, and the Content-Security-Policy that belongs to it."""

    html: str
    policy: str


@cache
def live() -> Page:
    """The page that asks the server it came from, at ``api/v1/…`` below its own address."""
    return _assembled("null", connects=True)


@cache
def door() -> Page:
    """What is shown without the right token: it asks for it, or takes the one that this browser tab had."""
    script, style = _asset("door.js"), _asset("door.css")
    policy = _policy(script, style, connects=False)
    return Page(_filled(_asset("door.html"), {"STYLE": style, "SCRIPT": script}), policy)


def mailed(report: str, steps: Iterable[tuple[str, str, list[dict[str, Any]]]] = ()) -> str:
    """The page as one file that holds ``report`` (JSON text) and step rows by (run, rank)."""
    rows = [{"run": run, "rank": rank, "rows": list(of)} for run, rank, of in steps]
    data = f'{{"report":{report},"steps":{json.dumps(rows)}}}'
    return _assembled(data, connects=False, in_head=True).html


def _assembled(data: str, *, connects: bool, in_head: bool = False) -> Page:
    script = '(() => {\n"use strict";\n' + "\n".join(_asset(f"{name}.js") for name in SCRIPTS) + "\n})();\n"
    style = _asset("page.css") + _colours()
    policy = _policy(script, style, connects=connects)
    meta = f'<meta http-equiv="Content-Security-Policy" content="{policy}">' if in_head else ""
    parts = {"POLICY": meta, "STYLE": style, "SCRIPT": script, "LOOK": _inert(_looks()), "DATA": _inert(data)}
    return Page(_filled(_asset("page.html"), parts), policy)


def _filled(template: str, parts: dict[str, str]) -> str:
    """Each ``{{NAME}}`` once; what is put in is not looked at again."""
    pieces = template.split("{{")
    return pieces[0] + "".join(parts[name] + rest for name, rest in (piece.split("}}", 1) for piece in pieces[1:]))


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


def _looks() -> str:
    kinds: dict[str, Iterable[tuple[str, Look]]] = {
        "causes": ((key.value, look) for key, look in CAUSES.items()),
        "states": ((key.value, look) for key, look in STATES.items()),
        "phases": ((key.value, look) for key, look in PHASES.items()),
    }
    return json.dumps({kind: {key: look.title for key, look in looks} for kind, looks in kinds.items()})


def _colours() -> str:
    named = [
        *((f"cause-{key.value}", look) for key, look in CAUSES.items()),
        *((f"state-{key.value}", look) for key, look in STATES.items()),
        *((f"phase-{key.value}", look) for key, look in PHASES.items()),
    ]
    return ":root {" + "".join(f"--{name}:light-dark({look.light},{look.dark});" for name, look in named) + "}\n"


@cache
def _asset(name: str) -> str:
    return (resources.files("trainprobe.views") / "assets" / name).read_text(encoding="utf-8")
