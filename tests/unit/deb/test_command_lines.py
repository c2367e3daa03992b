"""Manual pages and completion say what the programs take, because they come from the programs' own parsers."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from deb import command_lines
from trainprobe.cli import VERBS

PROGRAMS = tuple(command_lines.programs())


def completed(tmp_path: Path, program: str, *words: str) -> list[str]:
    """What bash offers for the last of ``words``, in an empty directory but for the file FILE."""
    script = tmp_path / "completion"
    script.write_text(command_lines.completion(command_lines.programs()[program], "bash"))
    (tmp_path / "empty").mkdir(exist_ok=True)
    (tmp_path / "empty/FILE").touch()
    line = " ".join(f"'{word}'" for word in (program, *words))
    function = f"_shtab_{program.replace('-', '_')}"
    ask = f"COMP_WORDS=({line}); COMP_CWORD={len(words)}; {function}; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    done = subprocess.run(
        ["bash", "-c", f"source {script}\n{ask}"], check=True, capture_output=True, text=True, cwd=tmp_path / "empty"
    )
    return done.stdout.split()


def test_every_verb_and_option_has_its_place_in_the_manual() -> None:
    text = command_lines.manual(command_lines.programs()["trainprobe"], "1.2", "2026-01-02")
    for verb in VERBS:
        section = text.partition(f".SS \\fBtrainprobe {verb}\\fR\n")[2].partition("\n.SS ")[0]
        assert VERBS[verb].replace("-", "\\-") in section
    assert "\\fB\\-\\-record\\fR" in text
    assert '"trainprobe 1.2"' in text
    assert "observe\\fR" not in text  # hidden


@pytest.mark.skipif(shutil.which("man") is None, reason="no man here")
@pytest.mark.parametrize("name", PROGRAMS)
def test_man_renders_the_page_without_a_warning(tmp_path: Path, name: str) -> None:
    page = tmp_path / f"{name}.1"
    page.write_text(command_lines.manual(command_lines.programs()[name], "1", "2026-01-02"))
    environment = {"LC_ALL": "C.UTF-8", "MANROFFSEQ": "", "MANWIDTH": "80", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(["man", "--warnings", "-l", str(page)], capture_output=True, text=True, env=environment)
    assert done.stderr == ""
    assert "--config FILE" in done.stdout
    assert "SEE ALSO" in done.stdout


def test_bash_offers_verbs_then_the_options_of_the_verb(tmp_path: Path) -> None:
    assert set(VERBS) <= set(completed(tmp_path, "trainprobe", ""))
    assert set(completed(tmp_path, "trainprobe", "rep")) == {verb for verb in VERBS if verb.startswith("rep")}
    assert completed(tmp_path, "trainprobe", "check", "--s") == ["--strict"]
    assert completed(tmp_path, "trainprobe", "report", "--format", "j") == ["json"]


def test_bash_offers_files_where_a_file_is_meant_and_a_command_after_the_dashes(tmp_path: Path) -> None:
    assert completed(tmp_path, "trainprobe", "replay", "") == ["FILE"]
    assert completed(tmp_path, "trainprobe-exporter", "--config", "F") == ["FILE"]
    assert "bash" in completed(tmp_path, "trainprobe", "run", "-o", "x", "--", "bas")


@pytest.mark.skipif(shutil.which("zsh") is None, reason="no zsh here")
@pytest.mark.parametrize("name", PROGRAMS)
def test_zsh_takes_the_completion(tmp_path: Path, name: str) -> None:
    script = tmp_path / "completion"
    script.write_text(command_lines.completion(command_lines.programs()[name], "zsh"))
    assert script.read_text().startswith(f"#compdef {name}\n")
    subprocess.run(["zsh", "-n", str(script)], check=True)
