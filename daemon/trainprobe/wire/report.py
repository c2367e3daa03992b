"""The report, version 1, as JSON: what ``-o`` writes, what the daemon publishes, what the exporter reads."""

from __future__ import annotations

from collections.abc import Sequence

from trainprobe.model.report import Report
from trainprobe.text.saying import saying, word
from trainprobe.wire import codec
from trainprobe.wire.codec import WireError

VERSION = 1


def encode(report: Report, *, indent: int | None = None) -> str:
    """The report as JSON text: valid UTF-8, finite numbers, one line unless ``indent`` is given."""
    return codec.dumps(report, indent=indent)


def decode(text: str | bytes) -> Report:
    """The report that was written by this or a later version 1. Raises WireError with the path of what is wrong."""
    value = codec.loads(text)
    version = value.get("version") if isinstance(value, dict) else None
    if version is None:
        raise WireError(word("it has no version"))
    if version != VERSION:
        raise WireError(
            saying("it is of version {version}, and this program reads version {known}", version=version, known=VERSION)
        )
    report: Report = codec.decode(Report, value)
    return report


_RUNS = b'"runs":['


def combined(texts: Sequence[bytes]) -> bytes:
    """Reports of one run each, as ``encode`` writes them, as one report with all the runs; the rest is the first's."""
    if not texts:
        return encode(Report()).encode()
    # `runs` is the last field, and no text in JSON holds an unescaped quote: the first such bytes are the key.
    head = texts[0].partition(_RUNS)[0]
    runs = [text.partition(_RUNS)[2].removesuffix(b"]}") for text in texts]
    return head + _RUNS + b",".join(run for run in runs if run) + b"]}"
