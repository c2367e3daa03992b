# SPDX-License-Identifier: Apache-2.0
"""What is given to the compiler, and when its work can be used again."""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import sys
from pathlib import Path

import pytest

from trainprobe.bpf.compile import translate
from trainprobe.bpf.compile.image import Image
from trainprobe.bpf.load.install import MARKS


def _defined(text: str) -> set[str]:
    return set(re.findall(r"^(?:int|INLINE) [^\n(;=]*?(\w+)\(", text, re.MULTILINE))


def test_what_nobody_wants_is_empty_lines() -> None:
    whole, text = translate.source_text(), translate.source_text(MARKS)
    assert _defined(text) & translate.programs() == MARKS
    assert _defined(text) < _defined(whole)
    lines = list(zip(whole.split("\n"), text.split("\n"), strict=True))
    assert all(there in (line, "") for line, there in lines), "errors name the right line"
    for name in _defined(whole) - _defined(text):
        assert not re.search(rf"\b{name}\(", text), f"{name} is called"


def test_every_function_is_known_with_all_of_its_text() -> None:
    whole = translate.source_text()
    functions = translate._functions(whole)
    assert functions.keys() == _defined(whole)
    for name, text in functions.items():
        assert text.count("{") == text.count("}"), name
        assert text.count(f"{name}(") >= 1


@pytest.mark.parametrize("hands", [1, 2, 3, 50])
def test_programs_are_dealt_once_and_evenly(hands: int) -> None:
    parts = translate.dealt(MARKS, hands)
    assert sorted(name for part in parts for name in part) == sorted(MARKS)
    assert len(parts) == min(hands, len(MARKS))
    lengths = [len(translate.source_text(part)) for part in parts]
    assert max(lengths) < 2.5 * min(lengths)


def test_the_key_is_of_sources_headers_and_flags(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(f"{translate.HERE}/src", tmp_path / "src")
    usual = translate.key(MARKS, ["-DA=1"])
    monkeypatch.setattr(translate, "HERE", str(tmp_path))
    assert translate.key(MARKS, ["-DA=1"]) == usual  # wherever the same sources lie
    assert translate.key(MARKS, ["-DA=2"]) != usual
    assert translate.key(MARKS, ["-DA=", "1"]) != usual
    assert translate.key({"on_switch"}, ["-DA=1"]) != usual
    for changed in ("core.bpf.c", "include/layout.h", "stub/include/linux/types.h"):
        path = tmp_path / "src" / changed
        before = path.read_text()
        path.write_text(before + "\n")
        assert translate.key(MARKS, ["-DA=1"]) != usual
        path.write_text(before)
    assert translate.key(MARKS, ["-DA=1"]) == usual


def test_another_kernel_has_another_key(monkeypatch: pytest.MonkeyPatch) -> None:
    usual, here = translate.key(MARKS, []), os.uname()
    for place in (2, 3, 4):  # release, version, machine
        other = [*here]
        other[place] += "x"
        monkeypatch.setattr(os, "uname", lambda other=other: os.uname_result(other))
        assert translate.key(MARKS, []) != usual


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Image:
    """An image, and the compiler that made it: a module and a library."""
    (tmp_path / "bcc.py").write_text("")
    (tmp_path / "libbcc.so.0").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "bcc", raising=False)
    files = (translate._fingerprint(str(tmp_path / name)) for name in ("bcc.py", "libbcc.so.0"))
    return Image("GPL", {}, {}, tuple(files))


def test_the_compiler_that_made_it_is_known_again(made: Image) -> None:
    assert translate.same_compiler(made)


@pytest.mark.parametrize("file", [0, 1], ids=["module", "library"])
def test_another_compiler_is_another(made: Image, file: int) -> None:
    path, _, changed = made.made_by[file]
    os.utime(path, ns=(0, changed + 1))
    assert not translate.same_compiler(made)
    os.utime(path, ns=(0, changed))
    assert translate.same_compiler(made)
    os.unlink(path)
    assert not translate.same_compiler(made)


def test_a_module_found_elsewhere_is_another_compiler(
    made: Image, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "first").mkdir()
    (tmp_path / "first" / "bcc.py").write_text("crystal = 1")
    monkeypatch.syspath_prepend(str(tmp_path / "first"))
    assert not translate.same_compiler(made)


def test_nobody_knows_who_made_it(made: Image) -> None:
    assert not translate.same_compiler(dataclasses.replace(made, made_by=()))
