"""Ctrl-C while the program is imported ends it by the signal, silently, as it ends any program. Imported first."""

from __future__ import annotations

import signal

_before = signal.getsignal(signal.SIGINT)


def as_before() -> None:
    """All is imported: from now on Ctrl-C is a KeyboardInterrupt."""
    if _before is signal.default_int_handler:
        signal.signal(signal.SIGINT, _before)


if _before is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
