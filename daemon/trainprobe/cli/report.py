"""What the daemon kept: of all runs for root and the group trainprobe, of your own runs for you.

examples:
  trainprobe report
  trainprobe report --run train.py-3f2a91c0
  trainprobe report --slurm-job 4242
  trainprobe report --pod team-a/trainer-0
  trainprobe report --since 2h --format json -o report.json
  trainprobe report --format html -o report.html        the live page as one file to mail
  trainprobe report --format perfetto -o trace.json     for ui.perfetto.dev or chrome://tracing
  trainprobe report --format perfetto --merge profile.json -o both.json     together with PyTorch's profile
  trainprobe report run.json --format html -o run.html     a report of `trainprobe run -o run.json`
"""

from __future__ import annotations

import argparse
import dataclasses
import io
import os
import re
import sys
import time
from pathlib import Path

from trainprobe.cli import FAILED, OK, WRONG, Refusal, complain, formats, outputs, published, show, step_rows
from trainprobe.cli.style import Style
from trainprobe.model.amounts import seconds
from trainprobe.model.report import Rank, Report, Run
from trainprobe.model.vocabulary import REPORT_STALE_SECONDS
from trainprobe.runtime.loop import clock
from trainprobe.runtime.publishing import rundir
from trainprobe.text.command_line import invalid
from trainprobe.text.render import Speaker
from trainprobe.text.saying import saying, word

UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
LATEST = 16  # runs that are told of where no daemon runs and nobody asks for more


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file",
        nargs="?",
        type=Path,
        metavar="REPORT.json",
        help="what `run -o` wrote (default: what the daemon kept)",
    )
    parser.add_argument("--run", metavar="ID", help="this run only; the beginning of its name is enough")
    parser.add_argument("--slurm-job", metavar="ID", help="the runs of this Slurm job: 4242, 4242_7, 4242.0")
    parser.add_argument("--pod", metavar="NAME", help="the runs of this pod: NAME, NAMESPACE/NAME or its uid")
    parser.add_argument("--since", type=since, metavar="2h", help="only what was later: 90s, 30m, 2h, 7d ago")
    parser.add_argument(
        "--format", type=format_, default="text", metavar="|".join(formats.FORMATS), help="default: text"
    )
    parser.add_argument("-o", dest="output", type=Path, metavar="FILE", help="write it there")
    parser.add_argument(
        "--merge", type=Path, metavar="TRACE", help="with perfetto: add to this trace of PyTorch's profiler"
    )
    parser.add_argument("--input", type=Path, metavar="FILE", help="the same as REPORT.json")
    parser.add_argument("--directory", type=Path, default=rundir.DIRECTORY, help=argparse.SUPPRESS)
    parser.add_argument("--state", type=Path, default=rundir.STATE, help=argparse.SUPPRESS)


def since(text: str) -> float:
    """Seconds that a duration such as 2h has."""
    found = re.fullmatch(r"(\d{1,9}(?:\.\d{1,3})?)([smhd])", text)
    if not found:
        raise invalid(saying("{text} is no duration; examples: 90s, 30m, 2h, 7d", text=repr(text)))
    return float(found[1]) * UNITS[found[2]]


def format_(text: str) -> str:
    if text not in formats.FORMATS:
        raise invalid(
            saying("{text} is no format; there are: {names}", text=repr(text), names=", ".join(formats.FORMATS))
        )
    return text


def act(args: argparse.Namespace) -> int:
    args.input = args.file or args.input
    if args.merge and args.format != "perfetto":
        raise Refusal(WRONG, word("--merge goes with --format perfetto"))
    report = published.of_file(args.input) if args.input else _found(args)
    if _asked(args):
        chosen = [run for run in report.runs if _is_asked_for(run, args)]
        if not chosen:
            raise published.unknown(_asked(args), report)
        report = dataclasses.replace(report, runs=chosen)
    start = time.time() - args.since if args.since is not None else 0.0
    if start:
        report = later(report, start)
    try:
        steps = _steps(report, args, start) if args.format in formats.WITH_STEPS else {}
        text = formats.formatted(report, args.format, steps, style=_style(args.output, args.lang), merge=args.merge)
    except formats.MergeError as error:
        raise Refusal(FAILED, error.as_saying) from None
    if args.format != "text" and isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")  # as in a file, whatever the locale's
    return write(text, args.output)


