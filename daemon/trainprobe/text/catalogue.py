"""The translations of one language, read from its .po as gettext's tools write it.

The file itself is read: there is nothing to compile, and a reader of reports finds a message's text by its id alone,
without the code that declares it (gettext's own .mo asks for the English text as well).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import field
from functools import cache

from trainprobe.model.dataclass import dataclass

ANY = "zh"
LANGUAGES = ("en", ANY)
"""Each but English has its ``locale/LANGUAGE/LC_MESSAGES/trainprobe.po``, and the English texts are in any of them."""


VARIABLES = ("LC_ALL", "LC_MESSAGES", "LANG")


def chosen(asked: str | None, environment: Mapping[str, str]) -> str:
    """The language that was asked for, else the environment's where there is a catalogue for it, else English."""
    if asked:
        return asked
    set_ = next((environment[name] for name in VARIABLES if environment.get(name)), "")
    return next((language for language in LANGUAGES if set_.lower().startswith(language)), "en")


@dataclass(slots=True)
class Catalogue:
    """Of the messages of reports by their ids (msgctxt), of what the programs say by its English text (msgid)."""

    messages: dict[str, str] = field(default_factory=dict)
    programs: dict[str, str] = field(default_factory=dict)


@cache
def catalogue(language: str) -> Catalogue:
    """Raises OSError where it is not installed."""
    from importlib import resources  # who reads English has no use for it

    english = language == "en"
    file = resources.files(__package__) / "locale" / (ANY if english else language) / "LC_MESSAGES" / "trainprobe.po"
    po = file.read_text(encoding="utf-8")
    return Catalogue(originals(po)) if english else read(po)


def originals(po: str) -> dict[str, str]:
    return {entry["msgctxt"]: entry["msgid"] for entry in _entries(po) if "msgctxt" in entry}


def read(po: str) -> Catalogue:
    """A catalogue of the entries that have a translation. Of plurals, those of languages with at most two forms."""
    found = Catalogue()
    for entry in _entries(po):
        one = entry.get("msgstr") or entry.get("msgstr[0]")
        if not one or not entry.get("msgid"):
            continue
        if "msgctxt" in entry:
            found.messages[entry["msgctxt"]] = one
            continue
        found.programs[entry["msgid"]] = one
        if "msgid_plural" in entry:
            found.programs[entry["msgid_plural"]] = entry.get("msgstr[1]", one)
    return found


def _entries(po: str) -> Iterator[dict[str, str]]:
    """Each entry's texts by keyword."""
    for block in po.split("\n\n"):
        entry: dict[str, str] = {}
        keyword = ""
        for line in block.splitlines():
            if line and not line.startswith("#"):
                name, quote, rest = line.partition('"')
                keyword = name.strip() or keyword
                entry[keyword] = entry.get(keyword, "") + json.loads(quote + rest)
        yield entry
