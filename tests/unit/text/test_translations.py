"""Each language says all that the sources say, nothing else, and with the same values."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from babel.messages.catalog import Catalog, Message
from babel.messages.extract import extract_from_dir
from babel.messages.pofile import read_po

from tests.unit.text.sentences import KEYWORDS, extract, extract_page
from trainprobe.model.message import places
from trainprobe.text.catalogue import LANGUAGES, catalogue

ROOT = Path(__file__).parents[3]
LOCALE = ROOT / "daemon" / "trainprobe" / "text" / "locale"
OTHERS = [language for language in LANGUAGES if language != "en"]
WIDE = re.compile("[\u3000-\u303f\u4e00-\u9fff\uff00-\uffef]")
PERCENT = re.compile(r"%(?:\(\w+\))?[sr]")
MEND = "run `make text`, then write what is empty in"
Key = tuple["str | None", str]


def key(context: str | None, text: str | tuple[str, ...] | list[str]) -> Key:
    return context, text if isinstance(text, str) else text[0]


@cache
def said() -> dict[Key, str]:
    """What the sources say, with the place where they do."""
    methods = [("**.py", extract), ("**.js", extract_page), ("**.html", extract_page)]
    return {
        key(context, text): f"{path}:{line}"
        for source in ("daemon/trainprobe", "exporters/trainprobe_exporters")
        for path, line, text, _, context in extract_from_dir(
            str(ROOT / source), method_map=methods, keywords=KEYWORDS, comment_tags=()
        )
    }


@cache
def translations(language: str) -> Catalog:
    with (LOCALE / language / "LC_MESSAGES" / "trainprobe.po").open("rb") as file:
        return read_po(file, locale=language, abort_invalid=True)


def entries(language: str) -> list[Message]:
    return [entry for entry in translations(language) if entry.id]


def test_each_language_has_its_catalogue() -> None:
    assert sorted(path.name for path in LOCALE.iterdir()) == OTHERS


@pytest.mark.parametrize("language", OTHERS)
def test_all_that_the_sources_say_is_translated(language: str) -> None:
    known = {key(entry.context, entry.id) for entry in entries(language) if entry.string and not entry.fuzzy}
    missing = {f"{where}: {text!r}" for text, where in said().items() if text not in known}
    assert not missing, f"{MEND} {LOCALE / language}:\n" + "\n".join(sorted(missing))


@pytest.mark.parametrize("language", OTHERS)
def test_nothing_is_translated_that_nobody_says(language: str) -> None:
    stale = {key(entry.context, entry.id) for entry in entries(language)} - said().keys()
    assert not stale, f"{MEND} {LOCALE / language}"


@pytest.mark.parametrize("language", OTHERS)
def test_a_translation_has_the_places_of_its_original(language: str) -> None:
    for entry in entries(language):
        originals, texts = ([one] if isinstance(one, str) else list(one) for one in (entry.id, entry.string))
        for original, text in zip(originals, [*texts, *texts]):
            assert places(text) == places(original), original
            assert sorted(PERCENT.findall(text)) == sorted(PERCENT.findall(original)), original


@pytest.mark.parametrize("language", OTHERS)
def test_what_is_read_at_run_time_is_what_babel_reads(language: str) -> None:
    read = catalogue(language)
    for entry in entries(language):
        forms = [entry.id] if isinstance(entry.id, str) else entry.id
        texts = [entry.string] if isinstance(entry.string, str) else entry.string
        for form in forms:
            held = read.programs[form] if entry.context is None else read.messages[entry.context]
            assert held in texts
            if entry.context is not None:
                assert catalogue("en").messages[entry.context] == form


def test_chinese_is_chinese() -> None:
    """Or the same as the English where that is a name or holds nothing but places."""
    for entry in entries("zh"):
        text = entry.string if isinstance(entry.string, str) else entry.string[0]
        english = entry.id if isinstance(entry.id, str) else entry.id[0]
        name = english.removeprefix("the ")
        assert WIDE.search(text) or text == name or not re.search("[a-z]{3}", re.sub(r"\{[^}]*\}", "", english))


COMMANDS = ("trainprobe", "systemctl", "ps ", "journalctl")
ENDS = ("Refusal", "Failure", "SystemExit", "complain", "tell")
MAY_TELL = re.compile(rf"\b(?:print|{'|'.join(ENDS)})\(")
"""In a file of sources that ruff has formatted."""


def test_errors_are_said_in_the_reader_s_language() -> None:
    """No sentence is printed to stderr, refused, or ends the program, as it stands in the source."""
    found: dict[tuple[str, int], str] = {}
    for source in ("daemon/trainprobe", "exporters/trainprobe_exporters"):
        for path in (ROOT / source).rglob("*.py"):
            text = path.read_text()
            for node in ast.walk(ast.parse(text)) if MAY_TELL.search(text) else ():
                if isinstance(node, ast.Call) and _is_told(node):
                    said = [one for argument in node.args for one in _sentences(argument)]
                    if said:
                        found[path.name, node.lineno] = said[0]
    assert found == {}


def _is_told(call: ast.Call) -> bool:
    """It prints to stderr, or makes a refusal or a failure."""
    name = call.func.id if isinstance(call.func, ast.Name) else ""
    to_stderr = any(one.arg == "file" and ast.unparse(one.value) == "sys.stderr" for one in call.keywords)
    return (name == "print" and to_stderr) or name in ENDS


def _sentences(value: ast.expr) -> Iterator[str]:
    """Texts of several words that no translator sees; a command is no sentence."""
    if ast.unparse(value) == "str(error)":
        yield ast.unparse(value)
    for part in value.values if isinstance(value, ast.JoinedStr) else [value]:
        if isinstance(part, ast.Constant) and isinstance(part.value, str):
            text = part.value.strip()
            if " " in text and not text.startswith(COMMANDS):
                yield text
