"""What the exporter prints: on stderr, in the language that was asked for."""

from __future__ import annotations

import sys

from trainprobe.text.render import Speaker
from trainprobe.text.saying import Text

_speaker = Speaker()


def speak(language: str) -> None:
    """From now on in this language: the process has one stderr."""
    global _speaker
    _speaker = Speaker(language)


def tell(*lines: Text) -> None:
    for line in lines:
        print(_speaker.text(line), file=sys.stderr, flush=True)
