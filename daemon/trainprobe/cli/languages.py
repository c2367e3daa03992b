"""The option for the reader's language."""

from __future__ import annotations

import argparse

from trainprobe.text.catalogue import LANGUAGES


def add_language(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--lang", choices=LANGUAGES, help="language of what is printed (default: LANG's, else English): %(choices)s"
    )
