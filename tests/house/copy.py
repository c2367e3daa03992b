"""A copy of the tree in which somebody adds something by the guides in CONTRIBUTING, and checks it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
CHECKS = ("fmt-check", "lint", "types", "imports")
UNITS = ("advise", "causes", "grafana", "model", "pipeline", "text", "views", "wire")
TESTS = (
    "tests/contract",
    *(f"tests/unit/{name}" for name in UNITS),
    *(f"tests/unit/exporters/test_{name}.py" for name in ("catalogue", "families", "linger")),
    "tests/replay",
)
"""Of the tests of ``make check`` those that read causes, messages, reports, metrics, dashboards and pages. The others
(kernel layouts, collectors, terminals, servers: most of the time) have none of it in their reach."""


@dataclass
class Copy:
    """``written``: the files that were added or changed by hand."""

    root: Path
    written: set[str] = field(default_factory=set)

    @classmethod
    def into(cls, root: Path) -> Copy:
        """All that is in the checkout and not ignored, its environment, and what the type checker remembers of it."""
        listed = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        for name in subprocess.run(listed, check=True, capture_output=True, text=True).stdout.split("\0"):
            if name and (ROOT / name).is_file():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, root / name)
        (root / ".venv").symlink_to(ROOT / ".venv")
        if (ROOT / ".mypy_cache").is_dir():
            shutil.copytree(ROOT / ".mypy_cache", root / ".mypy_cache")
        return cls(root)

    def add(self, name: str, text: str) -> None:
        """A new file."""
        assert not (self.root / name).exists()
        (self.root / name).write_text(text)
        self.written.add(name)

    def insert(self, name: str, behind: str, line: str) -> None:
        """A line behind the first one that matches."""
        path = self.root / name
        found = re.compile(rf"^.*{behind}.*\n", re.MULTILINE)
        text, count = found.subn(lambda match: f"{match[0]}{line}\n", path.read_text(), count=1)
        assert count == 1, f"{name} has no line with {behind}"
        path.write_text(text)
        self.written.add(name)

    def append(self, name: str, text: str) -> None:
        path = self.root / name
        path.write_text(path.read_text() + text)
        self.written.add(name)

    def text(self, name: str) -> str:
        return (self.root / name).read_text()

    def make(self, *targets: str) -> None:
        # The environment is the checkout's: it is complete, and must not come to be installed from here.
        self.run("make", "--silent", "--old-file=.venv/.complete", *targets)

    def check(self) -> None:
        """What ``make check`` runs, with the tests that matter."""
        self.make(*CHECKS)
        self.run(".venv/bin/pytest", "-q", "-x", "-m", "not nightly", *TESTS, TRAINPROBE_SEED="1")

    def python(self, code: str) -> str:
        return self.run(".venv/bin/python", "-c", code, PYTHONPATH="daemon:exporters:.")

    def run(self, *command: str, **environment: str) -> str:
        done = subprocess.run(
            command, cwd=self.root, env=os.environ | environment, capture_output=True, text=True, timeout=900
        )
        assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout[-6000:]}\n{done.stderr[-3000:]}"
        return done.stdout
