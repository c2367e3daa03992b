"""The report of a recording: the same core is told the same things. Needs no root and no eBPF.

examples:
  trainprobe replay run.jsonl
  trainprobe replay run.jsonl -o report.json
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from trainprobe.cli import FAILED, OK, complain, outputs
from trainprobe.cli.compose_core import recorded_core
from trainprobe.cli.languages import add_language
from trainprobe.cli.style import Style
from trainprobe.cli.text import text_of
from trainprobe.runtime.replay import replay
from trainprobe.wire import report as wire
from trainprobe.wire.codec import WireError


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("recording", type=Path, metavar="REC.jsonl", help="what --record wrote")
    parser.add_argument("-o", dest="output", type=Path, metavar="REPORT.json", help="write the report there, as JSON")
    add_language(parser)


def act(args: argparse.Namespace) -> int:
    try:
        output = outputs.checked(args.output) if args.output else None
        with args.recording.open("rb") as lines:
            report = replay(lines, recorded_core)
        print(text_of(report, Style.of(sys.stdout, os.environ, args.lang)))
        if output:
            outputs.write(output, wire.encode(report, indent=2) + "\n")
    except WireError as error:
        complain(f"{args.recording}: {error}")
        return FAILED
    except OSError as error:
        complain(outputs.reason(error))
        return FAILED
    return OK
