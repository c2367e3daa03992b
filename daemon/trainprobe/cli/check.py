"""What works on this host, what does not, why it matters, and the command that mends it.

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
from dataclasses import asdict

from trainprobe.cli import FAILED, OK, checks
from trainprobe.cli.checks import Finding
from trainprobe.cli.style import Style
from trainprobe.runtime import privileges
from trainprobe.runtime.guard import described

LOOK = {checks.OK: "green", checks.DEGRADED: "yellow", checks.MISSING: "red"}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--strict", action="store_true", help="exit code 1 when anything is degraded or missing")
    parser.add_argument("--json", action="store_true", help="as a JSON list of {name, state, what, why, remedy}")


def act(args: argparse.Namespace) -> int:
    findings = [*checks.all_checks(), probes()]
    if args.json:
        print(json.dumps([asdict(finding) for finding in findings], indent=2))
    else:
        print(told(findings, Style.of(sys.stdout, os.environ)))
    degraded = any(finding.state != checks.OK for finding in findings)
    return FAILED if args.strict and degraded else OK


def probes() -> Finding:
    """The proof: load everything, and take it out again."""
    name, why = "eBPF programs", "everything that is told about time comes from them"
    if privileges.missing():
        return Finding(name, checks.DEGRADED, "not tried: not root", why, "sudo trainprobe check")
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
    return Finding(name, checks.OK, f"loaded and attached in {took:.1f} s, and taken out again", why)


def told(findings: list[Finding], style: Style) -> str:
    """One line for each, and what to do below those that need it."""
    lines = []
    for finding in findings:
        state = style.paint(f"{finding.state:<8}", LOOK[finding.state])
        wrapped = style.wrapped(finding.what, f"{finding.state:<8}  {finding.name:<14}  ")
        lines += [wrapped[0].replace(finding.state.ljust(8), state, 1), *wrapped[1:]]
        if finding.state != checks.OK:
            lines += style.wrapped(f"needed: {finding.why}", " " * 26)
            if finding.remedy:
                lines += style.wrapped(f"to mend it: {finding.remedy}", " " * 26)
    return "\n".join([*lines, "", *style.wrapped(concluded(findings))])


def concluded(findings: list[Finding]) -> str:
    """All of it in one sentence, and what to do next."""
    missing = [finding.name for finding in findings if finding.state == checks.MISSING]
    degraded = [finding.name for finding in findings if finding.state == checks.DEGRADED]
    if missing:
        return f"Nothing can be watched before this is mended: {', '.join(missing)}."
    start = "trainprobe run -- python train.py, or for all trainings of this host: systemctl start trainprobe"
    if degraded:
        return f"It works, without what these would give: {', '.join(degraded)}. To begin: {start}"
    return f"Everything works. To begin: {start}"
