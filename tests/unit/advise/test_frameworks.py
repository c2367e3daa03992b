"""The settings of frameworks by their names."""

from __future__ import annotations

import pytest

from trainprobe.advise.frameworks import FIXED, SETTINGS, Subject, name_of, setting
from trainprobe.derive.python.frameworks import NAMES


@pytest.mark.parametrize(
    ("framework", "subject", "value", "text"),
    [
        ("transformers", Subject.SAVE, 640, 'transformers: save_steps=640 with save_strategy="steps"'),
        ("transformers", Subject.EVALUATE, 90, 'transformers: eval_steps=90 with eval_strategy="steps"'),
        (
            "sentence_transformers",
            Subject.SAVE,
            640,
            'sentence_transformers: save_steps=640 with save_strategy="steps"; of fit(): checkpoint_save_steps',
        ),
        ("lightning", Subject.EVALUATE, 90, "lightning: val_check_interval=90 with check_val_every_n_epoch=None"),
        (
            "lightning",
            Subject.SAVE,
            640,
            "lightning: ModelCheckpoint.every_n_train_steps=640, in place of every_n_epochs",
        ),
        ("mmengine", Subject.SAVE, 640, "mmengine: default_hooks.checkpoint.interval=640 with by_epoch=False"),
        (
            "mmengine",
            Subject.EVALUATE,
            90,
            "mmengine: train_cfg.val_interval=90 with by_epoch=False, and max_iters in place of max_epochs",
        ),
        ("mmcv", Subject.WORKERS, 4, "mmcv: data.workers_per_gpu=4"),
        ("ultralytics", Subject.SAVE, 640, "ultralytics: save=False, which saves behind the last epoch only"),
        ("ultralytics", Subject.WORKERS, 2, "ultralytics: workers=2; it takes 0 where there is no GPU"),
        ("monai", Subject.SAVE, 640, "monai: CheckpointSaver.save_interval=640 with epoch_level=False"),
        ("ignite", Subject.EVALUATE, 90, "ignite: every=90 for the handler's Events.ITERATION_COMPLETED"),
        ("skorch", Subject.WORKERS, 4, "skorch: iterator_train__num_workers=4"),
        ("composer", Subject.SAVE, 640, 'composer: save_interval="640ba"'),
        ("spacy", Subject.SAVE, 640, "spacy: training.eval_frequency=640, which is the evaluation's interval too"),
        ("flax", Subject.SAVE, 640, "flax: save_interval_steps=640 of orbax.checkpoint"),
    ],
)
def test_a_setting_has_its_value_where_it_counts_steps(framework: str, subject: Subject, value: int, text: str) -> None:
    assert str(setting(framework, subject, value)) == text


@pytest.mark.parametrize(("batches", "text"), [(None, "90"), (1.0, "90"), (1.2, "90"), (4.0, "360")])
def test_what_counts_batches_is_longer_where_gradients_are_accumulated(batches: float | None, text: str) -> None:
    told = str(setting("lightning", Subject.EVALUATE, "90", batches))
    assert told.startswith(f"lightning: val_check_interval={text} with check_val_every_n_epoch=None")
    assert told.endswith(", which counts batches") == (text == "360")
    assert str(setting("lightning", Subject.SAVE, "90", batches)).startswith(
        "lightning: ModelCheckpoint.every_n_train_steps=90,"
    )


def test_nothing_is_named_that_a_framework_lets_nobody_set() -> None:
    assert name_of("ultralytics", Subject.PREFETCH) is None
    assert name_of("ultralytics", Subject.WORKERS) == "workers"
    assert name_of("timm", Subject.PERSISTENT) == "persistent_workers"
    assert set(FIXED) <= NAMES


def test_where_the_user_has_the_loop_the_loader_is_torchs() -> None:
    assert setting("accelerate", Subject.SAVE, 640) is None
    assert setting(None, Subject.WORKERS, 4) is None
    assert name_of("accelerate", Subject.WORKERS) == name_of(None, Subject.WORKERS) == "num_workers"
    assert name_of("transformers", Subject.PREFETCH) == "dataloader_prefetch_factor"


def test_only_frameworks_that_are_recognised_have_settings() -> None:
    assert set(SETTINGS) <= NAMES
