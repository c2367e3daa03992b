"""What a written file is, by its name, its manner and whether the training steps already."""

from __future__ import annotations

import pytest

from trainprobe.derive.files.purpose import FileClass, FileRules, classify, is_restored
from trainprobe.derive.files.saves import Saves
from trainprobe.model.event import FileEvent, FileEventKind

LARGE = 50_000_000


def of(path: str, size: int = LARGE, *, early: bool = False, rules: FileRules | None = None) -> FileClass:
    return classify(path, size, created=True, append=False, early=early, rules=rules).of


@pytest.mark.parametrize(
    "name", ["last.pth.tar", "model_best.pth.tar", "net.ckpt.tar", "model.tar", "policy.zip", "step"]
)
def test_what_is_written_whole_while_the_training_steps_is_a_checkpoint(name: str) -> None:
    assert of(f"/out/{name}") is FileClass.CHECKPOINT


@pytest.mark.parametrize("name", ["train.h5", "features.npz", "vocab.pkl", "tokens.bin", "shard.tar", "data"])
def test_what_is_written_before_the_first_step_is_data(name: str) -> None:
    assert of(f"/data/{name}", early=True) is FileClass.OTHER


@pytest.mark.parametrize("name", ["step-0.pt", "init.pth.tar", "model.safetensors", "checkpoint-0/optimizer.bin"])
def test_a_checkpoint_before_the_first_step_is_known_by_its_name(name: str) -> None:
    assert of(f"/out/{name}", early=True) is FileClass.CHECKPOINT


@pytest.mark.parametrize("name", ["train.log", "data.arrow", "x.lock", "metrics.csv", "loss.jsonl"])
@pytest.mark.parametrize("folder", ["checkpoint-5", "global_step20", "iter_0003"])
def test_logs_and_data_in_a_checkpoints_directory_are_no_part_of_it(folder: str, name: str) -> None:
    assert of(f"/out/{folder}/{name}") is not FileClass.CHECKPOINT
    assert of(f"/out/{folder}/merges.txt") is FileClass.CHECKPOINT
    rules = FileRules((*FileRules().checkpoints, f"*{name[-4:]}"))
    assert of(f"/out/{folder}/{name}", rules=rules) is FileClass.CHECKPOINT


def test_a_directory_without_a_number_is_no_checkpoint() -> None:
    """A training's own directory, in which it writes its logs."""
    for folder in ("iter_log", "checkpoint-test", "global_steps"):
        assert of(f"/work/{folder}/train.txt", 5_000) is FileClass.LOG
        assert of(f"/work/{folder}/7.pt") is FileClass.CHECKPOINT


def test_a_name_of_the_configuration_is_a_checkpoint_at_any_time() -> None:
    rules = FileRules((*FileRules().checkpoints, "*.weights"))
    assert of("/out/a.weights", 100, early=True, rules=rules) is FileClass.CHECKPOINT


@pytest.mark.parametrize(
    "name",
    ["grid.png", "samples/7.jpg", "figure.pdf", "clip.mp4", "x.flac", "iter_500/fake.PNG", "checkpoint-20/grid.png"],
)
@pytest.mark.parametrize("size", [20_000, 3_000_000])
def test_a_picture_is_no_checkpoint_however_large(name: str, size: int) -> None:
    assert of(f"/out/{name}", size) is FileClass.LOG


@pytest.mark.parametrize(
    "name", ["manifest.ocdbt", "ocdbt.process_0/d/73f7b30e", "_CHECKPOINT_METADATA", "weights.npz", "state.msgpack"]
)
def test_what_jax_saves_is_a_checkpoint_also_under_its_final_name(name: str) -> None:
    assert of(f"/out/save-89/{name}", 200) is FileClass.CHECKPOINT


@pytest.mark.parametrize("name", ["runs.db", "runs.db-wal", "mlflow.sqlite", "d.sqlite3", "d.sqlite3-journal"])
def test_a_database_is_no_checkpoint(name: str) -> None:
    assert of(f"/out/{name}") is FileClass.LOG


def test_saves_know_when_the_training_began_to_step() -> None:
    saves = Saves()
    saves.steps_ns = None
    common = {"pid": 1, "tid": 1, "dev": 9, "path": "/data/train.h5", "bytes": LARGE, "created": True}
    saves.add_event(FileEvent(FileEventKind.CLOSED, 2_000, ino=5, opened_ns=1_000, **common))
    saves.steps_ns = 10_000
    assert saves.checkpoints() == []
    assert saves.class_of(9, 5, LARGE)[0] is FileClass.OTHER
    saves.add_event(FileEvent(FileEventKind.CLOSED, 12_000, ino=6, opened_ns=11_000, **common))
    assert [save.start_ns for save in saves.checkpoints()] == [11_000]


