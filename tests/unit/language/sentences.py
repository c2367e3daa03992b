"""Every sentence that the sources can say, found in the sources themselves."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

SOURCES = Path(__file__).parents[3] / "daemon" / "trainprobe"
PLACE = "\0"
TOLD = ("detect", "advise/text.py", "pipeline")
CODE = {"seconds in fsync", "Claim | None", f"{PLACE} cost{PLACE} "}  # compared with, a type, put together from parts
"""Where reports get their sentences."""
SAYERS = ("say", "saying", "labelled")
QUIET = {"startswith", "endswith", "compile", "get", "split", "partition", "replace", "sub"}
SENTENCE = re.compile(r"[a-z]{3,}.*[ ]|[ ].*[a-z]{3,}")


def skeleton(text: str) -> str:
    """A template with its values left out."""
    return re.sub(r"\{\w+\}", PLACE, text)


def told() -> Iterator[tuple[str, str]]:
    """(where, skeleton) of each piece of text that may become part of a summary, a chain, evidence or advice."""
    for name in TOLD:
        root = SOURCES / name
        for path in sorted(root.rglob("*.py")) if root.is_dir() else [root]:
            tree = ast.parse(path.read_text())
            for node, text in _texts(tree):
                if SENTENCE.search(text.replace(PLACE, "x")) and text not in CODE:
                    yield f"{path.relative_to(SOURCES)}:{node.lineno}", text


def said() -> Iterator[tuple[str, str]]:
    """(where, template) of each text that goes through a sayer."""
    for path in sorted(SOURCES.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and node.args and _name(node.func) in SAYERS:
                for first in _constants(node.args[0]):
                    yield f"{path.relative_to(SOURCES)}:{node.lineno}", first


def _constants(node: ast.expr) -> Iterator[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.IfExp):
        yield from _constants(node.body)
        yield from _constants(node.orelse)


def _texts(tree: ast.Module) -> Iterator[tuple[ast.expr, str]]:
    skipped = set(_silent(tree))
    for node in ast.walk(tree):
        if node in skipped:
            continue
        if isinstance(node, ast.JoinedStr):
            skipped.update(ast.walk(node))
            yield node, "".join(_part(value) for value in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node, node.value


def _part(value: ast.expr) -> str:
    return value.value if isinstance(value, ast.Constant) and isinstance(value.value, str) else PLACE


def _silent(tree: ast.Module) -> Iterator[ast.AST]:
    """Docstrings, what errors say to programmers, patterns, and annotations."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield node.value
        elif isinstance(node, ast.Call) and _name(node.func) in QUIET:
            for argument in node.args:
                yield from ast.walk(argument)
        elif isinstance(node, ast.Raise):
            yield from ast.walk(node)
        elif isinstance(node, ast.AnnAssign):
            yield from ast.walk(node.annotation)
        elif isinstance(node, (ast.FunctionDef, ast.arg)):
            annotation = node.returns if isinstance(node, ast.FunctionDef) else node.annotation
            if annotation is not None:
                yield from ast.walk(annotation)


def _name(function: ast.expr) -> str:
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""
