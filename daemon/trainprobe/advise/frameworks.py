"""What each framework calls the setting that an advice is about."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from trainprobe.model.message import Message, template


class Subject(Enum):
    SAVE = "save"
    EVALUATE = "evaluate"
    LOG = "log"
    WORKERS = "workers"
    PREFETCH = "prefetch"
    PERSISTENT = "persistent"


SETTING = template("advice.setting", "{framework}: {setting}{note}")
BY_ITERATION = template("advice.by_iteration", " with by_epoch=False")()
SAVE_BY_STEPS = template("advice.save_by_steps", ' with save_strategy="steps"')()
EVALUATE_BY_STEPS = template("advice.evaluate_by_steps", ' with eval_strategy="steps"')()
NOT_BY_EPOCH = template("advice.not_by_epoch", " with check_val_every_n_epoch=None")()
PRE_EVAL = template(
    "advice.pre_eval", " with by_epoch=False; mmseg: pre_eval=True does not keep the predictions until the end"
)()
NOT_EPOCHS = template("advice.not_epochs", " with epoch_level=False")()
OF_ITERATIONS = template("advice.of_iterations", " for the handler's Events.ITERATION_COMPLETED")()
WITH_UNIT = template("advice.with_unit", ', a number with its unit: batches are "ba"')()
IN_EPOCHS = template("advice.in_epochs", ", which counts epochs")()
IN_ENVIRONMENT = template("advice.in_environment", ", which counts steps of the environment")()
LAST_ONLY = template("advice.last_only", ", which saves behind the last epoch only")()
WITH_GPU = template("advice.with_gpu", "; it takes 0 where there is no GPU")()
IN_ROLLOUTS = template("advice.in_rollouts", ", which counts rollouts")()


@dataclass(frozen=True, slots=True)
class Named:
    """A setting of a framework. ``note``: what belongs to its value."""

    name: str
    note: Message | None = None

    @property
    def counts_steps(self) -> bool:
        return self.note not in (IN_EPOCHS, IN_ENVIRONMENT, IN_ROLLOUTS, WITH_UNIT, LAST_ONLY)


_TORCH = {
    Subject.WORKERS: Named("num_workers"),
    Subject.PREFETCH: Named("prefetch_factor"),
    Subject.PERSISTENT: Named("persistent_workers"),
}
_TRANSFORMERS = {
    Subject.SAVE: Named("save_steps", SAVE_BY_STEPS),
    Subject.EVALUATE: Named("eval_steps", EVALUATE_BY_STEPS),
    Subject.LOG: Named("logging_steps"),
    Subject.WORKERS: Named("dataloader_num_workers"),
    Subject.PREFETCH: Named("dataloader_prefetch_factor"),
    Subject.PERSISTENT: Named("dataloader_persistent_workers"),
}
_LIGHTNING = {
    Subject.SAVE: Named("every_n_train_steps"),
    Subject.EVALUATE: Named("val_check_interval", NOT_BY_EPOCH),
    Subject.LOG: Named("log_every_n_steps"),
}
_IGNITE = Named("every", OF_ITERATIONS)
_ORBAX = {Subject.SAVE: Named("save_interval_steps")}
SETTINGS: Mapping[str, Mapping[Subject, Named]] = {
    "transformers": _TRANSFORMERS,
    "sentence_transformers": _TRANSFORMERS,
    "lightning": _LIGHTNING,
    "pytorch_lightning": _LIGHTNING,
    "mmengine": {
        Subject.SAVE: Named("default_hooks.checkpoint.interval", BY_ITERATION),
        Subject.EVALUATE: Named("train_cfg.val_interval", BY_ITERATION),
        Subject.LOG: Named("default_hooks.logger.interval"),
        Subject.WORKERS: Named("train_dataloader.num_workers"),
        Subject.PREFETCH: Named("train_dataloader.prefetch_factor"),
        Subject.PERSISTENT: Named("train_dataloader.persistent_workers"),
    },
    "mmcv": {
        Subject.SAVE: Named("checkpoint_config.interval", BY_ITERATION),
        Subject.EVALUATE: Named("evaluation.interval", PRE_EVAL),
        Subject.LOG: Named("log_config.interval"),
        Subject.WORKERS: Named("workers_per_gpu"),
    },
    "ultralytics": {Subject.SAVE: Named("save=False", LAST_ONLY), Subject.WORKERS: Named("workers", WITH_GPU)},
    "keras": {
        Subject.SAVE: Named("save_freq"),
        Subject.EVALUATE: Named("validation_freq", IN_EPOCHS),
        Subject.LOG: Named("update_freq"),
    },
    "stable_baselines3": {
        Subject.SAVE: Named("save_freq", IN_ENVIRONMENT),
        Subject.EVALUATE: Named("eval_freq", IN_ENVIRONMENT),
        Subject.LOG: Named("log_interval", IN_ROLLOUTS),
    },
    "nnunetv2": {Subject.SAVE: Named("save_every", IN_EPOCHS), Subject.WORKERS: Named("nnUNet_n_proc_DA")},
    "monai": {
        Subject.SAVE: Named("CheckpointSaver.save_interval", NOT_EPOCHS),
        Subject.EVALUATE: Named("ValidationHandler.interval", NOT_EPOCHS),
    },
    "ignite": {Subject.SAVE: _IGNITE, Subject.EVALUATE: _IGNITE, Subject.LOG: _IGNITE},
    "fastai": {Subject.SAVE: Named("SaveModelCallback.every_epoch", IN_EPOCHS)},
    "skorch": {
        Subject.WORKERS: Named("iterator_train__num_workers"),
        Subject.PREFETCH: Named("iterator_train__prefetch_factor"),
        Subject.PERSISTENT: Named("iterator_train__persistent_workers"),
    },
    "composer": {
        Subject.SAVE: Named("save_interval", WITH_UNIT),
        Subject.EVALUATE: Named("eval_interval", WITH_UNIT),
        Subject.LOG: Named("console_log_interval", WITH_UNIT),
    },
    "detectron2": {
        Subject.SAVE: Named("SOLVER.CHECKPOINT_PERIOD"),
        Subject.EVALUATE: Named("TEST.EVAL_PERIOD"),
        Subject.WORKERS: Named("DATALOADER.NUM_WORKERS"),
    },
    "pytorch_metric_learning": {
        Subject.SAVE: Named("test_interval", IN_EPOCHS),
        Subject.EVALUATE: Named("test_interval", IN_EPOCHS),
        Subject.WORKERS: Named("dataloader_num_workers"),
    },
    "spacy": {Subject.SAVE: Named("training.eval_frequency"), Subject.EVALUATE: Named("training.eval_frequency")},
    "torchtnt": {
        Subject.SAVE: Named("save_every_n_train_steps"),
        Subject.EVALUATE: Named("evaluate_every_n_steps"),
    },
    "recbole": {Subject.EVALUATE: Named("eval_step", IN_EPOCHS), Subject.WORKERS: Named("worker")},
    "orbax": _ORBAX,
    "flax": _ORBAX,
    "jax": _ORBAX,
}
"""Frameworks that are not here leave the loop to the user: what is theirs is torch's DataLoader."""


def name_of(framework: str | None, subject: Subject) -> str:
    """What torch's DataLoader, or the framework, calls a setting of the loader."""
    return SETTINGS.get(framework or "", {}).get(subject, _TORCH[subject]).name


def is_noted(framework: str | None, subject: Subject) -> bool:
    """Whether something belongs to the value of the framework's setting."""
    own = SETTINGS.get(framework or "", {}).get(subject)
    return own is not None and own.note is not None


def setting(framework: str | None, subject: Subject, value: object = None) -> Message | None:
    """The framework's own setting, with its value where it counts what the advice counts; None: it has none."""
    own = SETTINGS.get(framework or "", {}).get(subject)
    if own is None:
        return None
    if value is None:
        return SETTING(framework=framework, setting=own.name, note=None)
    text = f"{own.name}={value}" if own.counts_steps else own.name
    return SETTING(framework=framework, setting=text, note=own.note)
