"""A checkpoint that is read back while the training goes on: no data, nothing to load faster."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.builders.driver import Driver, moment, ns, played
from tests.unit.pipeline.test_pipeline import adds_up, rank_of
from trainprobe.model.cells import Leaf, Region, ThreadState
from trainprobe.model.event import StackSeen
from trainprobe.model.frame import Frame
from trainprobe.model.report import Rank
from trainprobe.pipeline import Pipeline

SAVED = "/run/best.ckpt"
LOADS = "load (torch/serialization.py:1300)"


def read(path: str, ino: int, frames: tuple[str, ...] = (), region: Region = Region.STEP, saved: str = SAVED) -> Rank:
    """A training that saves, goes on, and reads a file for 1.2 s, blocked, and for 0.4 s from the page cache."""
    driver, pipeline = Driver(), Pipeline()
    driver.begin()
    driver.train(40)
    driver.write(saved, 2_000_000_000, 0.5, ino=7)
    driver.train(40)
    inline = region == Region.FETCH
    driver.fetches += inline
    driver.inline_fetches += inline
    for _ in range(12):
        driver.spend(0.1, Leaf.FILE_READ, region)
        sample = replace(
            driver.sample(Leaf.FILE_READ), run=ThreadState.BLOCKED, region=region, path=path, dev=1, ino=ino
        )
        if frames and any(pipeline.wants().stacks):
            driver.events.append(StackSeen(driver.now, driver.pid, driver.tid, ("<module> (train.py:99)", *frames)))
        sample = replace(sample, since_ns=driver.now - ns(0.05))
        pipeline.step(Frame(moment(driver.now), tuple(driver.events), threads=(sample,)))
        driver.events.clear()
    driver.spend(0.4, Leaf.READ_CPU, region)
    if inline:
        driver.spend(0.02)
        driver.backward()
        driver.optimizer()
    driver.train(40)
    driver.exit()
    pipeline.step(Frame(moment(driver.now), tuple(driver.events)))
    rank = rank_of(pipeline, driver)
    adds_up(rank)
    return rank


@pytest.mark.parametrize(("path", "ino"), [(SAVED, 7), (SAVED, 0), ("/run/best-v1.ckpt", 9), ("/other/name", 7)])
def test_a_checkpoint_of_the_run_that_is_read_back_is_no_data(path: str, ino: int) -> None:
    rank = read(path, ino)
    assert rank.lost == pytest.approx({"checkpoint": 0.5, "unknown": 1.6}, abs=0.01)
    assert rank.verdict.summary.startswith("reading a checkpoint back cost 1.60 s")
    stall = rank.stalls[-1]
    assert stall.summary == f"reading {path} back for 1.60 s"
    assert stall.advice[0].startswith("keep a copy of the state")
    assert rank.slow_files == []


@pytest.mark.parametrize("path", ["/run/best_model.pt", "/run/checkpoints/last.ckpt"])
def test_another_checkpoint_beside_those_of_the_run_is_no_data(path: str) -> None:
    assert "data_storage" not in read(path, 9, saved="/run/checkpoints/best.ckpt").lost


@pytest.mark.parametrize("region", [Region.STEP, Region.FETCH])
@pytest.mark.parametrize("path", ["/run/tiles.pt", "/run/checkpoints/tiles-3.pt", "/run/features.safetensors"])
def test_data_beside_the_checkpoints_in_their_formats_is_data(path: str, region: Region) -> None:
    rank = read(path, 9, region=region, saved="/run/checkpoints/best.ckpt")
    assert rank.lost == pytest.approx({"checkpoint": 0.5, "data_storage": 1.6}, abs=0.05)
    assert [file.path for file in rank.slow_files] == [path]


def test_what_a_loader_reads_is_data_whoever_wrote_it() -> None:
    """Samples of a replay, which the training itself saves."""
    rank = read(SAVED, 7, region=Region.FETCH)
    assert [file.path for file in rank.slow_files] == [SAVED]


@pytest.mark.parametrize("name", ["load_best", "Trainer.resume_from_checkpoint"])
def test_a_stack_shows_that_a_model_is_restored(name: str) -> None:
    rank = read("/pretrained/x", 9, (f"{name} (train.py:40)", LOADS))
    assert rank.lost == pytest.approx({"checkpoint": 0.5, "unknown": 1.6}, abs=0.01)


@pytest.mark.parametrize("data", [0, 1, 3])
def test_data_that_is_read_beside_a_restore_is_data(data: int) -> None:
    """``data``: of four looks so many found the training in its own loading."""
    driver = Driver()
    driver.begin()
    driver.train(60)
    for frame in ("validate (train.py:20)", "search (train.py:30)"):  # it does something else before
        driver.spend(0.05)
        stack = ("<module> (train.py:99)", frame)
        driver.events.append(StackSeen(driver.now, driver.pid, driver.tid, stack, running=frame.startswith("search")))
    for look in range(4):
        driver.spend(0.5, Leaf.FILE_READ)
        frame = "read_chunk (data.py:9)" if look < data else "load_best (train.py:40)"
        driver.events.append(StackSeen(driver.now, driver.pid, driver.tid, ("<module> (train.py:99)", frame)))
    driver.train(40)
    driver.exit()
    rank = rank_of(played(driver), driver)
    lost = {"unknown": 0.5 * (4 - data), "data_storage": 0.5 * data}
    assert rank.lost == pytest.approx({cause: seconds for cause, seconds in lost.items() if seconds}, abs=0.12)
    adds_up(rank)


@pytest.mark.parametrize(
    ("frames", "region"),
    [
        ((), Region.STEP),
        (("load_shard (train.py:40)", LOADS), Region.STEP),
        (("DataLoader.__next__ (torch/dataloader.py:9)", "load_model_input (data.py:9)", LOADS), Region.FETCH),
    ],
)
def test_data_that_torch_loads_is_data(frames: tuple[str, ...], region: Region) -> None:
    rank = read("/data/chunk-3.pt", 9, frames, region)
    assert rank.lost == pytest.approx({"checkpoint": 0.5, "data_storage": 1.6}, abs=0.05)
    assert [file.path for file in rank.slow_files] == ["/data/chunk-3.pt"]


@pytest.mark.parametrize("loads", [False, True])
def test_a_training_inside_of_a_function_that_resumes_it_reads_data(loads: bool) -> None:
    """Unless a further function restores a state."""
    driver, pipeline = Driver(), Pipeline()
    driver.begin()
    outer = ("<module> (train.py:99)", "load_model_and_train (train.py:80)")
    for _ in range(4):
        driver.train(20)
        played(driver, pipeline)
        rank = next(iter(pipeline.runs.values())).ranks.by_pid[driver.pid][0]
        rank.ordinary.lines_ns = driver.now
        driver.events.append(StackSeen(driver.now, driver.pid, driver.tid, (*outer, "forward (net.py:9)")))
    driver.train(20)
    driver.spend(0.8, Leaf.FILE_READ)
    inner = ("rollback (train.py:30)", LOADS) if loads else ("read_table (train.py:30)", "read (parquet.py:9)")
    driver.events.append(StackSeen(driver.now, driver.pid, driver.tid, (*outer, *inner)))
    driver.spend(0.8, Leaf.FILE_READ)
    driver.train(20)
    driver.exit()
    lost = rank_of(played(driver, pipeline), driver).lost
    assert lost == pytest.approx({"unknown" if loads else "data_storage": 1.6}, abs=0.02)


@pytest.mark.parametrize(
    ("inner", "lost"),
    [
        (("log_artifact (train.py:40)", "md5_file_b64 (wandb/hashutil.py:50)"), {"checkpoint": 2.1}),
        (("checksum (train.py:40)",), {"checkpoint": 2.1}),
        (("Data.__init__ (data.py:12)", "read_csv (pandas/readers.py:900)"), {"checkpoint": 0.5, "data_inline": 1.6}),
        (("NGP.forward (ngp.py:12)", "HashGrid.encode (grid.py:9)"), {"checkpoint": 0.5, "data_inline": 1.6}),
    ],
)
def test_a_save_that_is_read_again_at_once_is_hashed_or_sent(inner: tuple[str, ...], lost: dict[str, float]) -> None:
    """From the page cache: no data, which the loader would load beside the step."""
    driver, pipeline = Driver(), Pipeline()
    driver.begin()
    driver.train(40)
    driver.write(SAVED, 2_000_000_000, 0.5, ino=7)
    driver.spend(1.6, Leaf.READ_CPU)
    frames = ("<module> (train.py:99)", "main (train.py:9)", *inner)
    driver.events.append(StackSeen(driver.now, driver.pid, driver.tid, frames, running=True))
    driver.train(40)
    driver.exit()
    pipeline.step(Frame(moment(driver.now), tuple(driver.events)))
    rank = rank_of(pipeline, driver)
    assert rank.lost == pytest.approx(lost, abs=0.02)
    if len(lost) == 1:
        assert rank.stalls[0].summary == f"reading checkpoint {SAVED} again for 1.60 s, behind its save"
