"""Functions that save a training's state, on Python stacks: serialisers, and what is named like a save of a model."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from trainprobe.derive.files.words import Holds, holds
from trainprobe.derive.python.frameworks import library
from trainprobe.derive.python.stacks import function_name

_FILES = ("serialization.py", "_state_dict_stager.py", "state_dict_saver.py", "pickle.py")
"""Of torch, of flax, of the standard library. The second one copies what torch.distributed.checkpoint.async_save hands
to its thread."""
_OWNERS = frozenset({"torch", "flax"})
_PICKLERS = frozenset({"cloudpickle", "dill"})
_PACKAGES = _PICKLERS | {"safetensors", "orbax", "h5py", "tensorstore"}
_PICTURES = frozenset({"PIL", "matplotlib", "imageio", "plotly", "skimage", "cv2", "moviepy", "bokeh", "altair"})
"""What calls them saves a picture, whatever it is called."""
_OTHERS = frozenset({"numpy", "scipy", "pandas", "json", "yaml", "torchvision", "torchaudio", "soundfile", "nibabel",
                     "trimesh", "datasets", "pyarrow", "zarr", "omegaconf", "wandb",
                     "multiprocessing", "joblib"})  # fmt: skip
"""Whose `save` and `dump` write output and data."""
_SAVES = re.compile(r"save|dumps?|serialize")
_AT_ONCE = ("restore", "resume", "rollback")
_DATA = re.compile(r"data(?:set)?|batch(?:es)?|inputs?|shards?|chunks?|episodes?|sequences?")
"""What a model is fed with, whatever comes before it in the name."""
_KEPT = frozenset({"best", "last", "latest"})
_HUMPS = re.compile(r"(?<=[a-z])(?=[A-Z])")
_READS = re.compile(
    r"(^|_)(?:load|restore|deserialize|read(?:_|$))|^from_|^get_(?:tensor|slice)$|^__(?:getitem|array|iter)__$"
)
"""Of what also saves."""
_STATE = re.compile(r"(get_\w*)?state_dict")
_ABOUT = re.compile(r"_(?:by|with|to|from|for|if|when|on|at|in|of)_")
"""What follows is not what is saved."""
_SAVER = re.compile(r"checkpoint|ckpt|saver", re.IGNORECASE)
_OUTPUT = re.compile(
    r"logg(?:er|ing)|writer|recorder|plot|visuali[sz]|render|timer|profil|dataset|vocab|tokeniz|index|config",
    re.IGNORECASE,
)
"""In the names of classes and files that save something else, though the function's own does not say what."""
_SAYS_NOTHING = re.compile(
    r"to|as|if|now|all|best|last|latest|final|new|current|every|on|at|and|with|for|of|by|top|k|topk|monitor|none|own|do"
    r"|epochs?|steps?|iter|iteration|interval|periodic|maybe|disk|path|files?|fileobj|dir|directory|folder|local|main|rank"
    r"|cpu|async|sync|fsync|distributed|atomic|[0-9]*"
)
"""Words about how or when something is saved, not what."""


def shown_by(stack: Sequence[str]) -> bool:
    """Whether a function on the stack belongs to a serialiser, or is named like a save of a training's state. A save of
    something else, by its name or by a library for pictures, shows none, nor does a serialiser that reads."""
    other = any(library(frame)[0] in _PICTURES or _reads(frame) for frame in stack)
    return not other and any(map(_saves, stack))


def saved_by(stack: Sequence[str]) -> bool:
    """The same by what writes a save alone, to wherever it goes: states are also read, and objects pickled, to be sent
    to other processes; and h5py writes files, which are known themselves."""
    pickled = any("__reduce" in frame for frame in stack)
    return not pickled and shown_by(stack) and any(_saves(frame) and not _hands_over(frame) for frame in stack)


def _hands_over(frame: str) -> bool:
    package, file = library(frame)
    pickles = package in _PICKLERS or file == "pickle.py"
    return pickles or package == "h5py" or _STATE.match("_".join(_words(frame))) is not None


@lru_cache(maxsize=1024)
def _saves(frame: str) -> bool:
    if _serializes(frame):
        return True
    package, file = library(frame)
    words, scope = _words(frame), frame.partition(" (")[0].rpartition(".")[0]
    name = "_".join(words)
    if _STATE.match(name):
        return True
    verbs = [word for word in words if _SAVES.fullmatch(word)]
    if not verbs or (words[0] not in verbs and words[-1] not in verbs):
        return False
    said = {holds(what) for what in _ABOUT.split(name)[0].split("_and_")} - {None}
    if said:
        return Holds.MODEL in said
    if _SAVER.search(scope):
        return True
    if package in _OTHERS or package.startswith("python") or _OUTPUT.search(scope or file):
        return False
    by_itself = holds(scope) != Holds.OUTPUT and "serialize" not in verbs  # which may as well be a message
    return by_itself and all(word in verbs or _SAYS_NOTHING.fullmatch(word) for word in words)


def restored_by(stack: Sequence[str]) -> bool:
    """Whether a function on the stack is named like one that restores a training's state, or its best one."""
    return any(map(_restores, stack))


@lru_cache(maxsize=1024)
def _restores(frame: str) -> bool:
    words = _words(frame)
    if words[0] in _AT_ONCE and len(words) == 1:
        return True
    if words[0] not in (*_AT_ONCE, "load", "reload"):
        return False
    rest = _ABOUT.split("_".join(words[1:]))[0]
    if _DATA.fullmatch(rest.rpartition("_")[2]):
        return False
    by_itself = bool(_KEPT.intersection(words)) and all(map(_SAYS_NOTHING.fullmatch, words[1:]))
    return holds(rest) == Holds.MODEL or by_itself


def _words(frame: str) -> list[str]:
    name = function_name(frame)
    return _HUMPS.sub("_", name).lower().strip("_").split("_")


def _serializes(frame: str) -> bool:
    """Whether it is a serialiser's own; a user's file, or another library's for messages, may be called so."""
    package, file = library(frame)
    return package in _PACKAGES or (file in _FILES and (package in _OWNERS or package.startswith("python")))


@lru_cache(maxsize=1024)
def _reads(frame: str) -> bool:
    return _serializes(frame) and _READS.search(function_name(frame)) is not None
