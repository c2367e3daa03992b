"""Evidence about a thread that writes a file: the kernel throttles it until dirty pages are written back."""

from __future__ import annotations

from trainprobe.causes.base import Window
from trainprobe.model.message import Message, template

HELD_BACK = template(
    "writing.held_back",
    "the kernel holds the writer back until the disk has caught up (balance_dirty_pages, in {hits} of {looks} looks)",
)


def held_back(window: Window) -> list[Message]:
    """That the step's writer waits for the write-back of what was written before, where looks found it there."""
    late = window.late
    return [HELD_BACK(hits=late.held_back, looks=late.inspections)] if late.held_back else []
