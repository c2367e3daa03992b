"""Babel's extraction method for this source tree (babel.cfg): what `template` declares, and what goes through a sayer.

Beside what Babel's own Python method finds it reads calls within f-strings, both sides of a conditional, the texts of
command lines (`help`, titles), and the descriptions of verbs, which are their modules' docstrings, by paragraph.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from typing import IO, Any

from trainprobe.text.page_words import lines_of_script

KEYWORDS: dict[str, Any] = {
    "template": ((1, "c"), 2),
    "counted": (2, 3),
    "say": None,
    "saying": None,
    "labelled": None,
    "word": None,
}
"""As of `pybabel extract -k`."""
Found = tuple[int, str, "str | tuple[str | None, ...]", list[str]]


def extract(file: IO[bytes], keywords: Sequence[str], comment_tags: object, options: object) -> Iterator[Found]:
    """(line, function, its texts, comments) of each call of a keyword with texts in it."""
    del comment_tags, options
    module = ast.parse(file.read())
    if {"configure", "act"} <= {node.name for node in module.body if isinstance(node, ast.FunctionDef)}:
        yield from ((1, "word", text, []) for text in (ast.get_docstring(module) or "").split("\n\n"))
    for node in ast.walk(module):
        if not isinstance(node, ast.Call):
            continue
        name = _name(node.func)
        if name == "CauseSpec":
            yield from _titles(node)
        if name in ("add_argument", "add_argument_group"):
            yield from _help(node)
        if name not in keywords:
            continue
        if KEYWORDS[name] is None:
            for text in _texts(node.args[0]) if node.args else ():
                yield from ((node.lineno, name, part, []) for part in text.split("\n\n"))
        else:
            texts = tuple(next(_texts(argument), None) for argument in node.args)
            if texts[-1] is not None:
                yield node.lineno, name, texts, []


def extract_page(file: IO[bytes], keywords: Sequence[str], comment_tags: object, options: object) -> Iterator[Found]:
    """The same of the page's scripts and templates."""
    del keywords, comment_tags, options
    text = file.read().decode()
    is_script = "<html" not in text
    for line, said in lines_of_script(text) if is_script else _lines_of_html(text):
        yield line, "word", said, []


def _lines_of_html(template: str) -> Iterator[tuple[int, str]]:
    """Each ``{{=text}}`` of a template, with its line."""
    for found in re.finditer(r"\{\{=(.*?)\}\}", template):
        yield template.count("\n", 0, found.start()) + 1, found[1]


def _titles(node: ast.Call) -> Iterator[Found]:
    """What a cause is called in a sentence: templates that the specification declares."""
    key = next(_texts(node.args[0]), "")
    for argument in node.keywords:
        if argument.arg in ("title", "short"):
            id_ = f"cause.{key}" if argument.arg == "title" else f"cause.{key}.short"
            yield node.lineno, "template", (id_, next(_texts(argument.value), None)), []


def _help(node: ast.Call) -> Iterator[Found]:
    given = [argument.value for argument in node.keywords if argument.arg == "help"]
    for value in node.args if _name(node.func) == "add_argument_group" else given:
        yield from ((node.lineno, "word", text, []) for text in _texts(value))


def _texts(node: ast.expr) -> Iterator[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value:
        yield node.value
    elif isinstance(node, ast.IfExp):
        yield from _texts(node.body)
        yield from _texts(node.orelse)


def _name(function: ast.expr) -> str:
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""
