"""The report of a recording: the same analysis of what was recorded. Needs no root and no eBPF.

examples:
  trainprobe replay run.jsonl
  trainprobe replay run.jsonl -o report.json
  trainprobe replay run.jsonl.gz
"""

from __future__ import annotations

import argparse
import gzip
import io
import os
import sys
import zlib
from pathlib import Path

from trainprobe.cli import FAILED, OK, WRONG, Refusal, outputs, published, show
from trainprobe.cli.compose_core import recorded_core
from trainprobe.cli.style import Style
from trainprobe.cli.text import text_of
from trainprobe.runtime.publishing.replay import replay
from trainprobe.text.saying import Text, saying, word
from trainprobe.wire import report_file
from trainprobe.wire.codec import WireError

WRITES_ONE = word("trainprobe run --record REC.jsonl -- COMMAND writes one")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("recording", type=Path, metavar="REC.jsonl", help="what --record wrote")
    parser.add_argument("-o", dest="output", type=Path, metavar="REPORT.json", help="write the report there, as JSON")


def act(args: argparse.Namespace) -> int:
    try:
        output = outputs.checked(args.output) if args.output else None
        if outputs.are_one(output, Path(os.path.realpath(args.recording))):
            remedy = f"trainprobe replay {args.recording} -o REPORT.json"
            raise Refusal(WRONG, saying("{path} is a recording, no report", path=output), remedy)
        with _opened(args.recording) as lines:
            report, steps = replay(lines, recorded_core)
        if output:
            outputs.write(output, report_file.pieces(report, steps))
    except (WireError, EOFError, zlib.error) as error:
        why = saying("{path}: {why}", path=args.recording, why=error)
        raise Refusal(FAILED, why, _remedy(args.recording)) from None
    except BrokenPipeError:
        raise
    except OSError as error:
        raise Refusal(FAILED, outputs.reason(error), "" if os.path.isfile(args.recording) else WRITES_ONE) from None
    show(text_of(report, Style.of(sys.stdout, os.environ, args.lang)))
    return OK


def _opened(path: Path) -> gzip.GzipFile | io.BufferedReader:
    """Recordings are mailed and kept compressed."""
    with path.open("rb") as file:
        compressed = file.read(len(published.GZIP)) == published.GZIP
    return gzip.open(path) if compressed else path.open("rb")


def _remedy(path: Path) -> Text:
    try:
        published.of_file(path)
    except Refusal:
        return WRITES_ONE
    return saying("it is a report: {command}", command=f"trainprobe report --input {path}")
