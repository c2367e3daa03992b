"""What the words of a name, of a file or of a function, say that it holds: a model's state, or output for people."""

from __future__ import annotations

import re
from functools import lru_cache

from trainprobe.model.text import StrEnum

_MODEL = (
    "models? state_?dicts? checkpoints? ckpts? weights? optim optimizers? states? params? parameters? pretrained"
    " variables? nets? networks? modules? policy agents? actors? critics? learners? trainers? lora ema adapters?"
    " encoders? decoders? generators? discriminators? schedulers? snapshots?"
)
_OUTPUT = (
    "preds? predictions? predicted results? detections? submissions? embeddings? features? logits? traces? outputs?"
    " samples? examples? images? imgs? pictures? plots? figs? figures? grids? videos? masks? metrics stats statistics"
    " scores reports? logs? history histories visuals? visuali[sz]ations? curves? meshes audios? memory_snapshot"
)
_WORDS = re.compile(
    rf"(?<![a-z])(?:(?P<output>{'|'.join(_OUTPUT.split())})|(?P<model>{'|'.join(_MODEL.split())}))(?![a-z])"
)
_HUMPS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


class Holds(StrEnum):
    MODEL = "model"
    OUTPUT = "output"


@lru_cache(maxsize=1024)
def holds(name: str) -> Holds | None:
    """The last such word decides: ``model_predictions`` are predictions, ``prediction_model`` is a model. None: there
    is none."""
    found = [Holds.MODEL if one["model"] else Holds.OUTPUT for one in _WORDS.finditer(_HUMPS.sub("_", name).lower())]
    return found[-1] if found else None
