"""The program: `trainprobe VERB …`. A module for each of `VERBS` builds what it needs and returns an exit code; the
others are what these share."""

from __future__ import annotations

from trainprobe.cli import interrupts

# isort: split
import argparse
import errno
import gc
import importlib
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from _typeshed import SupportsWrite

from trainprobe import __version__
from trainprobe.cli.terminal import Terminal, columns
from trainprobe.text import command_line
from trainprobe.text.catalogue import LANGUAGES
from trainprobe.text.saying import Text, saying, word

OK, FAILED, WRONG, FORBIDDEN, OWN_FAILURE = 0, 1, 2, 3, 125
"""Exit codes; the last one is for `run`, whose other codes belong to its command."""

VERBS = {
    "run": word("run a command under observation and say where its time went"),
    "attach": word("observe a training that already runs"),
    "top": word("all trainings of this host as they run"),
    "page": word("the address of the live page, with its token"),
    "report": word("what the daemon kept"),
    "advise": word("the settings that a run should have, with what they gain"),
    "compare": word("two runs side by side, and what explains the difference"),
    "replay": word("the report of a recording, with no root and no eBPF"),
    "check": word("what works on this host, what does not, and the command that mends it"),
    "daemon": word("find and observe trainings by themselves (what the systemd unit runs)"),
}
HIDDEN = ("observe",)

EPILOG = word("""\
the first things to try:
  trainprobe check                             does it work on this host?
  trainprobe run -- python train.py            watch a training from its start
  trainprobe attach 12345                      watch one that runs; Ctrl-C ends the watching, not the training
  systemctl start trainprobe                   watch all trainings of this host from now on
  trainprobe top                               the trainings as they run: it/s, stalls, headroom
  trainprobe page                              the address of the live page, for a browser
  trainprobe report                            what the daemon has seen so far
  trainprobe advise report.json                what to set differently, and what it gains (run -o report.json)
  trainprobe compare before.json after.json    did it help?

exit codes: 0 well; 1 what was asked for failed; 2 wrong arguments or configuration; 3 not root or a capability missing.
`trainprobe run` returns the exit code of its command (128+N for signal N); 126 and 127 where it cannot be executed or
is not found, 125 where trainprobe failed before it started it.""")


class Refusal(Exception):
    """Why a verb cannot do what it was asked for: an exit code, the reason, what mends it, and further lines."""

    def __init__(self, code: int, reason: Text, remedy: Text = "", details: Sequence[Text] = ()) -> None:
        super().__init__(reason)
        self.code, self.reason, self.remedy, self.details = code, reason, remedy, details


class Parser(argparse.ArgumentParser):
    """Wrong arguments end with ``wrong``."""

    wrong = WRONG
    verb = ""  # whose arguments are read: what it does not know is told by the whole program's parser

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        remedy = command_line.say("to mend it: {remedy}").format(
            remedy=" ".join(filter(None, (self.prog, self.verb, "--help")))
        )
        self.exit(self.wrong, f"{self.prog}: {message}\n  {remedy}\n")

    def _print_message(self, message: str, file: SupportsWrite[str] | None = None) -> None:
        if file is sys.stdout:
            show(message, end="")
        else:
            on_stderr(message, end="")


def main(arguments: Sequence[str] | None = None) -> int:
    given = list(sys.argv[1:] if arguments is None else arguments)
    if sys.stderr is None:  # closed by the caller: what is meant for it would go to stdout
        _read_by_nobody()
    try:
        return _run(_verb_first(given))
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # `trainprobe report | head`: the reader has seen enough
        sys.stdout = None
        return FAILED
    except Refusal as refusal:
        complain(refusal.reason, refusal.remedy)
        tell(*refusal.details)
        return refusal.code


def _verb_first(given: list[str]) -> list[str]:
    """``trainprobe --lang zh report`` as ``trainprobe report --lang zh``."""
    options = 2 if given[:1] == ["--lang"] else int(given[:1] != [] and given[0].startswith("--lang="))
    return [*given[options : options + 1], *given[:options], *given[options + 1 :]]


def _run(given: Sequence[str]) -> int:
    _asked.set(command_line.asked_language(given))
    if given and not given[0].startswith("-") and given[0] not in (*VERBS, *HIDDEN):
        complain(
            saying("there is no verb {given}; there are: {names}", given=f"{given[0]!r}", names=", ".join(VERBS)),
            _meant(given),
        )
        return WRONG
    with command_line.spoken_in(Terminal.of(sys.stdout, os.environ, _asked.get()).language):
        if not given:
            show(parser(()).format_help(), end="")
            return WRONG
        made = parser(given[:1], own_failure=given[:1] == ["run"])
        made.verb = given[0] if given[0] in VERBS else ""
        args = made.parse_args(given)
    _asked.set(getattr(args, "lang", None))
    code: int = args.act(args)
    return code


