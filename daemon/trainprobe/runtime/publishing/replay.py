"""A recording through the same core that saw it live."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from io import BufferedIOBase

from trainprobe.model.moment import Moment
from trainprobe.model.report import Report
from trainprobe.model.steprow import RankSteps
from trainprobe.pipeline import Pipeline
from trainprobe.text.saying import word
from trainprobe.wire.codec import WireError
from trainprobe.wire.recording import Header, read_frames, read_header


def replay(lines: BufferedIOBase, make_core: Callable[[Header], Pipeline]) -> tuple[Report, Sequence[RankSteps]]:
    """The report as of the last frame, and the rows of its steps. Raises WireError when this is no recording, or one
    without frames."""
    core = make_core(read_header(lines))
    last: Moment | None = None
    for frame in read_frames(lines):
        core.step(frame)
        # Live, both are asked after every frame; a core that counts on it must see the same here.
        core.wants()
        core.armed()
        last = frame.at
    if last is None:
        raise WireError(word("a recording without a frame"))
    return core.report(last), core.take_steps(last)
