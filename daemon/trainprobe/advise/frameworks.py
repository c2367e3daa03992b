"""What each framework calls the setting that an advice is about."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from trainprobe.model.dataclass import dataclass
from trainprobe.model.message import Message, template


class Subject(Enum):
    SAVE = "save"
    EVALUATE = "evaluate"
    LOG = "log"
    WORKERS = "workers"
    PREFETCH = "prefetch"
    PERSISTENT = "persistent"


SETTING = template("advice.setting", "{framework}: {setting}{note}{unit}")
BY_ITERATION = template("advice.by_iteration", " with by_epoch=False")()
MAX_ITERATIONS = template("advice.max_iterations", " with by_epoch=False, and max_iters in place of max_epochs")()
SAVE_BY_STEPS = template("advice.save_by_steps", ' with save_strategy="steps"')()
EVALUATE_BY_STEPS = template("advice.evaluate_by_steps", ' with eval_strategy="steps"')()
SAVE_OF_FIT = template("advice.save_of_fit", ' with save_strategy="steps"; of fit(): checkpoint_save_steps')()
EVALUATE_OF_FIT = template(
    "advice.evaluate_of_fit",
    ' with eval_strategy="steps"; of fit(): evaluation_steps, which evaluates at the end of each epoch besides',
)()
NOT_EVERY_EPOCH = template("advice.not_every_epoch", ", in place of every_n_epochs")()
NOT_BY_EPOCH = template("advice.not_by_epoch", " with check_val_every_n_epoch=None")()
PRE_EVAL = template(
    "advice.pre_eval", " with by_epoch=False; mmseg: pre_eval=True does not keep the predictions until the end"
)()
NOT_EPOCHS = template("advice.not_epochs", " with epoch_level=False")()
OF_ITERATIONS = template("advice.of_iterations", " for the handler's Events.ITERATION_COMPLETED")()
TO_CONSOLE = template("advice.to_console", " with log_to_console=True")()
OF_ORBAX = template("advice.of_orbax", " of orbax.checkpoint")()
WITH_COUNTER = template("advice.with_counter", " with step_counter")()
EVALUATIONS_TOO = template("advice.evaluations_too", ", which is the evaluation's interval too")()
NOT_CONSOLE = template("advice.not_console", "; the console's: verbose=2")()
IN_EPOCHS = template("advice.in_epochs", ", which counts epochs")()
IN_BATCHES = template("advice.in_batches", ", which counts batches")()
IN_CALLS = template(
    "advice.in_calls", ", which counts calls of env.step(), each of which is a step of every environment"
)()
IN_ROLLOUTS = template("advice.in_rollouts", ", which counts rollouts (PPO, A2C) or episodes (DQN, SAC, TD3)")()
OF_SUBCLASS = template("advice.of_subclass", ", set in a subclass of the trainer, which counts epochs")()
SAVES_LAST = template("advice.saves_last", ", which saves behind the last epoch only")()
EVALUATES_LAST = template("advice.evaluates_last", ", which evaluates behind the last epoch only")()
WITH_GPU = template("advice.with_gpu", "; it takes 0 where there is no GPU")()


class Counts(Enum):
    """What the value of a setting counts."""

    STEPS = "optimiser's steps, as an advice does; or what is no interval"
    BATCHES = "batches: more than steps where gradients are accumulated"
    OTHER = "something else: an advice has no value for it"


@dataclass(frozen=True, slots=True)
class Named:
    """A setting of a framework. ``note``: what belongs to its value; ``form``: how the value is written."""

    name: str
    note: Message | None = None
    counts: Counts = Counts.STEPS
    form: str = "{}"


_BATCHES, _OTHER = Counts.BATCHES, Counts.OTHER
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
    Subject.SAVE: Named("ModelCheckpoint.every_n_train_steps", NOT_EVERY_EPOCH),
    Subject.EVALUATE: Named("val_check_interval", NOT_BY_EPOCH, _BATCHES),
    Subject.LOG: Named("log_every_n_steps"),
}
_IGNITE = Named("every", OF_ITERATIONS, _BATCHES)
_ORBAX = "save_interval_steps"
SETTINGS: Mapping[str, Mapping[Subject, Named]] = {
    "transformers": _TRANSFORMERS,
    "sentence_transformers": _TRANSFORMERS
    | {Subject.SAVE: Named("save_steps", SAVE_OF_FIT), Subject.EVALUATE: Named("eval_steps", EVALUATE_OF_FIT)},
    "lightning": _LIGHTNING,
    "pytorch_lightning": _LIGHTNING,
    "mmengine": {
        Subject.SAVE: Named("default_hooks.checkpoint.interval", BY_ITERATION, _BATCHES),
        Subject.EVALUATE: Named("train_cfg.val_interval", MAX_ITERATIONS, _BATCHES),
        Subject.LOG: Named("default_hooks.logger.interval", None, _BATCHES),
        Subject.WORKERS: Named("train_dataloader.num_workers"),
        Subject.PREFETCH: Named("train_dataloader.prefetch_factor"),
        Subject.PERSISTENT: Named("train_dataloader.persistent_workers"),
    },
    "mmcv": {
        Subject.SAVE: Named("checkpoint_config.interval", BY_ITERATION, _BATCHES),
        Subject.EVALUATE: Named("evaluation.interval", PRE_EVAL, _BATCHES),
        Subject.LOG: Named("log_config.interval", None, _BATCHES),
        Subject.WORKERS: Named("data.workers_per_gpu"),
        Subject.PREFETCH: Named("data.train_dataloader.prefetch_factor"),
        Subject.PERSISTENT: Named("data.train_dataloader.persistent_workers"),
    },
    "ultralytics": {
        Subject.SAVE: Named("save=False", SAVES_LAST, _OTHER),
        Subject.EVALUATE: Named("val=False", EVALUATES_LAST, _OTHER),
        Subject.WORKERS: Named("workers", WITH_GPU),
    },
    "keras": {
        Subject.SAVE: Named("ModelCheckpoint.save_freq", None, _BATCHES),
        Subject.EVALUATE: Named("validation_freq", IN_EPOCHS, _OTHER),
        Subject.LOG: Named("TensorBoard.update_freq", NOT_CONSOLE, _BATCHES),
    },
    "stable_baselines3": {
        Subject.SAVE: Named("CheckpointCallback.save_freq", IN_CALLS, _OTHER),
        Subject.EVALUATE: Named("EvalCallback.eval_freq", IN_CALLS, _OTHER),
        Subject.LOG: Named("log_interval", IN_ROLLOUTS, _OTHER),
    },
    "nnunetv2": {
        Subject.SAVE: Named("save_every", OF_SUBCLASS, _OTHER),
        Subject.WORKERS: Named("nnUNet_n_proc_DA"),
    },
    "monai": {
        Subject.SAVE: Named("CheckpointSaver.save_interval", NOT_EPOCHS, _BATCHES),
        Subject.EVALUATE: Named("ValidationHandler.interval", NOT_EPOCHS, _BATCHES),
    },
    "ignite": {Subject.SAVE: _IGNITE, Subject.EVALUATE: _IGNITE, Subject.LOG: _IGNITE},
    "fastai": {Subject.SAVE: Named("SaveModelCallback.every_epoch", IN_EPOCHS, _OTHER)},
    "skorch": {
        Subject.WORKERS: Named("iterator_train__num_workers"),
        Subject.PREFETCH: Named("iterator_train__prefetch_factor"),
        Subject.PERSISTENT: Named("iterator_train__persistent_workers"),
    },
    "composer": {
        Subject.SAVE: Named("save_interval", form='"{}ba"'),
        Subject.EVALUATE: Named("eval_interval", form='"{}ba"'),
        Subject.LOG: Named("console_log_interval", TO_CONSOLE, form='"{}ba"'),
    },
    "detectron2": {
        Subject.SAVE: Named("SOLVER.CHECKPOINT_PERIOD"),
        Subject.EVALUATE: Named("TEST.EVAL_PERIOD"),
        Subject.LOG: Named("PeriodicWriter.period"),
        Subject.WORKERS: Named("DATALOADER.NUM_WORKERS"),
    },
    "pytorch_metric_learning": {
        Subject.SAVE: Named("test_interval", IN_EPOCHS, _OTHER),
        Subject.EVALUATE: Named("test_interval", IN_EPOCHS, _OTHER),
        Subject.WORKERS: Named("dataloader_num_workers"),
    },
    "spacy": {
        Subject.SAVE: Named("training.eval_frequency", EVALUATIONS_TOO),
        Subject.EVALUATE: Named("training.eval_frequency"),
    },
    "torchtnt": {
        Subject.SAVE: Named("save_every_n_train_steps", None, _BATCHES),
        Subject.EVALUATE: Named("evaluate_every_n_steps", None, _BATCHES),
    },
    "recbole": {
        Subject.SAVE: Named("eval_step", IN_EPOCHS, _OTHER),
        Subject.EVALUATE: Named("eval_step", IN_EPOCHS, _OTHER),
        Subject.WORKERS: Named("worker"),
    },
    "tensorflow": {Subject.SAVE: Named("CheckpointManager.checkpoint_interval", WITH_COUNTER)},
    "orbax": {Subject.SAVE: Named(_ORBAX)},
    "flax": {Subject.SAVE: Named(_ORBAX, OF_ORBAX)},
    "jax": {Subject.SAVE: Named(_ORBAX, OF_ORBAX)},
}
"""Frameworks that are not here leave the loop to the user: what is theirs is torch's DataLoader."""


