"""A report as text in one of the forms that `trainprobe report` can write."""

from __future__ import annotations

import dataclasses
import gzip
import zlib
from pathlib import Path
from typing import Any

from trainprobe.cli.step_rows import Rows
from trainprobe.cli.style import Style
from trainprobe.cli.text import text_of
from trainprobe.model.report import Report
from trainprobe.text.saying import SaidError, saying
from trainprobe.views import page, perfetto
from trainprobe.wire import codec
from trainprobe.wire import report as wire

FORMATS = ("text", "json", "html", "perfetto")
WITH_STEPS = ("html", "perfetto")
_GZIP = b"\x1f\x8b"


class MergeError(SaidError):
    """The trace to be merged cannot be had; the message says why."""


def formatted(report: Report, form: str, steps: Rows, *, style: Style, merge: Path | None = None) -> str:
    """The report in one of ``FORMATS``, with ``steps`` where it draws them. Raises MergeError."""
    if form == "json":
        return wire.encode(report, indent=2)
    if form == "html":
        rows = [(run, rank, [dataclasses.asdict(row) for row in of]) for (run, rank), of in steps.items()]
        return page.mailed(wire.encode(style.speaker.report(report)), rows, style.speaker.language)
    if form == "perfetto":
        other = _profile(merge) if merge else None
        made = perfetto.trace(report, steps, None if other is None else perfetto.base_of(other))
        return codec.dumps(made if other is None else perfetto.merged(made, other))
    return text_of(report, style)


def _profile(path: Path) -> dict[str, Any]:
    try:
        data = path.read_bytes()
        other = codec.loads(gzip.decompress(data) if data.startswith(_GZIP) else data)
    except (OSError, EOFError, zlib.error, ValueError) as error:
        raise MergeError(saying("{path} cannot be read as a trace: {error}", path=path, error=error)) from None
    if not isinstance(other, dict) or not isinstance(other.get("traceEvents"), list):
        raise MergeError(saying("{path} is no trace of PyTorch's profiler: it has no traceEvents", path=path))
    return other
