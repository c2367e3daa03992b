"""Whether Python stacks show that a training sends its figures to an experiment tracker, or reports them otherwise."""

from __future__ import annotations

import re
from collections.abc import Sequence

from trainprobe.derive.python.frameworks import is_own, library

_TRACKERS = frozenset(
    {"wandb", "mlflow", "neptune", "comet_ml", "clearml", "aim", "swanlab", "trackio", "dvclive", "azureml", "sacred"}
    | {"polyaxon", "labml", "tensorboard", "tensorboardX", "visdom"}
)
_REPORTS = re.compile(r"(?:^|_)(?:log(?:s|ging)?(?:_(?!p|soft|like|sum)|$)|report|notify|(?:push|send|post)_metrics?)")
"""In the name of the user's own function: no log_prob."""


def reports(stack: Sequence[str]) -> bool:
    """Whether a tracker's function is on it, or the innermost one of the user's own is named like a report."""
    if any(library(frame)[0].partition("/")[0] in _TRACKERS for frame in stack):
        return True
    own = next((frame for frame in reversed(stack) if is_own(frame)), "")
    return _REPORTS.search(own.partition(" (")[0].rpartition(".")[2].lower()) is not None
