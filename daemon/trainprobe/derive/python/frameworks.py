"""The framework that runs a training's loop, by the files on its Python stacks and by what it imported."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from trainprobe.model.dataclass import dataclass

LOOPS: Mapping[str, tuple[str, ...]] = {
    "transformers": ("trainer.py",),
    "sentence_transformers": ("trainer.py", "fit_mixin.py", "SentenceTransformer.py"),
    "lightning": ("pytorch/trainer/trainer.py", "pytorch/loops/fit_loop.py", "pytorch/loops/training_epoch_loop.py"),
    "pytorch_lightning": ("trainer/trainer.py", "loops/fit_loop.py", "loops/training_epoch_loop.py"),
    "mmengine": ("runner/runner.py", "runner/loops.py"),
    "mmcv": ("runner/iter_based_runner.py", "runner/epoch_based_runner.py"),
    "ultralytics": ("engine/trainer.py", "engine/model.py"),
    "keras": ("src/backend/torch/trainer.py", "src/backend/tensorflow/trainer.py", "src/backend/jax/trainer.py",
              "src/engine/training.py"),
    "stable_baselines3": ("common/on_policy_algorithm.py", "common/off_policy_algorithm.py"),
    "nnunetv2": ("training/nnUNetTrainer/nnUNetTrainer.py", "run/run_training.py"),
    "monai": ("engines/trainer.py", "engines/workflow.py"),
    "ignite": ("engine/engine.py",),
    "fastai": ("learner.py",),
    "skorch": ("net.py",),
    "composer": ("trainer/trainer.py",),
    "detectron2": ("engine/train_loop.py",),
    "pytorch_metric_learning": ("trainers/base_trainer.py",),
    "spacy": ("training/loop.py",),
}  # fmt: skip
"""The files of a framework's own training loop. Its models and helpers are also used by loops that are not its own."""
RARER_LOOPS: Mapping[str, tuple[str, ...]] = {
    "torchtnt": ("framework/train.py", "framework/fit.py"),
    "recbole": ("trainer/trainer.py",),
    "pytorch_tabnet": ("abstract_model.py",),
    "poutyne": ("framework/model.py",),
    "pytorch_accelerated": ("trainer.py",),
}
"""Of frameworks that are known by their stacks only: each file that is looked for in imports costs each start."""
LIBRARIES = (
    *("accelerate", "orbax", "webdataset", "datasets", "torch_geometric", "timm", "batchgenerators"),
    *("flax", "jax", "tensorflow"),
    *("torchrl", "tianshou", "gymnasium", "gym"),
)
"""Libraries that leave the loop to the user: named where no framework's loop was seen."""
OTHER_LOOPS = frozenset(
    {("xgboost", "training.py"), ("lightgbm", "engine.py"), ("catboost", "core.py"), ("spacy", "loop.py")}
)
"""Loops that train without PyTorch: package and file."""
_UPDATE = re.compile(r"(Language\.)?(update|rehearse) \(spacy/language\.py:")
NAMES = frozenset({*LOOPS, *RARER_LOOPS, *LIBRARIES})
BUILT_ON = {"sentence_transformers": "transformers", "monai": "ignite"}
"""The first one's loop calls the other's."""
_LOOP_FILES = frozenset(
    (name, file.rpartition("/")[2]) for loops in (LOOPS, RARER_LOOPS) for name, files in loops.items() for file in files
)


def library(frame: str) -> tuple[str, str]:
    """The package and the file of a frame, "name (package/file:line)"; no package: the user's own."""
    package, _, file = frame.rpartition(" (")[2].rpartition(":")[0].rpartition("/")
    return package, file


def is_own(frame: str) -> bool:
    """Whether it is the user's own code; frames of older recordings have no package."""
    package, file = library(frame)
    return not package and not file.startswith("<frozen")


def is_loop(frame: str) -> bool:
    """Whether it is in a framework's own loop: frames outside of it are the user's call of the framework."""
    return library(frame) in _LOOP_FILES


def is_other_loop(frame: str) -> bool:
    """Whether it belongs to a training that needs no PyTorch."""
    return library(frame) in OTHER_LOOPS or _UPDATE.match(frame) is not None


@dataclass(slots=True)
class FrameworkSeen:
    """What the stacks of a rank have shown; until there is one, what it imported. ``version`` None: not known."""

    name: str | None = None
    version: str | None = None
    loop: bool = False  # its loop was seen
    imported: bool = False  # no stack has confirmed the name
    looks: int = 0  # stacks of the driver
    others: int = 0  # of them: with a loop that needs no PyTorch

    def add_imported(self, loops: Sequence[str]) -> None:
        """The frameworks whose loops were imported before the first step. Of several, none of which calls another, each
        may be it."""
        found = set(loops) - {BUILT_ON[name] for name in loops if name in BUILT_ON}
        if self.name is None and not self.looks and len(found) == 1:
            self.name, self.imported = found.pop(), True

    def add(self, stack: Sequence[str], versions: Mapping[str, str]) -> None:
        """One stack of the driver, outermost frame first. Where frameworks build on each other the outermost loop
        counts; the first answer stays, but for a library's."""
        if not stack:
            return
        self.looks += 1
        self.others += any(map(is_other_loop, stack))
        if self.imported:  # a training may import a loop that it does not use
            self.name, self.imported = None, False
        places = [library(frame) for frame in stack]
        found = next((name for name, file in places if (name, file) in _LOOP_FILES), None)
        if found is not None and not self.loop:
            self.name, self.version, self.loop = found, None, True
        elif self.name is None:
            self.name = next((name for name, _ in places if name in LIBRARIES), None)
        if self.version is None and self.name is not None:
            self.version = versions.get(self.name)