def _steps(report: Report, args: argparse.Namespace, start: float) -> step_rows.Rows:
    """Of what is drawn: from the file that the report is from, else from the history."""
    if args.input:
        return step_rows.of_file(args.input, report, start)
    return step_rows.of_report(report, args.state, start)


def _asked(args: argparse.Namespace) -> str:
    """The name of the wanted runs; "" for all."""
    return args.run or args.slurm_job or args.pod or ""


def _is_asked_for(run: Run, args: argparse.Namespace) -> bool:
    return (
        (not args.run or run.key.startswith(args.run))
        and (not args.slurm_job or _is_of_job(run, args.slurm_job))
        and (not args.pod or _is_of_pod(run, args.pod))
    )


def _is_of_job(run: Run, job: str) -> bool:
    """``job``: a job, an array, a task of an array (ARRAY_TASK) or a step (JOB.STEP)."""
    task = run.labels.get("slurm_array_task") or ""
    known = (run.labels.get("slurm_job"), task, task.partition("_")[0])
    return job in filter(None, known) or ("." in job and run.key.rpartition("-")[0] == job)


def _is_of_pod(run: Run, pod: str) -> bool:
    namespace, name, uid = (run.labels.get(key) for key in ("namespace", "pod", "pod_uid"))
    return pod in filter(None, (name, name and f"{namespace}/{name}", uid))


def _found(args: argparse.Namespace) -> Report:
    """What the daemon tells now; with ``--since`` or a name, and where no daemon runs, also what it kept."""
    live = refusal = None
    try:
        live = published.fresh(args.directory)
    except Refusal as error:
        refusal = error
    if live is not None and (age := live.age(clock.now())) > REPORT_STALE_SECONDS:
        complain(saying("the daemon has published nothing for {age}", age=seconds(age)), "systemctl status trainprobe")
    elif live is not None and args.since is None and not _asked(args):
        return live
    since = time.time() - args.since if args.since is not None else 0.0
    report = published.together(live, published.kept(args.state, since))
    if report is None:
        raise refusal or AssertionError("neither a report nor a reason")
    if live is None:
        complain(word("no daemon runs; this is what was kept"), "systemctl start trainprobe")
        if args.since is None and not _asked(args):
            report = dataclasses.replace(report, runs=report.runs[-LATEST:])
    return report


def write(text: str, output: Path | None) -> int:
    """To the file, else to stdout."""
    if output is None:
        show(text)
        return OK
    try:
        outputs.write(outputs.checked(output), (text, "\n"))
    except BrokenPipeError:
        raise
    except OSError as error:
        raise Refusal(FAILED, outputs.reason(error)) from None
    return OK


def later(report: Report, start: float) -> Report:
    """Runs that were alive after ``start``, with what happened in them after it. Sums stay those of the whole run."""
    runs = [run for run in report.runs if run.ended is None or run.ended >= start]
    return dataclasses.replace(report, runs=[_later(run, start) for run in runs])


def _later(run: Run, start: float) -> Run:
    def cut(rank: Rank) -> Rank:
        return dataclasses.replace(
            rank,
            stalls=[stall for stall in rank.stalls if stall.end is None or stall.end >= start],
            warnings=[warning for warning in rank.warnings if warning.time >= start],
            checkpoints=[saved for saved in rank.checkpoints if saved.end is None or saved.end >= start],
        )

    return dataclasses.replace(run, ranks=[cut(rank) for rank in run.ranks])


def _style(output: Path | None, language: str | None) -> Style:
    """A file is for anybody: no colour, and English unless another language was asked for."""
    return Style(speaker=Speaker(language or "en")) if output else Style.of(sys.stdout, os.environ, language)
