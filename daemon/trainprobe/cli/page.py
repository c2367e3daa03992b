"""Prints the address of the live page, with the token that opens it.

examples:
  trainprobe page
  trainprobe page --url https://cluster.example/node7/trainprobe/      behind a reverse proxy

The exporter serves the page and makes the token; root and the exporter's group can read it. From another machine:
  ssh -L 19752:127.0.0.1:19752 HOST     and open the same address there"""

from __future__ import annotations

import argparse
import os
import re
import socket
import sys
from pathlib import Path
from urllib.parse import quote, urlsplit

from trainprobe.cli import FAILED, FORBIDDEN, OK, Refusal, on_stderr, show
from trainprobe.cli.style import Style
from trainprobe.text.command_line import invalid
from trainprobe.text.saying import saying, word

DIRECTORY = Path("/run/trainprobe-exporter")
USUAL = "http://127.0.0.1:19752"
_URL = re.compile(r"https?://[!-~]+")
_ANYWHERE = re.compile(r"(?<=//)(0\.0\.0\.0|\[::\])(?=:)")
_LIMIT = 512
LONGEST = 3.0  # seconds that are waited for an answer


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--url", type=url, metavar="URL", help="where browsers reach the exporter (a proxy's address)")
    parser.add_argument(
        "--directory", type=Path, default=DIRECTORY, metavar="DIR", help="where the exporter keeps its token"
    )


def url(text: str) -> str:
    """An address to put the token behind."""
    if not _URL.fullmatch(text) or "?" in text or "#" in text:
        raise invalid(saying("{text} is no address of a page; example: https://host/trainprobe/", text=repr(text)))
    return text


def act(args: argparse.Namespace) -> int:
    try:
        token = _line(args.directory / "token")
    except FileNotFoundError:
        remedy = word("systemctl start trainprobe-exporter, or: trainprobe-exporter")
        raise Refusal(FAILED, word("no exporter runs here"), remedy) from None
    except PermissionError:
        remedy = word("sudo trainprobe page, or: adduser NAME trainprobe")
        raise Refusal(FORBIDDEN, word("the token is for root and the exporter's group"), remedy) from None
    except OSError as error:
        reason = saying("the token cannot be read: {strerror}", strerror=error.strerror)
        raise Refusal(FAILED, reason, word("systemctl restart trainprobe-exporter")) from None
    base = args.url or _address(args.directory)
    if not args.url and not _answers(base):
        reason = saying("the exporter is gone: nothing listens at {address}", address=base)
        raise Refusal(FAILED, reason, "systemctl restart trainprobe-exporter")
    show(f"{base.rstrip('/')}/?token={quote(token)}")
    if sys.stdout.isatty():
        style = Style.of(sys.stderr, os.environ, args.lang)
        warning = style.say("(the address holds the token: whoever has it sees all runs of this host)")
        on_stderr(warning)
    return OK


def _address(directory: Path) -> str:
    """Where the exporter says it is; the usual place if it does not."""
    try:
        told = _line(directory / "address")
    except OSError:
        return USUAL
    return _ANYWHERE.sub("127.0.0.1", told) if _URL.fullmatch(told) else USUAL


def _answers(address: str) -> bool:
    """Whether something listens there."""
    parts = urlsplit(address)
    try:
        with socket.create_connection((parts.hostname or "127.0.0.1", parts.port or 443), LONGEST):
            return True
    except OSError:
        return False


def _line(path: Path) -> str:
    with path.open(encoding="ascii", errors="replace") as file:
        return file.read(_LIMIT).strip()
