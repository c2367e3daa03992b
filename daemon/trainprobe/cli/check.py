"""What works on this host, what does not, why it matters, and the command that mends it.

The exit code is 1 when nothing can be watched.

examples:
  trainprobe check
  sudo trainprobe check            also loads the eBPF programs once, which proves the rest
  trainprobe check --strict        exit code 1 when anything is degraded
  trainprobe check --json          for scripts
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from dataclasses import fields

from trainprobe.cli import FAILED, OK, cells, checks, show
from trainprobe.cli.checks import Finding
from trainprobe.cli.style import Style
from trainprobe.model.amounts import seconds
from trainprobe.runtime.loop.guard import described
from trainprobe.runtime.session import privileges
from trainprobe.text.saying import saying, word

LOOK = {checks.OK: "green", checks.DEGRADED: "yellow", checks.MISSING: "red"}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--strict", action="store_true", help="exit code 1 when anything is degraded or missing")
    parser.add_argument("--json", action="store_true", help="as a JSON list of {name, state, what, why, remedy}")


def act(args: argparse.Namespace) -> int:
    findings = [*checks.all_checks(), probes()]
    if args.json:
        shown = [{part.name: str(getattr(one, part.name)) for part in fields(one)} for one in findings]
        show(json.dumps(shown, indent=2))
    else:
        show(findings_text(findings, Style.of(sys.stdout, os.environ, args.lang)))
    bad = (checks.DEGRADED, checks.MISSING) if args.strict else (checks.MISSING,)
    return FAILED if any(finding.state in bad for finding in findings) else OK


def probes() -> Finding:
    """The proof: load everything, and take it out again."""
    name, why = word("eBPF programs"), word("everything that is told about time comes from them")
    if privileges.missing():
        return Finding(name, checks.DEGRADED, word("not tried: not root"), why, "sudo trainprobe check")
    try:
        from trainprobe.bpf.probes import Probes
        from trainprobe.collect.procfs import Proc

        began = time.monotonic()
        started = Probes.start(Proc(), auto=False)
        try:
            started.await_marks()
            took = time.monotonic() - began
        finally:
            started.close()
    except Exception as error:
        reason = getattr(error, "reason", "") or described(error)
        return Finding(name, checks.MISSING, reason, why, getattr(error, "remedy", ""))
    return Finding(
        name, checks.OK, saying("loaded and attached in {took}, and taken out again", took=seconds(took)), why
    )


def findings_text(findings: list[Finding], style: Style) -> str:
    """One line for each, and what to do below those that need it."""
    lines = []
    for finding in findings:
        head = cells.fill(style.say(finding.state), 8)
        name = cells.fill(_name(finding, style), 14)
        wrapped = style.wrapped(style.speaker.text(finding.what), f"{head}  {name}  ")
        lines += [wrapped[0].replace(head, style.paint(head, LOOK[finding.state]), 1), *wrapped[1:]]
        if finding.state != checks.OK:
            lines += style.wrapped(style.say("needed: {why}", why=style.speaker.text(finding.why)), " " * 26)
            if finding.remedy:
                remedy = style.speaker.text(finding.remedy)
                lines += style.wrapped(style.say("to mend it: {remedy}", remedy=remedy), " " * 26)
    return "\n".join([*lines, "", *style.wrapped(concluded(findings, style))])


def _name(finding: Finding, style: Style) -> str:
    return style.say(word("user shares") if finding.name == "shares" else finding.name)


def concluded(findings: list[Finding], style: Style) -> str:
    missing = [_name(finding, style) for finding in findings if finding.state == checks.MISSING]
    degraded = [_name(finding, style) for finding in findings if finding.state == checks.DEGRADED]
    if missing:
        return style.say("Nothing can be watched before this is mended: {names}.", names=style.listed(missing))
    start = style.say(
        "trainprobe run -- python train.py, or for all trainings of this host: systemctl start trainprobe"
    )
    if degraded:
        return style.say(
            "It works, without what these would give: {names}. To begin: {start}",
            names=style.listed(degraded), start=start,
        )  # fmt: skip
    return style.say("Everything works. To begin: {start}", start=start)
