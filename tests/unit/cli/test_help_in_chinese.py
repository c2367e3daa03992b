"""``--help`` and what argparse says of wrong arguments, in the reader's language."""

from __future__ import annotations

import argparse
import gettext
import re
from collections.abc import Iterator

import pytest

import trainprobe_exporters.cli
from trainprobe.cli import HIDDEN, VERBS, cells, main
from trainprobe.text.command_line import spoken_in
from trainprobe_exporters.console import speak

COMMAND = re.compile(r"`[^`]*`|\{[^}]*\}|\b(?:trainprobe|systemctl|sudo|ssh|curl)(?: [!-~]+)*")
SENTENCE = re.compile(r"(?:\b[A-Za-z]?[a-z']+[,;:.]? ){2,}[a-z]{2,}\b")


@pytest.fixture(autouse=True)
def narrow(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("COLUMNS", "80")
    yield
    speak("en")  # the exporter's language is the process's


def help_of(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    program = trainprobe_exporters.cli.main if arguments[0] == "exporter" else main
    with pytest.raises(SystemExit) as ended:
        program([*arguments[arguments[0] == "exporter" :], "--help"])
    assert ended.value.code == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("verb", ["--lang=zh", *VERBS, *HIDDEN, "exporter"])
def test_no_sentence_of_the_help_is_english(
    verb: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LC_ALL", "zh_CN.UTF-8")
    shown = help_of([verb], capsys)
    assert shown.startswith("用法: ")
    assert "显示此帮助并退出" in shown
    assert [line for line in shown.splitlines() if SENTENCE.search(COMMAND.sub("", line))] == []
    assert max(map(cells.width, shown.splitlines())) <= 120
    options = shown.partition("\n选项:\n")[2].partition("\n\n")[0].splitlines()
    assert max(map(cells.width, options)) <= 80


@pytest.mark.parametrize("arguments", [["--lang", "zh", "report"], ["report", "--lang", "zh"], ["report", "--lang=zh"]])
def test_the_language_stands_anywhere(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert "守护进程保存的报告" in help_of(arguments, capsys)


def test_the_english_help_is_found_english_by_the_same_search(capsys: pytest.CaptureFixture[str]) -> None:
    for verb in VERBS:
        shown = help_of([verb], capsys)
        assert shown.startswith("usage: ")
        assert any(SENTENCE.search(COMMAND.sub("", line)) for line in shown.splitlines())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["attach", "--lang", "zh"], "trainprobe attach: 缺少必需的参数：PID"),
        (["report", "--lang", "fr"], "参数 --lang：无效的选择：'fr'（可选："),
        (["--lang=zh", "check", "--quick"], "无法识别的参数：--quick"),
        (["attach", "x", "--lang", "zh"], "参数 PID：不是有效的 int：'x'"),
        (["report", "--since", "--lang", "zh"], "参数 --since：需要一个值"),
        (["report", "--since", "soon", "--lang", "zh"], "参数 --since：'soon' 不是时长；例如：90s、30m、2h、7d"),
    ],
)
def test_wrong_arguments_in_chinese(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LC_ALL", "zh_CN.UTF-8" if "fr" in arguments else "C")
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    told = capsys.readouterr().err
    assert said in told
    assert "解决办法：trainprobe" in told


def test_of_the_exporter_too(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "zh_CN.UTF-8")
    with pytest.raises(SystemExit):
        trainprobe_exporters.cli.main(["--listen", "everywhere"])
    assert "错误：参数 --listen：应为 ADDRESS:PORT，而不是 'everywhere'" in capsys.readouterr().err


def test_argparse_is_left_as_it_was_and_speaks_english_where_a_text_is_new(capsys: pytest.CaptureFixture[str]) -> None:
    with spoken_in("zh"):
        assert argparse.ArgumentParser(usage="a text of a later argparse").format_usage().startswith("用法: a text of")
        assert argparse.__dict__["_"]("a text of a later argparse") == "a text of a later argparse"
    help_of(["report", "--lang", "zh"], capsys)
    assert argparse.__dict__["_"] is gettext.gettext
    assert argparse.__dict__["ngettext"] is gettext.ngettext
