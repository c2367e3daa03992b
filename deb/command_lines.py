"""Manual pages and completion of both programs, from their own parsers (argparse-manpage, shtab)."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import shtab
from argparse_manpage.manpage import Manpage

import trainprobe.cli
import trainprobe_exporters.cli

SUMMARIES = {
    "trainprobe": "says why a training stalls, and how many seconds each cause took",
    "trainprobe-exporter": "serves what trainprobe publishes: metrics, API, live page",
}
_FILES = {
    "trainprobe": (
        ("/etc/trainprobe/trainprobe.yaml", "configuration of the daemon; every key is optional"),
        ("/run/trainprobe/report.json", "the latest report, for root and the group trainprobe"),
        ("/run/trainprobe/users/", "one file for each user, with his own runs"),
        ("/var/lib/trainprobe/", "what the daemon keeps"),
        ("/var/cache/trainprobe/", "its programs, compiled"),
        ("/usr/share/doc/trainprobe/", "configuration, metrics, security: all keys and meanings"),
    ),
    "trainprobe-exporter": (
        ("/etc/trainprobe/exporter.yaml", "configuration; every key is optional"),
        ("/run/trainprobe-exporter/token", "opens page and API, for the group trainprobe"),
    ),
}
_COMMAND = {
    "bash": "_shtab_command",
    "zsh": "_normal",
    "preamble": {"bash": "_shtab_command() { compgen -c -- $1; compgen -f -- $1; }"},
}
"""Behind `run --` stands another command's line."""


def programs() -> dict[str, argparse.ArgumentParser]:
    """The parsers by program, anew at each call: what is made from them leaves marks on them."""
    found: tuple[argparse.ArgumentParser, ...] = (trainprobe.cli.parser(), trainprobe_exporters.cli.parser())
    return {parser.prog: parser for parser in found}


def manual(parser: argparse.ArgumentParser, version: str, date: str) -> str:
    """The page of section 1; ``date`` is YYYY-MM-DD."""
    data = {
        "description": SUMMARIES[parser.prog],
        "project_name": "trainprobe",
        "version": version,
        "date": date,
        "manual_title": "User Commands",
    }
    page = Manpage(parser, data, format="single-commands-section")
    files = "".join(f".TP\n.I {path}\n{meaning}\n" for path, meaning in _FILES[parser.prog])
    page.add_section("files", "=", files.rstrip())
    others = (f"\\fB{name}\\fR(1)" for name in SUMMARIES if name != parser.prog)
    page.add_section("see also", "=", ", ".join(others).replace("-", "\\-"))
    # Indented lines are examples and tables: they keep their shape.
    return re.sub(r"(?m)(?:^ {2,}\S.*\n)+", lambda lines: f".nf\n{lines[0]}.fi\n", str(page))


def completion(parser: argparse.ArgumentParser, shell: str) -> str:
    """The script for "bash" or "zsh"."""
    _mark(parser)
    return str(shtab.complete(parser, shell))


def _mark(parser: argparse.ArgumentParser) -> None:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for verb in action.choices.values():
                _mark(verb)
        elif action.help != argparse.SUPPRESS and (action.type is Path or action.nargs == argparse.REMAINDER):
            action.complete = shtab.FILE if action.type is Path else _COMMAND  # type: ignore[attr-defined]
        elif isinstance(action.metavar, str) and "|" in action.metavar:
            action.choices = action.metavar.split("|")