_FIXED = frozenset({Subject.PREFETCH, Subject.PERSISTENT})
FIXED: Mapping[str, frozenset[Subject]] = {
    "timm": frozenset({Subject.PREFETCH}),
    **dict.fromkeys(
        ("ultralytics", "fastai", "pytorch_metric_learning", "pytorch_tabnet", "nnunetv2", "recbole", "detectron2"),
        _FIXED,
    ),
}
"""What a framework's loader does not let its user set: it keeps its workers, or hands the argument on to nobody."""


def is_fixed(framework: str | None, subject: Subject) -> bool:
    """Whether nobody can set it."""
    return subject in FIXED.get(framework or "", ())


def name_of(framework: str | None, subject: Subject) -> str | None:
    """What torch's DataLoader, or the framework, calls a setting of the loader; None: nobody can set it."""
    return None if is_fixed(framework, subject) else (_own(framework, subject) or _TORCH[subject]).name


def is_noted(framework: str | None, subject: Subject) -> bool:
    """Whether something belongs to the value of the framework's setting."""
    own = _own(framework, subject)
    return own is not None and own.note is not None


def setting(
    framework: str | None, subject: Subject, value: object = None, batches: float | None = None
) -> Message | None:
    """The framework's own setting, with its ``value`` in the setting's unit; None: it has none. ``batches``: of a step,
    as far as known."""
    own = _own(framework, subject)
    if own is None:
        return None
    if value is None:
        return SETTING(framework=framework, setting=own.name, note=None, unit=None)
    of_step, unit = round(batches or 1.0), None
    if own.counts is Counts.BATCHES and of_step > 1:
        value, unit = int(str(value)) * of_step, IN_BATCHES
    text = own.name if own.counts is Counts.OTHER else f"{own.name}={own.form.format(value)}"
    return SETTING(framework=framework, setting=text, note=own.note, unit=unit)


def _own(framework: str | None, subject: Subject) -> Named | None:
    return SETTINGS.get(framework or "", {}).get(subject)
