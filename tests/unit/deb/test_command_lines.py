"""Manual pages and completion say what the programs take, because they come from the programs' own parsers."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from deb import completion, manual, shape
from trainprobe.cli import VERBS

PROGRAMS = {program.name: program for program in shape.programs()}
STUBS = """\
_init_completion() { cur=${COMP_WORDS[COMP_CWORD]}; prev=${COMP_WORDS[COMP_CWORD-1]}
                     words=("${COMP_WORDS[@]}"); cword=$COMP_CWORD; }
_filedir() { COMPREPLY=(A-FILE); }
_command_offset() { COMPREPLY=("COMMAND-AT-$1"); }
"""


def completed(tmp_path: Path, program: str, *words: str) -> list[str]:
    """What bash offers for the last of ``words``."""
    script = tmp_path / "completion"
    script.write_text(completion.bash(PROGRAMS[program]))
    line = " ".join(f"'{word}'" for word in (program, *words))
    ask = f"COMP_WORDS=({line}); COMP_CWORD={len(words)}; _{program.replace('-', '_')}"
    command = ["bash", "-euc", f"{STUBS}\nsource {script}\n{ask}\nprintf '%s\\n' \"${{COMPREPLY[@]}}\""]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()


def test_every_verb_and_option_has_its_place_in_the_manual() -> None:
    text = manual.page(PROGRAMS["trainprobe"], "1.2", "2026-01-02")
    for verb in PROGRAMS["trainprobe"].verbs:
        section = text.partition(f".SS trainprobe {verb.name}\n")[2].partition("\n.SS ")[0]
        assert section
        for option in verb.options:
            assert all(name.replace("-", "\\-") in section for name in option.names), option
    assert [verb.name for verb in PROGRAMS["trainprobe"].verbs] == list(VERBS)
    assert '"trainprobe 1.2"' in text


def test_lines_that_begin_like_a_request_stay_text() -> None:
    program = shape.Command("trainprobe", "s", ".first\n'second \\ third", "", "trainprobe", (), ())
    lines = manual.page(program, "1", "2026-01-02").splitlines()
    assert lines[lines.index(".SH DESCRIPTION") + 1 :][:2] == ["\\&.first", "\\&'second \\e third"]


@pytest.mark.skipif(shutil.which("man") is None, reason="no man here")
@pytest.mark.parametrize("name", PROGRAMS)
def test_man_renders_the_page_without_a_warning(tmp_path: Path, name: str) -> None:
    page = tmp_path / f"{name}.1"
    page.write_text(manual.page(PROGRAMS[name], "1", "2026-01-02"))
    environment = {"LC_ALL": "C.UTF-8", "MANROFFSEQ": "", "MANWIDTH": "80", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(["man", "--warnings", "-l", str(page)], capture_output=True, text=True, env=environment)
    assert done.stderr == ""
    assert "--config FILE" in done.stdout


def test_bash_offers_verbs_then_the_options_of_the_verb(tmp_path: Path) -> None:
    assert set(VERBS) < set(completed(tmp_path, "trainprobe", ""))
    assert set(completed(tmp_path, "trainprobe", "rep")) == {verb for verb in VERBS if verb.startswith("rep")}
    assert completed(tmp_path, "trainprobe", "check", "--s") == ["--strict"]
    assert completed(tmp_path, "trainprobe", "report", "--format", "j") == ["json"]


def test_bash_offers_files_where_a_file_is_meant_and_a_command_after_the_dashes(tmp_path: Path) -> None:
    assert completed(tmp_path, "trainprobe", "replay", "") == ["A-FILE"]
    assert completed(tmp_path, "trainprobe-exporter", "--config", "x") == ["A-FILE"]
    assert completed(tmp_path, "trainprobe", "run", "-o", "x", "--", "py") == ["COMMAND-AT-5"]


def test_zsh_describes_every_verb() -> None:
    text = completion.zsh(PROGRAMS["trainprobe"])
    assert text.startswith("#compdef trainprobe\n")
    for verb, summary in VERBS.items():
        assert f"'{verb}:{summary}'" in text


@pytest.mark.skipif(shutil.which("zsh") is None, reason="no zsh here")
@pytest.mark.parametrize("name", PROGRAMS)
def test_zsh_takes_the_completion(tmp_path: Path, name: str) -> None:
    script = tmp_path / "completion"
    script.write_text(completion.zsh(PROGRAMS[name]))
    subprocess.run(["zsh", "-n", str(script)], check=True)
