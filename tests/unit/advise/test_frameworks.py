"""The settings of frameworks by their names."""

from __future__ import annotations

import pytest

from trainprobe.advise.frameworks import SETTINGS, Subject, name_of, setting
from trainprobe.derive.python.frameworks import NAMES


@pytest.mark.parametrize(
    ("framework", "subject", "value", "text"),
    [
        ("transformers", Subject.SAVE, 640, 'transformers: save_steps=640 with save_strategy="steps"'),
        ("transformers", Subject.EVALUATE, 90, 'transformers: eval_steps=90 with eval_strategy="steps"'),
        ("lightning", Subject.EVALUATE, 90, "lightning: val_check_interval=90 with check_val_every_n_epoch=None"),
        ("lightning", Subject.SAVE, 640, "lightning: every_n_train_steps=640"),
        ("mmengine", Subject.SAVE, 640, "mmengine: default_hooks.checkpoint.interval=640 with by_epoch=False"),
        ("mmengine", Subject.EVALUATE, 90, "mmengine: train_cfg.val_interval=90 with by_epoch=False"),
        ("mmcv", Subject.WORKERS, 4, "mmcv: workers_per_gpu=4"),
        ("ultralytics", Subject.SAVE, 640, "ultralytics: save=False, which saves behind the last epoch only"),
        ("ultralytics", Subject.WORKERS, 2, "ultralytics: workers=2; it takes 0 where there is no GPU"),
        ("monai", Subject.SAVE, 640, "monai: CheckpointSaver.save_interval=640 with epoch_level=False"),
        ("ignite", Subject.EVALUATE, 90, "ignite: every=90 for the handler's Events.ITERATION_COMPLETED"),
        ("skorch", Subject.WORKERS, 4, "skorch: iterator_train__num_workers=4"),
        ("composer", Subject.SAVE, 640, 'composer: save_interval, a number with its unit: batches are "ba"'),
        ("spacy", Subject.SAVE, 640, "spacy: training.eval_frequency=640"),
        ("flax", Subject.SAVE, 640, "flax: save_interval_steps=640"),
    ],
)
def test_a_setting_has_its_value_where_it_counts_steps(framework: str, subject: Subject, value: int, text: str) -> None:
    assert str(setting(framework, subject, value)) == text


def test_where_the_user_has_the_loop_the_loader_is_torchs() -> None:
    assert setting("accelerate", Subject.SAVE, 640) is None
    assert setting(None, Subject.WORKERS, 4) is None
    assert name_of("accelerate", Subject.WORKERS) == name_of(None, Subject.WORKERS) == "num_workers"
    assert name_of("transformers", Subject.PREFETCH) == "dataloader_prefetch_factor"


def test_only_frameworks_that_are_recognised_have_settings() -> None:
    assert set(SETTINGS) <= NAMES
