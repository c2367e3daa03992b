"""What the command lines look like, read from the programs' own parsers: manual pages and completion come from it."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import trainprobe.cli
import trainprobe_exporters.cli


@dataclass(frozen=True)
class Option:
    """An option. ``value`` names its argument, "" where it takes none; ``is_path``: that is a file or directory."""

    names: tuple[str, ...]
    value: str
    choices: tuple[str, ...]
    is_path: bool
    text: str


@dataclass(frozen=True)
class Operand:
    """What follows without a dash. ``is_command``: a command and all its arguments."""

    name: str
    is_path: bool
    is_command: bool
    text: str


@dataclass(frozen=True)
class Command:
    """A program, or a verb of one."""

    name: str
    summary: str
    description: str
    epilog: str
    usage: str
    options: tuple[Option, ...]
    operands: tuple[Operand, ...]
    verbs: tuple[Command, ...] = ()


def programs() -> tuple[Command, ...]:
    """Both programs of the package."""
    probe = trainprobe.cli.parser()
    found = next(action for action in probe._actions if isinstance(action, argparse._SubParsersAction))
    verbs = tuple(_command(found.choices[name], summary) for name, summary in trainprobe.cli.VERBS.items())
    exporter = trainprobe_exporters.cli.parser()
    return (
        _command(probe, "says why a training stalls, and how many seconds each cause took", verbs),
        _command(exporter, "serves what trainprobe publishes: metrics, API, live page"),
    )


def _command(parser: argparse.ArgumentParser, summary: str, verbs: tuple[Command, ...] = ()) -> Command:
    options, operands = [], []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction) or action.help is argparse.SUPPRESS:
            continue
        if action.option_strings:
            options.append(_option(action, parser))
        else:
            operands.append(_operand(action, parser))
    usage = " ".join(parser.format_usage().removeprefix("usage:").split())
    description, epilog = parser.description or "", parser.epilog or ""
    name = parser.prog.rpartition(" ")[2]
    return Command(name, summary, description, epilog, usage, tuple(options), tuple(operands), verbs)


def _option(action: argparse.Action, parser: argparse.ArgumentParser) -> Option:
    takes_value = action.nargs != 0
    choices = tuple(map(str, action.choices or ()))
    shown = action.metavar if isinstance(action.metavar, str) else "|".join(choices) or action.dest.upper()
    if "|" in shown:
        choices = tuple(shown.split("|"))
    names = tuple(action.option_strings)
    return Option(names, shown if takes_value else "", choices, action.type is Path, _help(action, parser))


def _operand(action: argparse.Action, parser: argparse.ArgumentParser) -> Operand:
    name = action.metavar if isinstance(action.metavar, str) else action.dest.upper()
    return Operand(name, action.type is Path, action.nargs == argparse.REMAINDER, _help(action, parser))


def _help(action: argparse.Action, parser: argparse.ArgumentParser) -> str:
    return parser._get_formatter()._expand_help(action) if action.help else ""
