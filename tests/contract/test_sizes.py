"""Classes, modules and functions of the shipped packages stay small enough to be read at once."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SHIPPED = ("daemon/trainprobe", "exporters/trainprobe_exporters")
FIELDS, METHODS, LINES, FUNCTION_LINES, PARAMETERS = 20, 25, 400, 60, 6
RECORDS = frozenset({"daemon/trainprobe/model/report.py", "daemon/trainprobe/model/event.py"})
"""What is in them only crosses a border; rows are made too often to be frozen."""
Function = ast.FunctionDef | ast.AsyncFunctionDef


def measured(name: str, text: str) -> Iterator[tuple[str, int, int]]:
    """(what, its size, the most allowed) of a module and of all that is in it."""
    if name != "daemon/trainprobe/model/report.py":
        yield f"{name} lines", len(text.splitlines()), LINES
    yield from _of_body(name, "", ast.parse(text).body)


def _of_body(name: str, within: str, body: list[ast.stmt]) -> Iterator[tuple[str, int, int]]:
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield from _of_class(name, f"{within}{node.name}", node)
        elif isinstance(node, Function):
            yield from _of_function(name, f"{within}{node.name}", node)


def _of_class(name: str, own: str, node: ast.ClassDef) -> Iterator[tuple[str, int, int]]:
    methods = [one for one in node.body if isinstance(one, Function)]
    record = not methods and (_is_frozen(node) or name in RECORDS)
    if not record:
        yield f"{name} {own} fields", len(_fields(node, methods)), FIELDS
    yield f"{name} {own} methods", len(methods), METHODS
    yield from _of_body(name, f"{own}.", node.body)


def _is_frozen(node: ast.ClassDef) -> bool:
    """A frozen data class, or one of a sample or an event that only crosses a border."""
    calls = [one for one in node.decorator_list if isinstance(one, ast.Call)]
    words = [word for call in calls for word in call.keywords if word.arg == "frozen"]
    return any(isinstance(word.value, ast.Constant) and word.value.value is True for word in words)


def _fields(node: ast.ClassDef, methods: list[Function]) -> set[str]:
    """Declared ones, and those that ``__init__`` sets."""
    declared = {
        one.target.id for one in node.body if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)
    }
    inits = [one for one in methods if one.name == "__init__"]
    for target in (found for init in inits for found in ast.walk(init) if isinstance(found, ast.Attribute)):
        if isinstance(target.ctx, ast.Store) and isinstance(target.value, ast.Name) and target.value.id == "self":
            declared.add(target.attr)
    return declared


def _of_function(name: str, own: str, node: Function) -> Iterator[tuple[str, int, int]]:
    arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    yield f"{name} {own} parameters", len([one for one in arguments if one.arg not in ("self", "cls")]), PARAMETERS
    yield f"{name} {own} lines", _lines(node) - sum(_lines(table) for table in _tables(node)), FUNCTION_LINES
    yield from _of_body(name, f"{own}.", node.body)


def _lines(node: ast.stmt | ast.expr) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def _tables(node: ast.AST) -> Iterator[ast.expr]:
    """The outermost literals of rows."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.Tuple, ast.List, ast.Dict)) and _lines(child) > 1:
            yield child
        else:
            yield from _tables(child)


def too_large(name: str, text: str) -> dict[str, int]:
    return {what: size for what, size, most in measured(name, text) if size > most}


def shipped() -> dict[str, int]:
    found: dict[str, int] = {}
    for path in (path for folder in SHIPPED for path in sorted((ROOT / folder).rglob("*.py"))):
        found |= too_large(str(path.relative_to(ROOT)), path.read_text())
    return found


def test_nothing_is_larger_than_agreed() -> None:
    assert shipped() == {}


def made(fields: int = 0, methods: int = 0, head: str = "class Large:") -> str:
    lines = [f"    field_{at}: int = 0" for at in range(fields)]
    lines += [f"    def method_{at}(self): ..." for at in range(methods)]
    return "\n".join([head, *lines, ""])


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (made(fields=21, methods=1), "Large fields"),
        (made(methods=26), "Large methods"),
        (made(fields=21, methods=1, head="@dataclass(frozen=True)\nclass Large:"), "Large fields"),
        (made(fields=21, head="@dataclass\nclass Large:"), "Large fields"),
        (
            "class Large:\n    def __init__(self):\n" + "".join(f"        self.f{n} = {n}\n" for n in range(21)),
            "Large fields",
        ),
        ("x = 1\n" * 401, "lines"),
        ("def f():\n    if True:\n" + "        pass\n" * 59, "f lines"),
        ("def f(a, b, c, d, e, *, f, g): ...\n", "f parameters"),
        ("class C:\n    def f(self, a, b, c, d, e, f, g): ...\n", "C.f parameters"),
    ],
)
def test_it_sees_what_is_too_large(text: str, what: str) -> None:
    assert set(too_large("m.py", text)) == {f"m.py {what}"}


@pytest.mark.parametrize(
    "text",
    [
        made(fields=20, methods=25),
        made(fields=30, head="@dataclass(frozen=True, slots=True)\nclass Record:"),
        "x = 1\n" * 400,
        "def f():\n    if True:\n" + "        pass\n" * 58,
        "def table():\n    return [\n" + "        1,\n" * 100 + "    ]\n",
        "class C:\n    def f(self, a, b, c, d, e, g): ...\n",
    ],
)
def test_what_is_small_a_record_or_a_table_passes(text: str) -> None:
    assert too_large("m.py", text) == {}