@pytest.mark.parametrize(
    "path",
    ["/u/wandb/run-20260101-x/files/model.pt", "/u/wandb/a.ckpt", "/out/rl_model_1000_steps.zip", "/o/best_model.zip"],
)
def test_a_small_model_is_a_checkpoint_wherever_it_lies(path: str) -> None:
    assert of(path, 150_000) is FileClass.CHECKPOINT


@pytest.mark.parametrize("name", ["run-x.wandb", "files/output.log", "files/wandb-summary.json", "logs/debug-core.log"])
def test_what_a_tracker_keeps_beside_models_is_a_log(name: str) -> None:
    assert of(f"/u/wandb/run-20260101-x/{name}") is FileClass.LOG


@pytest.mark.parametrize("path", ["/data/QM9/processed/data_v3.pt", "/work/train.pt", "/work/val_encodings.pt"])
def test_a_data_set_that_is_made_before_the_first_step_is_no_checkpoint(path: str) -> None:
    assert of(path, early=True) is not FileClass.CHECKPOINT
    assert of(path) is FileClass.CHECKPOINT


@pytest.mark.parametrize(
    "name",
    [
        "coco_instances_results.json", "instances.json", "rank0_trace.json", "host.1.pt.trace.json.gz",
        "case_001.nii.gz", "mesh.ply", "scan.obj", "boxes.xml", "cloud.las", "table.feather",
        "faiss.index", "features.lmdb", "cache.zarr/0.0.0", "results.pkl", "predictions.pickle", "embeddings.npz",
        "features.h5", "submission.zip",
        "preds.pt", "val_predictions_3.pth", "ModelPredictions.pt", "logits.safetensors", "cache.pt",
        "cached_tokens.pt", "cache.pkl", "detections.pth.tar", "pred.tar", "model_predictions.json",
        "memory_snapshot.pickle", "history.pkl", "samples.msgpack", "image_0010.h5", "mask-best.npz", "val_mask.bin",
        "model_prediction_3.pkl", "figureFinal.pkl", "features_resnet50.h5", "predictions_unet.npz",
    ],
)  # fmt: skip
@pytest.mark.parametrize("size", [5_000, LARGE])
def test_output_and_data_that_a_training_writes_are_no_checkpoints(name: str, size: int) -> None:
    assert of(f"/out/{name}", size) is not FileClass.CHECKPOINT
    assert of(f"/out/{name}", size, rules=FileRules((*FileRules().checkpoints, f"*/{name}"))) is FileClass.CHECKPOINT


@pytest.mark.parametrize(
    "name",
    [
        "model.json", "xgb_model.json", "bestModel.json", "prediction_model.pkl", "epoch_3.pkl", "replay_buffer.pkl",
        "agent.tar", "policy.zip", "ppo_cartpole.zip", "weights.mat", "state.ot", "net.params", "last.weights", "50",
        "__0_0.distcp", "d/1f30ab", "step_7.npz", "best.h5", "x.msgpack", "ckpt-1.index",
        "variables.data-00000-of-00001", "learned_embeds.bin", "preds_net.joblib", "features.pt", "embeddings.pth",
        "prediction_model.pt", "cached_encoder.pt", "checkpoint-500/predictions.pt", "samples_net.pth",
        "point_cloud/iteration_30000/point_cloud.ply", "splat.ply", "gaussians_7000.ply",
        "model.safetensors.index.json", "iter_0000500/results.pkl",
        "mask_rcnn_coco_0010.h5", "image_classifier.h5", "video_swin_best.h5", "audioGan.npz", "mask2former.h5",
        "feature_extractor.pkl", "visual_bert.bin", "log_regression.joblib", "history_lstm.h5",
        "object_detection_epoch_10.pth", "stock_prediction.pt", "detection_head.pth",
    ],
)  # fmt: skip
def test_a_checkpoint_of_an_unusual_name_is_one(name: str) -> None:
    assert of(f"/out/{name}") is FileClass.CHECKPOINT


@pytest.mark.parametrize("name", ["preds.pt", "token_cache.pt", "model_predictions.pth"])
def test_results_and_caches_that_are_read_or_written_before_the_first_step_are_no_checkpoint(name: str) -> None:
    assert of(f"/work/{name}", early=True) is not FileClass.CHECKPOINT
    assert not is_restored(f"/work/{name}", FileRules())
    assert is_restored("/work/prediction_model.pt", FileRules())
