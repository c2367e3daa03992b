"""Whose a Python file is by its path, and the versions of installed packages."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterable

from trainprobe.collect.procfs import Proc
from trainprobe.derive.python.frameworks import LOOPS
from trainprobe.model.dataclass import dataclass

_INSTALLED = re.compile(r"(.*/(?:site|dist)-packages)/([^/]+?)(?:\.py)?(?:/|$)")
_STANDARD = re.compile(r"/(python\d(?:\.\d+)?t?)(?:\.zip)?/")
_PROGRAM = re.compile(r"/bin/[^/.]+$")
_SOURCES = tuple((f"/{name}/{file}", name) for name, files in LOOPS.items() for file in files)
_VERSION = re.compile(r"[0-9][0-9A-Za-z.+!]{0,39}")
PARTS = ("", "_lite", "_full", "_checkpoint")
"""What the distribution of a package may be called beyond the package's own name: mmcv_lite, orbax_checkpoint."""
ENTRIES = 20_000
KEPT = 256


@dataclass(frozen=True, slots=True)
class PythonFile:
    """``package``: "" for the user's own files, "python3.11" for the standard library, "bin" for an installed program.
    ``directory``: where packages are installed that this one is of; "" where it is not installed."""

    package: str
    name: str
    directory: str = ""

    @classmethod
    def of(cls, path: str) -> PythonFile:
        """By its path as the interpreter has it."""
        name = path.rpartition("/")[2]
        if installed := _INSTALLED.match(path):
            return cls(installed[2], name, installed[1])
        if standard := _STANDARD.search(path):
            return cls(standard[1], name)
        if _PROGRAM.search(path):
            return cls("bin", name)
        return cls(next((package for file, package in _SOURCES if path.endswith(file)), ""), name)


class PackageVersions:
    """Versions of installed packages, as the names of their metadata's directories have them."""

    def __init__(self, proc: Proc) -> None:
        self._proc = proc
        self._known: OrderedDict[tuple[int, str, str], str] = OrderedDict()

    def of(self, pid: int, package: str, directory: str) -> str:
        """As the process finds it; "": not known."""
        key = pid, package, directory
        if key not in self._known:
            listed = self._proc.ask(pid, "listed", f"root{directory}", ENTRIES)
            if listed is None:
                return ""
            self._known[key] = _version(listed.decode("utf-8", "surrogateescape").split("\0"), package)
            while len(self._known) > KEPT:
                self._known.popitem(last=False)
        return self._known[key]


def _version(names: Iterable[str], package: str) -> str:
    wanted = {f"{package.lower()}{part}" for part in PARTS}
    for entry in names:
        stem, _, kind = entry.rpartition(".")
        name, _, version = stem.partition("-")
        if kind in ("dist-info", "egg-info") and name.lower().replace(".", "_") in wanted:
            found = _VERSION.match(version)
            return found[0] if found else ""
    return ""
