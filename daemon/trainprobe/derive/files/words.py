"""What the words of a name, of a file or of a function, say that it holds: a model's state, or output for people."""

from __future__ import annotations

import re
from functools import lru_cache

from trainprobe.model.text import StrEnum

_MODEL = (
    "models? state_?dicts? checkpoints? ckpts? weights? optim optimizers? states? params? parameters? pretrained"
    " variables? nets? networks? modules? policy agents? actors? critics? learners? trainers? lora ema adapters?"
    " encoders? decoders? generators? discriminators? schedulers? snapshots? splats? gaussians"
)
_RESULTS = "preds? predictions predicted detections submissions? logits? caches? cached"
"""No part of a model is called so. Features and embeddings may be one."""
_OUTPUT = (
    "results embeddings features traces outputs samples examples images imgs pictures plots figs figures grids videos"
    " masks metrics stats statistics scores reports logs histories visuals visuali[sz]ations? curves meshes audios"
    " memory_snapshot"
)
_THING = (
    "prediction detection result embedding feature trace output sample example image img picture plot fig figure grid"
    " video mask report log history curve mesh audio visual"
)
"""The same of one of them, at the end of a name. Before another word it says what a model is for: ``mask_rcnn``."""
_WORDS = re.compile(
    rf"(?<![a-z])(?:(?P<results>{'|'.join(_RESULTS.split())})|(?P<output>{'|'.join(_OUTPUT.split())})"
    rf"|(?P<thing>{'|'.join(_THING.split())})|(?P<model>{'|'.join(_MODEL.split())}))(?![a-z])"
)
_BEHIND = re.compile(
    r"(?:[^a-z.]*(?:epochs?|ep|e|steps?|iter|iterations?|it|i|batch|fold|rank|idx|id|v|version|best|last|latest|final"
    r"|new|old|tmp|all|train|training|val|valid|validation|test|dev|eval)(?![a-z]))*[^a-z.]*(?:\..*)?"
)
"""What may follow at the end: a number, of what or of when it is, an extension."""
_HUMPS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


class Holds(StrEnum):
    MODEL = "model"
    OUTPUT = "output"


def holds(name: str) -> Holds | None:
    """The last such word decides: ``model_predictions`` are predictions, ``prediction_model`` is a model. None: there
    is none."""
    last = _last(name)
    return None if last is None else Holds.MODEL if last == "model" else Holds.OUTPUT


def holds_results(name: str) -> bool:
    """Whether that is what a model computed, or a cache: in no format a model."""
    return _last(name) == "results"


@lru_cache(maxsize=1024)
def _last(name: str) -> str | None:
    """The kind of the last word that says something."""
    text = _HUMPS.sub("_", name).lower()
    words = _WORDS.finditer(text)
    found = [one.lastgroup for one in words if one.lastgroup != "thing" or _BEHIND.fullmatch(text, one.end())]
    return found[-1] if found else None
