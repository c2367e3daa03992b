"""Which functions on a stack save a training's state, and which save something else."""

from __future__ import annotations

import pytest

from trainprobe.derive.python.serializers import restored_by, shown_by


@pytest.mark.parametrize(
    "frame",
    [
        "_save (torch/serialization.py:900)", "save_file (safetensors/torch.py:300)",
        "Checkpointer.save (orbax/checkpointer.py:9)",
        "StateDictStager._offload_tensor (torch/_state_dict_stager.py:9)", "async_save (torch/state_dict_saver.py:9)",
        "Runner.save_checkpoint (runner.py:70)", "Trainer._save (transformers/trainer.py:9)", "save_best (train.py:9)",
        "Trainer.save (train.py:9)", "maybe_save (train.py:9)", "saveModel (train.py:9)", "Net.state_dict (net.py:9)",
        "get_model_state_dict (train.py:9)", "_save_optimizer_and_scheduler (train.py:9)", "dump (train.py:9)",
        "ModelCheckpoint._save_top_3 (lightning/model_checkpoint.py:9)", "dump (cloudpickle/cloudpickle.py:9)",
        "BaseAlgorithm.save (stable_baselines3/base_class.py:9)", "save_predictions_and_model (train.py:9)",
        "_dump (python3.11/pickle.py:9)", "Group.create_dataset (h5py/group.py:9)",
        "block_until_ready (orbax/serialization.py:9)", "ModelRunner.save (runner.py:9)", "save (train_images.py:9)",
        "CheckpointWriter.dump (a.py:9)", "save_checkpoint_with_metrics (train.py:9)",
    ],
)  # fmt: skip
def test_a_save_of_a_training(frame: str) -> None:
    assert shown_by(("<module> (train.py:99)", frame))
    assert shown_by(("<module> (train.py:99)", frame, "Tensor.cpu (torch/_tensor.py:5)"))


@pytest.mark.parametrize(
    "frame",
    [
        "save_sample_grid (train.py:9)", "save_predictions (train.py:9)", "Trainer.save_predictions (train.py:9)",
        "save_image (torchvision/utils.py:9)", "Figure.savefig (matplotlib/figure.py:9)", "save_audio (train.py:9)",
        "dump (python3.11/__init__.py:9)", "ForkingPickler.dump (python3.11/reduction.py:9)",
        "save_meshes (train.py:9)",
        "save (numpy/npyio.py:9)", "Dataset.save_to_disk (datasets/arrow_dataset.py:9)", "save_video (utils.py:9)",
        "Trainer._maybe_log_save_evaluate (transformers/trainer.py:9)", "Net.load_state_dict (net.py:9)",
        "dump_detections (eval.py:9)", "save_results_of_model (eval.py:9)", "checkpoint (torch/checkpoint.py:9)",
        "load (torch/serialization.py:9)", "load_file (safetensors/torch.py:9)",
        "Dataset.__getitem__ (h5py/dataset.py:9)", "Dataset.read_direct (h5py/dataset.py:9)",
        "read (tensorstore/a.py:9)",
        "safe_open.get_tensor (safetensors/torch.py:9)", "Checkpointer.restore (orbax/checkpointer.py:9)",
        "async_deserialize (orbax/serialization.py:9)", "Logger.dump (stable_baselines3/logger.py:9)",
        "dump (stable_baselines3/logger.py:9)", "Visualizer.save (vis.py:9)", "VideoRecorder.save (video.py:9)",
        "ResultWriter.save (out.py:9)", "History.save (train.py:9)", "save (plots.py:9)", "serialize (queue.py:9)",
        "save (bokeh/saving.py:9)", "save (zarr/convenience.py:9)", "OmegaConf.save (omegaconf/omegaconf.py:9)",
        "Vocab.save (train.py:9)", "Dataset.save (train.py:9)", "BPETokenizer.save (train.py:9)",
        "encode_batch (serialization.py:9)", "Tokens.to_bytes (pickle.py:9)",
    ],
)  # fmt: skip
def test_a_save_of_something_else(frame: str) -> None:
    assert not shown_by(("<module> (train.py:99)", frame))


def test_serialisers_of_messages_and_what_reads_a_state_save_none() -> None:
    for frame in ("serialize (ray/serialization.py:9)", "to_bytes (tfrecord/serialization.py:9)",
                  "from_bytes (flax/serialization.py:9)"):  # fmt: skip
        assert not shown_by(("<module> (train.py:99)", frame))
    assert shown_by(("<module> (train.py:99)", "to_bytes (flax/serialization.py:9)"))


def test_what_calls_a_library_for_pictures_saves_a_picture() -> None:
    assert not shown_by(("<module> (train.py:99)", "Trainer.save (train.py:9)", "Image.save (PIL/Image.py:9)"))
    assert shown_by(("<module> (train.py:99)", "Trainer.save (train.py:9)", "_encode (train.py:9)"))


@pytest.mark.parametrize(
    ("name", "does"),
    [
        ("load_best", True), ("restore", True), ("Trainer._load_checkpoint", True), ("resume_from_checkpoint", True),
        ("load_best_model", True), ("Net.load_state_dict", True), ("reload_weights", True), ("loadModel", True),
        ("load", False), ("load_shard", False), ("load_features", False), ("load_data_of_model", False),
        ("train", False),
        ("load_model_inputs", False), ("load_agent_data", False), ("load_last_batch", False),
        ("load_encoder_batches", False), ("load_data_model", True),
        ("load_latest_table", False), ("load_latest", True), ("reload_best_epoch", True),
        ("load_best_images", False), ("offload_params", False), ("_load_chunk", False),
    ],
)  # fmt: skip
def test_what_restores_a_training(name: str, does: bool) -> None:
    assert restored_by(("<module> (train.py:99)", f"{name} (train.py:9)", "load (torch/serialization.py:9)")) is does
