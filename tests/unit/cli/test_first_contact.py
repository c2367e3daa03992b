"""What a newcomer types, and what he is told."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.cli import reports
from trainprobe.cli import VERBS, main, parser
from trainprobe.wire import report as wire

RECORDING = Path(__file__).parents[2] / "replay" / "recordings" / "worker_death.jsonl.gz"


def test_a_misspelt_verb_is_told_what_was_meant(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reprt", "--since", "2h"]) == 2
    assert "to mend it: trainprobe report --since 2h" in capsys.readouterr().err


def test_a_command_without_run_is_shown_the_way(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["python", "train.py", "--name", "a b"]) == 2
    assert "trainprobe run -- python train.py --name 'a b'" in capsys.readouterr().err


def test_nothing_at_all_gets_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    out = capsys.readouterr().out
    assert "the first things to try" in out
    assert [verb for verb in VERBS if verb not in out] == []


def test_wrong_arguments_name_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["report", "--sinse", "2h"])
    assert ended.value.code == 2
    assert "to mend it: trainprobe report --help" in capsys.readouterr().err


@pytest.mark.parametrize("verb", VERBS)
def test_the_help_of_each_verb_teaches_by_examples(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([verb, "--help"])
    assert f"  trainprobe {verb}" in capsys.readouterr().out


def test_the_whole_command_line_can_be_read() -> None:
    """Completion and manual pages are made from it."""
    whole = parser()
    verbs = next(action for action in whole._actions if isinstance(action, argparse._SubParsersAction))
    assert set(VERBS) <= set(verbs.choices)
    for verb in VERBS:
        options = [option for action in verbs.choices[verb]._actions for option in action.option_strings]
        assert "--help" in options


@pytest.mark.parametrize("arguments", [["--help"], [], ["report", "--help"], ["check"]])
def test_a_reader_who_has_seen_enough_is_no_error(arguments: list[str]) -> None:
    """`trainprobe --help | head -1`: no traceback, whenever the pipe breaks."""
    reader, writer = os.pipe()
    os.close(reader)
    program = [sys.executable, "-m", "trainprobe.cli", *arguments]
    done = subprocess.run(program, stdout=writer, stderr=subprocess.PIPE, check=False, text=True)
    os.close(writer)
    assert "Traceback" not in done.stderr
    assert "BrokenPipe" not in done.stderr
    assert done.returncode == 1


@pytest.mark.parametrize("arguments", [["--help"], [], ["report", "--help"], ["check"], ["replay", str(RECORDING)]])
def test_what_cannot_be_written_is_said_in_one_line(arguments: list[str]) -> None:
    with open("/dev/full", "w") as full:
        program = [sys.executable, "-m", "trainprobe.cli", *arguments]
        done = subprocess.run(program, stdout=full, stderr=subprocess.PIPE, check=False, text=True)
    assert (done.stderr, done.returncode) == ("trainprobe: stdout: No space left on device\n", 1)


def test_the_file_of_a_replay_is_written_though_nobody_reads_the_text(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    program = [sys.executable, "-m", "trainprobe.cli", "replay", str(RECORDING), "-o", str(tmp_path / "report.json")]
    done = subprocess.run(program, stdout=writer, stderr=subprocess.PIPE, check=False, text=True)
    os.close(writer)
    assert (done.stderr, done.returncode) == ("", 1)
    assert json.loads((tmp_path / "report.json").read_text())["runs"]


def closed(arguments: list[str], shut: str) -> subprocess.CompletedProcess[str]:
    """The program as cron or a daemon starts it that closes what it does not use."""
    script = f'exec "$@" {shut}'
    program = ["sh", "-c", script, "sh", sys.executable, "-m", "trainprobe.cli", *arguments]
    return subprocess.run(program, capture_output=True, check=False, text=True)


@pytest.mark.parametrize("arguments", [["--help"], ["report", "--help"], ["replay", str(RECORDING)]])
def test_without_stdout_there_is_no_answer(arguments: list[str]) -> None:
    done = closed(arguments, ">&-")
    assert (done.stderr, done.returncode) == ("trainprobe: stdout: Bad file descriptor\n", 1)


@pytest.mark.parametrize(("arguments", "code"), [(["report", "no.json"], 1), (["dance"], 2), (["report", "--no"], 2)])
def test_without_stderr_a_complaint_is_no_answer(arguments: list[str], code: int) -> None:
    done = closed(arguments, "2>&-")
    assert (done.stdout, done.returncode) == ("", code)


def test_the_file_of_a_replay_is_written_without_any_stream(tmp_path: Path) -> None:
    closed(["replay", str(RECORDING), "-o", str(tmp_path / "report.json")], "<&- >&- 2>&-")
    assert json.loads((tmp_path / "report.json").read_text())["runs"]


def in_ascii(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    """The program where the locale's encoding lacks most characters."""
    program = [sys.executable, "-m", "trainprobe.cli", *arguments]
    return subprocess.run(program, capture_output=True, check=False, env={**os.environ, "PYTHONIOENCODING": "ascii"})


@pytest.mark.parametrize("arguments", [["replay", str(RECORDING)], ["--lang", "zh", "report", "--help"]])
def test_characters_that_the_locale_lacks_are_replaced(arguments: list[str]) -> None:
    done = in_ascii(*arguments)
    assert (done.stderr, done.returncode) == (b"", 0)
    assert b" ? " in done.stdout


@pytest.mark.parametrize("form", ["json", "html", "perfetto"])
def test_what_is_for_programs_is_utf8_in_each_locale(form: str, tmp_path: Path) -> None:
    report = reports.stalled()
    report.runs[0].cwd = "/home/zoë/训练"
    (tmp_path / "report.json").write_text(wire.encode(report), encoding="utf-8")
    asked = ["report", str(tmp_path / "report.json"), "--format", form]
    assert main([*asked, "-o", str(tmp_path / "file")]) == 0
    assert in_ascii(*asked).stdout == (tmp_path / "file").read_bytes()
