"""Manual pages (man(7) macros) from the shape of the command lines."""

from __future__ import annotations

from collections.abc import Iterator

from deb.shape import Command, Operand, Option

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


def page(program: Command, version: str, date: str) -> str:
    """The page of section 1; ``date`` is YYYY-MM-DD."""
    return "\n".join(_lines(program, version, date)) + "\n"


def _lines(program: Command, version: str, date: str) -> Iterator[str]:
    yield f'.TH {program.name.upper()} 1 "{date}" "trainprobe {version}" "User Commands"'
    yield ".SH NAME"
    yield f"{program.name} \\- {_escaped(program.summary)}"
    yield ".SH SYNOPSIS"
    for command in program.verbs or (program,):
        yield from _synopsis(command)
    yield ".SH DESCRIPTION"
    yield from _text(program.description)
    if not program.verbs:
        yield ".SH OPTIONS"
        yield from _arguments(program)
    else:
        yield ".SH VERBS"
        for verb in program.verbs:
            yield f".SS {program.name} {verb.name}"
            yield from _text(verb.description)
            yield from _arguments(verb)
            yield from _text(verb.epilog)
    if program.epilog:
        yield ".SH NOTES"
        yield from _text(program.epilog)
    yield ".SH FILES"
    for path, meaning in _FILES[program.name]:
        yield from (".TP", f".I {_escaped(path)}", _escaped(meaning))
    yield ".SH SEE ALSO"
    others = [name for name in _FILES if name != program.name]
    yield ", ".join(f"\\fB{_escaped(name)}\\fR(1)" for name in others)


def _synopsis(command: Command) -> Iterator[str]:
    program, _, rest = command.usage.partition(" ")
    words = rest.split()
    bold = [program, *words[:1]] if words and words[0] == command.name else [program]
    shown = rest.removeprefix(command.name).strip() if len(bold) == 2 else rest
    yield from (".PP", f"\\fB{_escaped(' '.join(bold))}\\fR {_escaped(shown)}")


def _arguments(command: Command) -> Iterator[str]:
    for operand in command.operands:
        yield from (".TP", f".I {_escaped(operand.name)}", _escaped(_sentence(operand)))
    for option in command.options:
        yield from (".TP", _names(option), _escaped(_sentence(option)))


def _names(option: Option) -> str:
    value = f" \\fI{_escaped(option.value)}\\fR" if option.value else ""
    return ", ".join(f"\\fB{_escaped(name)}\\fR{value}" for name in option.names)


def _sentence(argument: Option | Operand) -> str:
    return argument.text[:1].upper() + argument.text[1:] if argument.text else "(no more to say)"


def _text(text: str) -> Iterator[str]:
    """Paragraphs; indented lines are examples and keep their shape."""
    is_example = False
    for line in text.strip().splitlines():
        if line.startswith("  ") != is_example:
            is_example = not is_example
            yield from (".PP", ".nf", ".RS 2") if is_example else (".RE", ".fi", ".PP")
        yield _escaped(line.strip()) if line.strip() else ".PP" if not is_example else ""
    if is_example:
        yield from (".RE", ".fi")


def _escaped(text: str) -> str:
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("…", "...")
    return "\\&" + text if text.startswith((".", "'")) else text
