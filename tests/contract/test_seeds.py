"""All that tests and benchmarks draw follows from a seed that is shown: TRAINPROBE_SEED, or a benchmark's own."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.contract.test_project import ROOT, tracked

SHOWN = {"tests/conftest.py", *(f"benchmarks/{name}.py" for name in ("demo", "limits/__main__", "limits/ramps"))}
"""Files that draw a fresh seed and print it."""


def unseeded(tree: ast.Module, *, by_pytest: bool) -> Iterator[str]:
    """Draws that no seed repeats. In a process of pytest the module ``random`` is seeded (tests/conftest.py)."""
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        module, _, name = ast.unparse(call.func).rpartition(".")
        if module in ("random", "np.random", "numpy.random"):
            generator = name in ("Random", "default_rng")
            if name == "SystemRandom" or (generator and not call.args) or not (generator or by_pytest):
                yield f"line {call.lineno}: {ast.unparse(call)}"


def by_pytest(path: Path) -> bool:
    return path.name.startswith("test_") or path.is_relative_to(ROOT / "tests" / "unit")


def test_nothing_is_drawn_without_a_seed() -> None:
    files = [path for path in tracked("tests/*.py", "benchmarks/*.py") if str(path.relative_to(ROOT)) not in SHOWN]
    texts = {path: text for path in files if "random" in (text := path.read_text())}
    found = {path: [*unseeded(ast.parse(text), by_pytest=by_pytest(path))] for path, text in texts.items()}
    assert {path: draws for path, draws in found.items() if draws} == {}


def test_a_draw_without_a_seed_is_found() -> None:
    seeded = "random.Random(1); np.random.default_rng(2)"
    assert [*unseeded(ast.parse(seeded), by_pytest=False)] == []
    without = ast.parse("random.Random(); np.random.default_rng(); random.choice([1]); random.SystemRandom()")
    assert len([*unseeded(without, by_pytest=False)]) == 4
    assert len([*unseeded(without, by_pytest=True)]) == 3