def show(text: str, end: str = "\n") -> None:
    """Print what a verb answers. Raises BrokenPipeError when its reader is gone, Refusal when it cannot be written."""
    try:
        if sys.stdout is None:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        try:
            print(text, end=end, flush=True)
        except UnicodeEncodeError:  # a locale that lacks some characters
            encoding = sys.stdout.encoding
            print(text.encode(encoding, "replace").decode(encoding), end=end, flush=True)
    except BrokenPipeError:
        raise
    except OSError as error:
        sys.stdout = None  # the exit would write the rest once more
        reason = saying("stdout: {why}", why=saying(error.strerror or str(error)))
        raise Refusal(FAILED, reason) from None


def _meant(given: Sequence[str]) -> Text:
    """What somebody wanted who wrote this: a verb that is written much like it, or to run a command."""
    import difflib  # which, as shutil elsewhere, takes some milliseconds of every start

    near = difflib.get_close_matches(given[0], VERBS, n=1)
    if near:
        return shlex.join(["trainprobe", near[0], *given[1:]])
    return saying("to watch a command: {command}", command=shlex.join(["trainprobe", "run", "--", *given]))


def complain(text: Text, remedy: Text = "") -> None:
    """Tell what is wrong, and in a line of its own what mends it."""
    translated = _translator()
    on_stderr(f"trainprobe: {translated(text)}")
    if remedy:
        on_stderr(f"  {translated(saying('to mend it: {remedy}', remedy=translated(remedy)))}")


def tell(*lines: Text) -> None:
    """Further lines on stderr."""
    translated = _translator()
    for line in lines:
        on_stderr(translated(line))


def _read_by_nobody() -> None:
    """What goes to stderr from now on is dropped."""
    sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - for as long as we live


def on_stderr(text: str, end: str = "\n") -> None:
    """Print it. Where nobody can read it any more (`2>&1 | head`, a full disk, a terminal that is gone) that changes
    nothing else: what the program does and its exit code are the same."""
    try:
        print(text, end=end, file=sys.stderr, flush=True)
    except OSError:
        _read_by_nobody()


def _translator() -> Callable[[Text], str]:
    """For the reader of stderr. What strangers wrote in it, as the name of a run, does nothing to a terminal."""
    from trainprobe.cli.style import inert
    from trainprobe.text.catalogue import chosen
    from trainprobe.text.render import Speaker

    said = Speaker(chosen(_asked.get(), os.environ)).text
    return lambda text: "\n".join(inert(line, len(line)) for line in said(text).split("\n"))


_asked: ContextVar[str | None] = ContextVar("asked", default=None)
"""The language that the command line asks for."""


def loaded(module: str) -> ModuleType:
    """A module, imported with the collector at rest: nothing of it is garbage, and the search takes a tenth more."""
    gc.disable()
    try:
        return importlib.import_module(module)
    finally:
        gc.enable()


def parser(whole: Sequence[str] = tuple(VERBS), *, own_failure: bool = False) -> Parser:
    """The whole command line. Only the verbs in ``whole`` have their arguments: each costs its imports.

    ``own_failure``: what is wrong is told with the exit code that `run` keeps for itself.
    """
    help_text = partial(command_line.HelpText, width=columns(os.environ) - 2)
    made = Parser(
        prog="trainprobe",
        description=word(
            "Says which cause owns the time that a training loses, from the kernel's own accounting (eBPF)."
        ),
        epilog=EPILOG,
        formatter_class=help_text,
    )
    if own_failure:
        made.wrong = OWN_FAILURE
    made.add_argument("--version", action="version", version=f"trainprobe {__version__}")
    _add_language(made)
    verbs = made.add_subparsers(
        prog="trainprobe", title=word("verbs"), metavar="VERB", required=True, parser_class=Parser
    )
    for verb in (*VERBS, *(name for name in HIDDEN if name in whole)):
        one = verbs.add_parser(verb, formatter_class=help_text, help=VERBS.get(verb))
        if verb in whole:
            module = loaded(f"trainprobe.cli.{verb}")
            one.description = module.__doc__
            module.configure(one)
            if verb not in HIDDEN:  # these speak to programs
                _add_language(one)
            one.set_defaults(act=module.act)
    return made


def _add_language(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--lang", choices=LANGUAGES, help="language of what is printed (default: LANG's, else English): %(choices)s"
    )


interrupts.as_before()
