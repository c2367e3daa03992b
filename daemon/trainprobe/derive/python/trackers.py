"""Whether Python stacks show that a training reports its figures, to an experiment tracker mostly, or uploads files."""

from __future__ import annotations

import re
from collections.abc import Sequence

from trainprobe.derive.python.frameworks import is_own, library
from trainprobe.derive.python.stacks import function_name

_TRACKERS = frozenset(
    {"wandb", "mlflow", "neptune", "comet_ml", "clearml", "aim", "swanlab", "trackio", "dvclive", "azureml", "sacred"}
    | {"polyaxon", "labml", "tensorboard", "tensorboardX", "visdom"}
)
_REPORTS = re.compile(r"(?:^|_)(?:log(?:s|ging)?(?:_(?!p|soft|like|sum)|$)|report|notify|(?:push|send|post)_metrics?)")
"""In the name of the user's own function: no log_prob."""
_UPLOADS = re.compile(r"(?:^|_)(?:upload|push_to_hub)", re.IGNORECASE)


def reports(stack: Sequence[str]) -> bool:
    """Whether a tracker's function is on it, or one named like an upload; or the innermost one of the user's own
    is named like a report."""
    if any(
        library(frame)[0].partition("/")[0] in _TRACKERS or _UPLOADS.search(function_name(frame)) for frame in stack
    ):
        return True
    own = next((frame for frame in reversed(stack) if is_own(frame)), "")
    return _REPORTS.search(function_name(own).lower()) is not None
