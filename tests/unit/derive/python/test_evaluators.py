"""Which functions on a stack evaluate, by their names, and which train, whatever else they are called."""

from __future__ import annotations

import pytest

from trainprobe.derive.python.evaluators import is_evaluation, is_named

LOOP = ("<module> (train.py:99)", "main (train.py:9)")


@pytest.mark.parametrize(
    "inner",
    [
        ("evaluate (train.py:30)",), ("Trainer.train (train.py:20)", "run_validation (train.py:30)"),
        ("_inner_training_loop (transformers/trainer.py:2600)",
         "_maybe_log_save_evaluate (transformers/trainer.py:3000)", "evaluate (transformers/trainer.py:4100)"),
        ("train_and_evaluate (train.py:20)", "evaluate (train.py:30)"), ("evaluate_on_train (train.py:30)",),
        ("EmbeddingSimilarityEvaluator.__call__ (sentence_transformers/evaluator.py:9)",),
        ("evaluate_probe (train.py:30)", "LogisticRegression.fit (sklearn/_logistic.py:1200)"),
        ("evaluate_retrieval (train.py:30)",), ("RetrievalEvaluator.run (train.py:30)",), ("doEval (train.py:30)",),
        ("compute_metrics (train.py:30)",), ("MetricCollection.compute (torchmetrics/collections.py:9)",),
        ("val_epoch (train.py:30)",), ("Trainer.val (train.py:30)",), ("run_val (train.py:30)",),
        ("valid_epoch (train.py:30)",), ("runValidation (train.py:30)",),
        ("ValLoop.run (mmengine/loops.py:370)",),
    ],
)  # fmt: skip
def test_an_evaluation(inner: tuple[str, ...]) -> None:
    assert is_named((*LOOP, *inner))
    assert is_named((*LOOP, *inner, "Net.forward (model.py:9)"))


@pytest.mark.parametrize(
    "inner",
    [
        ("train_and_evaluate (train.py:20)", "search (train.py:30)"), ("train_eval_loop (train.py:20)",),
        ("trainAndValidate (train.py:20)", "search (train.py:30)"), ("cross_validate (train.py:20)",),
        ("_maybe_log_save_evaluate (transformers/trainer.py:3000)", "on_log (train.py:30)"),
        ("PricePredictor.training_step (train.py:20)", "search (train.py:30)"),
        ("NextTokenPrediction.fit (train.py:20)", "search (train.py:30)"),
        ("build_retrieval_index (train.py:30)",), ("RetrievalIndex.add (train.py:30)",),
        ("drop_invalid (train.py:30)",),
        ("geometric_augment (train.py:30)",), ("PhotometricDistort.__call__ (train.py:30)",),
        ("is_valid (train.py:30)",),
        ("MetricLogger.log_every (misc.py:30)", "DataLoader.__iter__ (torch/dataloader.py:9)"),
        ("Trainer.log_metrics (train.py:30)",), ("metric_loss (train.py:30)",), ("interval (train.py:30)",),
        ("predict_noise (train.py:30)",), ("val_to_index (train.py:30)",), ("get_value (train.py:30)",),
        ("get_val (train.py:30)",), ("ValueNet.loss (train.py:30)",),
        ("Board.get_valid_moves (train.py:30)",), ("symmetric_distance (train.py:30)",), ("valid_mask (train.py:30)",),
        ("SegmentAnything.forward (model.py:20)", "MaskDecoder.predict_masks (model.py:30)"),
    ],
)  # fmt: skip
def test_no_evaluation(inner: tuple[str, ...]) -> None:
    assert not is_named((*LOOP, *inner))


def test_a_function_that_the_steps_are_made_in_tells_no_evaluation() -> None:
    stack = (*LOOP, "run_benchmark (train.py:20)", "search (train.py:30)")
    assert is_named(stack)
    assert is_evaluation(stack, ())
    assert not is_named(stack, {"run_benchmark (train.py"})
    assert not is_evaluation(stack, (), {"run_benchmark (train.py"})
