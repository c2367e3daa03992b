"""The page of the errors: what the programs say when something does not work, with what mends it, from the sources."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCES = (ROOT / "daemon" / "trainprobe", ROOT / "exporters" / "trainprobe_exporters")
PLACES = {"complain": (0, 1), "Refusal": (1, 2), "Unavailable": (0, 1), "Failed": (0, 1), "Finding": (2, 4)}
"""Of each call: the argument that says what is wrong, and the one that says what mends it."""
PARTS = (
    ("cli/check", "trainprobe check"),
    ("cli/", "Commands"),
    ("runtime/", "Sources of the daemon"),
    ("bpf/", "eBPF"),
    ("collect/", "Readings of the host and its processes"),
    ("trainprobe_exporters/", "The exporter"),
)
HEAD = """# Errors and what mends them

The texts for what does not work: on the terminal after `trainprobe:`, as a source's reason in a report
(`! NAME unavailable: …`), on the page under *What could be seen*, in `trainprobe check`. `…` is a name, a path or a
number. Without a remedy here, the text itself names it. In Chinese: `LANG=zh_CN.UTF-8` or `--lang zh`;
[常见问题](faq.zh.md).

Generated from the sources (`make generated`).
"""


@dataclass(frozen=True)
class Error:
    """``remedy`` "": what mends it depends on the text itself, or is in it."""

    part: str
    text: str
    remedy: str


def page() -> str:
    """The whole page."""
    found = sorted(set(errors()), key=lambda one: (one.part, one.text))
    parts = []
    for _, part in PARTS:
        rows = [one for one in found if one.part == part]
        lines = [f"- `{one.text}`" + (f": {one.remedy}" if one.remedy else "") for one in rows]
        parts += [f"## {part}\n\n" + "\n".join(lines)] if lines else []
    return HEAD + "\n" + "\n\n".join(parts) + "\n"


@cache
def errors() -> Sequence[Error]:
    """Those of all sources, once for each text."""
    trees = {path: ast.parse(path.read_text()) for folder in SOURCES for path in sorted(folder.rglob("*.py"))}
    constants: dict[Path, dict[str, str]] = {}
    for path, tree in trees.items():
        own = constants[path] = {}
        for name, value in _assigned(tree.body):
            own[name] = _text(value, own)
    best: dict[tuple[str, str], str] = {}
    for path, tree in trees.items():
        part = next((name for begin, name in PARTS if begin in str(path.relative_to(ROOT))), "")
        for text, remedy in _of(tree, _known(tree, path, constants)) if part else ():
            known = best.get((part, text), "")
            best[part, text] = known or remedy
    return [Error(part, text, remedy) for (part, text), remedy in best.items()]


def _known(tree: ast.Module, path: Path, constants: dict[Path, dict[str, str]]) -> dict[str, str]:
    """Constants by the names that a module has for them: its own, those that it imports, and those of modules."""
    known: dict[str, str] = {}
    for node in ast.walk(tree):
        if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith("trainprobe"):
            continue
        for one in node.names:
            for folder in SOURCES:
                base = folder.parent / Path(*(node.module or "").split("."))
                if text := constants.get(base.with_suffix(".py"), {}).get(one.name, ""):
                    known[one.asname or one.name] = text
                known |= constants.get((base / one.name).with_suffix(".py"), {})
    return known | constants[path]


def _of(tree: ast.Module, constants: dict[str, str]) -> Iterator[tuple[str, str]]:
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    for scope in functions:
        known = dict(constants)
        for call in sorted(ast.walk(scope), key=lambda node: getattr(node, "lineno", 0)):
            for name, value in _assigned([call]):
                known[name] = _text(value, known) or known.get(name, "")
            if isinstance(call, ast.Call) and (places := PLACES.get(_name(call.func))):
                text, remedy = (_text(call.args[at], known) if at < len(call.args) else "" for at in places)
                if re.search("[a-z]{3,} ", text) and not (_name(call.func) == "Finding" and _is_well(call)):
                    yield text, remedy


def _is_well(call: ast.Call) -> bool:
    return (isinstance(call.args[1], ast.Name) and call.args[1].id == "OK") or ast.unparse(call.args[1]).endswith(".OK")


def _assigned(body: list[ast.stmt] | list[ast.AST]) -> Iterator[tuple[str, ast.expr]]:
    for node in body:
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            (target,) = node.targets
            if isinstance(target, ast.Name):
                yield target.id, node.value
            elif isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                names = (one.id for one in target.elts if isinstance(one, ast.Name))
                yield from zip(names, node.value.elts)


def _text(node: ast.expr, known: dict[str, str]) -> str:
    """What an expression says, with … for what is not known before; "" where it is no text."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        parts = (_text(one, known) if isinstance(one, ast.Constant) else _place(one, known) for one in node.values)
        return "".join(parts)
    if isinstance(node, ast.Name):
        return known.get(node.id, "")
    if isinstance(node, ast.Attribute):
        return known.get(node.attr, "") if node.attr.isupper() else ""
    if isinstance(node, ast.Call) and _name(node.func) == "template":
        return _text(node.args[1], known)  # its places are filled where it is called
    if isinstance(node, ast.Call):
        given = {one.arg: _text(one.value, known) for one in node.keywords}
        said = node.args[0] if _name(node.func) in ("word", "saying") and node.args else node.func
        return re.sub(r"\{(\w+)[^}]*\}", lambda found: given.get(found[1]) or "…", _text(said, known))
    return ""


def _place(node: ast.expr, known: dict[str, str]) -> str:
    return (_text(node.value, known) if isinstance(node, ast.FormattedValue) else "") or "…"


def _name(function: ast.expr) -> str:
    return (
        function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""
    )


if __name__ == "__main__":
    print(page(), end="")
