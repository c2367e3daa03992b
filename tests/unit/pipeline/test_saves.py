"""Saves as spans: serialising belongs to them; in ordinary steps and after the last one they are lost time, too."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.builders.driver import Driver, moment, ns, played
from tests.unit.pipeline.test_pipeline import adds_up, rank_of
from trainprobe.advise.settings import advice
from trainprobe.model.cells import Leaf, Region
from trainprobe.model.event import FileEvent, FileEventKind, StackSeen, StepFile
from trainprobe.model.report import Rank
from trainprobe.model.sample import Inspection
from trainprobe.pipeline import Pipeline

SIZE = 200_000_000
SAVES = ("main (train.py:9)", "Runner.save_checkpoint (runner.py:70)", "_save (serialization.py:1312)")
SEARCHES = ("main (train.py:9)", "search (train.py:70)")


def trained() -> Driver:
    driver = Driver()
    driver.begin()
    driver.train(40)
    return driver


def burst_and_save(driver: Driver, frames: tuple[str, ...] = (), *, gap: float = 0.0) -> None:
    """0.4 s on the CPU, with a stack in its middle, then 0.2 s of writes of one file."""
    driver.spend(0.2)
    if frames:
        driver.events.append(StackSeen(driver.now, driver.pid, driver.tid, frames))
    driver.spend(0.2)
    driver.write(f"/run/step-{driver.steps}.pth", SIZE, 0.2, gap=gap)


def ended(driver: Driver) -> Rank:
    driver.exit()
    rank = rank_of(played(driver), driver)
    adds_up(rank)
    return rank


@pytest.mark.parametrize(
    ("inner", "cause"),
    [
        (("save_checkpoint (lightning/trainer.py:1380)", "_save (torch/serialization.py:900)"), "checkpoint"),
        (("async_save (torch/state_dict_saver.py:300)", "_copy (torch/_state_dict_utils.py:500)"), "checkpoint"),
        (("save_inference_model (train.py:30)", "_save (torch/serialization.py:900)"), "checkpoint"),
        (("put (ray/worker.py:9)", "SerializationContext.serialize (ray/serialization.py:9)"), "cpu_bound"),
        (("cache (train.py:30)", "dump (joblib/numpy_pickle.py:9)"), "cpu_bound"),
        (("cache (train.py:30)", "Group.create_dataset (h5py/group.py:183)"), "cpu_bound"),
        (("read_table (train.py:30)", "File.__init__ (h5py/files.py:560)"), "cpu_bound"),
        (("CheckpointManager.save (orbax/manager.py:9)", "serialize (orbax/handler.py:9)"), "checkpoint"),
        (("sync_weights (train.py:30)", "get_model_state_dict (torch/state_dict.py:900)"), "cpu_bound"),
        (("gather (train.py:30)", "TypedStorage.__reduce__ (torch/storage.py:1)", "save (torch/serialization.py:9)"),
         "cpu_bound"),
        (("next_batch (train.py:30)", "Dataset.__getitem__ (h5py/dataset.py:758)"), "cpu_bound"),
        (("Logger.dump (stable_baselines3/logger.py:500)", "write (stable_baselines3/logger.py:170)"), "cpu_bound"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("region", [Region.STEP, Region.NO_GRAD])
def test_a_save_that_writes_no_file_here_is_known_by_its_stacks(
    inner: tuple[str, ...], cause: str, region: Region
) -> None:
    """It goes to an object store, or to a process that writes it while the steps go on."""
    driver = trained()
    frames = ("<module> (train.py:99)", "main (train.py:9)", *inner)
    driver.spend(0.4, Leaf.CPU, region)
    driver.events.append(StackSeen(driver.now, driver.pid, driver.tid, frames, running=True))
    driver.spend(0.4, Leaf.CPU, region)
    driver.spend(2.0, Leaf.LOCK)
    driver.events.append(StackSeen(driver.now, driver.pid, driver.tid, (*frames, "wait (python3.11/threading.py:331)")))
    driver.train(20)
    rank = ended(driver)
    lost = {"checkpoint": 2.8} if cause == "checkpoint" else {"cpu_bound": 0.8, "unknown": 2.0}
    assert rank.lost == pytest.approx(lost, abs=0.02)
    assert rank.counters.phase_seconds["evaluation"] == 0.0
    if cause == "checkpoint":
        assert "which writes no file here" in rank.stalls[0].summary
        assert rank.stalls[0].python_stack is not None


@pytest.mark.parametrize("frames", [SAVES, ()], ids=["by its stack", "by its payload"])
def test_serialising_before_the_file_is_opened_is_part_of_the_save(frames: tuple[str, ...]) -> None:
    driver = trained()
    began = driver.now
    burst_and_save(driver, frames)
    driver.train(20)
    rank = ended(driver)
    (stall,) = rank.stalls
    assert stall.shares == pytest.approx({"checkpoint": 0.6}, abs=0.01)
    assert rank.lost == pytest.approx({"checkpoint": 0.6}, abs=0.01)
    (save,) = rank.checkpoints
    assert save.start == pytest.approx(moment(driver.now).wall_of(began), abs=0.01)
    assert save.serialize_seconds == pytest.approx(0.4, abs=0.01)
    assert save.seconds == pytest.approx(0.6, abs=0.01)
    assert save.blocked_seconds == pytest.approx(0.6, abs=0.01)


def test_a_slow_function_before_a_save_is_none_of_it() -> None:
    driver = trained()
    burst_and_save(driver, SEARCHES)
    driver.train(20)
    rank = ended(driver)
    assert rank.lost == pytest.approx({"cpu_bound": 0.4, "checkpoint": 0.2}, abs=0.01)
    assert rank.checkpoints[0].serialize_seconds == pytest.approx(0.0, abs=0.01)


def test_without_a_stack_a_save_that_serialises_as_it_writes_has_no_burst_before_it() -> None:
    driver = trained()
    burst_and_save(driver, gap=0.1)
    driver.train(20)
    assert ended(driver).lost == pytest.approx({"cpu_bound": 0.4, "checkpoint": 0.3}, abs=0.01)


def test_what_a_save_may_take_without_a_stack_is_bounded_by_its_bytes() -> None:
    driver = trained()
    driver.spend(2.0)
    driver.write("/run/a.pth", 20_000_000, 0.1)
    driver.train(20)
    assert ended(driver).lost == pytest.approx({"cpu_bound": 1.8, "checkpoint": 0.3}, abs=0.01)


def test_what_is_computed_before_a_save_that_needs_no_serialising_is_none_of_it() -> None:
    """No stack shows it; the save before this one was opened at once."""
    driver = trained()
    driver.write("/run/a.pth", SIZE, 0.2)
    driver.train(20)
    burst_and_save(driver)
    driver.train(20)
    assert ended(driver).lost == pytest.approx({"cpu_bound": 0.4, "checkpoint": 0.4}, abs=0.01)


def test_forward_passes_before_a_save_are_an_evaluation() -> None:
    driver = trained()
    driver.spend(0.5, region=Region.NO_GRAD)
    driver.write("/run/a.pth", SIZE, 0.2)
    driver.train(20)
    rank = ended(driver)
    assert rank.counters.phase_seconds["evaluation"] == pytest.approx(0.5, abs=0.02)
    assert rank.lost == pytest.approx({"checkpoint": 0.2}, abs=0.02)


@pytest.mark.parametrize(
    ("first", "saved"), [("save_checkpoint (train.py:40)", 4.6), ("look (train.py:30)", 0.6), ("", 0.6)]
)
def test_a_full_state_that_is_put_together_without_gradients_is_its_saves(first: str, saved: float) -> None:
    """Of a sharded model: by all the stacks that were taken before the file is opened."""
    driver = trained()
    for frame in (first, "save_checkpoint (train.py:40)") if first else ():
        driver.spend(2.0, Leaf.CPU, Region.NO_GRAD)
        frames = ("<module> (train.py:99)", "main (train.py:9)", frame, "full_tensor (torch/_state_dict_utils.py:200)")
        driver.events.append(StackSeen(driver.now, driver.pid, driver.tid, frames, running=True))
    driver.spend(0.0 if first else 4.0, Leaf.CPU, Region.NO_GRAD)
    driver.write("/run/a.pth", SIZE, 0.6)
    driver.train(20)
    rank = ended(driver)
    assert rank.lost["checkpoint"] == pytest.approx(saved, abs=0.05)
    assert rank.counters.phase_seconds["evaluation"] + rank.lost.get("cpu_bound", 0.0) == pytest.approx(
        4.6 - saved, abs=0.05
    )


@pytest.mark.parametrize("shown", [False, True])
@pytest.mark.parametrize(("second", "saved"), [("/run/last.ckpt", 0.7), ("/other/last.ckpt", 0.4)])
def test_files_that_are_made_in_memory_behind_an_evaluation_are_no_part_of_it(
    second: str, saved: float, shown: bool
) -> None:
    """Lightning, with gradients off: what the second one took to be made says what the first one did."""
    driver = trained()
    driver.spend(0.6, region=Region.NO_GRAD)
    if shown:
        frames = ("<module> (train.py:9)", "validate (loop.py:5)", "Linear.forward (linear.py:134)")
        driver.events.append(StackSeen(driver.now, driver.pid, driver.tid, frames))
    for path, ino in (("/run/best.ckpt", 7), (second, 8)):
        driver.spend(0.15, region=Region.NO_GRAD)
        driver.write(path, SIZE, 0.2, ino=ino)
    driver.train(20)
    rank = ended(driver)
    assert rank.lost == pytest.approx({"checkpoint": saved}, abs=0.02)
    assert rank.counters.phase_seconds["evaluation"] == pytest.approx(1.3 - saved, abs=0.03)


@pytest.mark.parametrize(("place", "cause"), [("save-1.orbax-checkpoint-tmp/d/a1", "checkpoint"), ("b/x", "cpu_bound")])
def test_what_the_driver_makes_for_the_threads_that_write_its_save_is_the_saves(place: str, cause: str) -> None:
    """Orbax: the driver writes a small file and copies arrays, threads write them into the same directory."""
    driver = trained()
    driver.write("/run/save-1.orbax-checkpoint-tmp/_CHECKPOINT_METADATA", 500, 0.001, ino=8)
    driver.spend(0.6)
    opened, path = driver.now, f"/run/{place}.pt"
    driver.file(FileEventKind.OPENED, path, 9, opened, tid=77)
    driver.file(FileEventKind.CLOSED, path, 9, opened, SIZE, ns(0.05), tid=77)
    driver.train(20)
    assert ended(driver).lost == pytest.approx({cause: 0.6}, abs=0.01)


def test_what_a_save_waits_for_a_processor_is_no_evaluation() -> None:
    driver = trained()
    driver.spend(0.5, region=Region.NO_GRAD)
    driver.write("/run/a.pth", SIZE, 0.2, queue=0.4)
    driver.train(20)
    rank = ended(driver)
    assert rank.counters.phase_seconds["evaluation"] == pytest.approx(0.5, abs=0.02)
    assert sum(rank.lost.values()) == pytest.approx(0.6, abs=0.02)


def test_what_a_save_waits_for_a_processor_is_no_start_of_workers() -> None:
    driver = trained()
    for epoch in range(2):
        driver.write("/run/a.pth", SIZE, 0.2, queue=0.7)
        driver.fork(2001 + epoch)
        driver.fetch(0.3, Leaf.PIPE_READ)
        driver.train(20)
        driver.die(2001 + epoch)
    (*_, last) = ended(driver).stalls
    assert last.shares["worker_startup"] == pytest.approx(0.3, abs=0.02)
    assert last.seconds == pytest.approx(1.2, abs=0.02)


def test_a_save_with_an_evaluation_in_its_step_took_as_long_as_those_without() -> None:
    driver = trained()
    burst_and_save(driver)
    driver.train(20)
    began = driver.now
    burst_and_save(driver)
    for _ in range(50):
        driver.fetch(0.002)
        driver.spend(0.03, Leaf.CPU, Region.NO_GRAD)
    driver.train(20)
    rank = ended(driver)
    assert rank.lost == pytest.approx({"checkpoint": 1.2}, abs=0.05)
    assert rank.counters.phase_seconds["evaluation"] == pytest.approx(1.6, abs=0.05)
    assert rank.stalls[1].start == pytest.approx(moment(driver.now).wall_of(began), abs=0.1)


def test_serialising_between_open_and_write_is_part_of_the_save() -> None:
    """Keras opens the zip archive first and then makes its members in memory."""
    driver = trained()
    opened = driver.now
    driver.file(FileEventKind.OPENED, "/run/60.keras", 7, opened)
    driver.spend(0.7)
    driver.spend(0.1, Leaf.FILE_WRITE)
    driver.files[1, 7] = StepFile(1, 7, ns(0.1), 0, SIZE)
    driver.file(FileEventKind.CLOSED, "/run/60.keras", 7, opened, SIZE, ns(0.1))
    driver.train(20)
    rank = ended(driver)
    assert rank.lost == pytest.approx({"checkpoint": 0.8}, abs=0.01)
    assert rank.checkpoints[0].serialize_seconds == pytest.approx(0.7, abs=0.01)


@pytest.mark.parametrize("every", [1, 2])
def test_saves_of_ordinary_steps_are_a_bottleneck_with_their_interval(every: int) -> None:
    driver = Driver()
    driver.begin()
    for step in range(200):
        driver.step()
        if step % every == 0:
            driver.write("/run/state.pt", SIZE, 0.02)
    driver.exit()
    run = played(driver).report(moment(driver.now)).runs[0]
    (rank,) = run.ranks
    adds_up(rank)
    (bottleneck,) = rank.bottlenecks
    assert bottleneck.cause == rank.verdict.cause == "checkpoint"
    assert rank.lost["checkpoint"] == pytest.approx(0.02 * 200 / every, rel=0.1)
    assert rank.counters.save_every_steps == every
    assert ("one in each step" if every == 1 else "one every 2 steps") in bottleneck.summary
    assert rank.counters.saves == pytest.approx(200 / every, abs=10)
    (setting,) = (one for one in advice(run, rank, 4).settings if one.name == "checkpoint interval")
    assert str(setting.now) == ("every step" if every == 1 else "every 2 steps")
    assert setting.gain == pytest.approx(0.02 * 200 / every, rel=0.1)
    assert str(setting.reason).startswith("a save takes 20 ms")
    now = "step" if every == 1 else every
    assert bottleneck.advice[0].startswith(f"save every {setting.proposed} steps instead of every {now}:")


def test_the_records_of_saves_decide_over_the_slots_of_a_step() -> None:
    """A step row tells four files apart: the checkpoint is the fifth, beside a log that is busier than the others."""
    driver = trained()
    opened = driver.now
    driver.file(FileEventKind.OPENED, "/run/iter_80.pth", 9, opened)
    driver.spend(0.5, Leaf.FILE_WRITE)
    driver.file(FileEventKind.CLOSED, "/run/iter_80.pth", 9, opened, SIZE, ns(0.5))
    for ino in (3, 4, 5):
        driver.write(f"/run/{ino}.log", 100, 0.001, ino=ino, created=False)
    driver.files[0, 0] = StepFile(0, 0, ns(0.5), 0, SIZE)
    driver.train(20)
    rank = ended(driver)
    (stall,) = rank.stalls
    assert stall.cause == "checkpoint"
    assert stall.summary.startswith("checkpoint /run/iter_80.pth: 200 MB")
    assert rank.lost == pytest.approx({"checkpoint": 0.5}, abs=0.01)


@pytest.mark.parametrize(
    ("beside", "belongs"),
    [
        ("/run/step/last_checkpoint", True),
        ("/run/latest", True),
        ("/elsewhere/latest", False),
        ("/run/step/config.json", True),
        ("/run/step/README.md", True),
        ("/run/step/tokenizer.json", True),
        ("/run/step/results.json", False),
        ("/run/step/case_1.nii.gz", False),
        ("/run/config.json", False),
        ("/run/step/train.log", False),
        ("/run/step/metrics.csv", False),
        ("/run/step/sample.png", False),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_what_is_written_beside_a_checkpoint_belongs_to_the_save(beside: str, belongs: bool) -> None:
    """A mark of the latest one may wait for the blocks of the file that it replaces. Logs and output do not belong."""
    driver = trained()
    driver.write("/run/step/model.pth", SIZE, 0.2)
    driver.write(beside, 50, 0.3, ino=8)
    driver.train(20)
    rank = ended(driver)
    assert rank.lost["checkpoint"] == pytest.approx(0.5 if belongs else 0.2, abs=0.01), rank.lost


@pytest.mark.parametrize("name", ["save_sample_grid", "save_predictions", "plot_progress"])
def test_what_else_is_saved_before_a_checkpoint_is_no_part_of_it(name: str) -> None:
    driver = trained()
    driver.spend(0.6)
    driver.events.append(StackSeen(driver.now, driver.pid, driver.tid, ("main (train.py:9)", f"{name} (train.py:30)")))
    driver.spend(0.6)
    driver.write("/run/grid.png", 300_000, 0.003, ino=8)
    driver.write("/run/last.pth", SIZE, 0.5)
    driver.train(20)
    rank = ended(driver)
    assert rank.lost == pytest.approx({"cpu_bound": 1.2, "checkpoint": 0.5}, abs=0.01)


@pytest.mark.parametrize(
    ("path", "saves"),
    [("/out/instances.json", False), ("/out/predictions.pkl", False), ("/out/case.nii.gz", False), ("/out/7", True)],
)
def test_what_an_evaluation_writes_is_its_own_output(path: str, saves: bool) -> None:
    """Detections are written in thousands of calls with an encoder's CPU between them, as a save's may be."""
    driver = trained()
    for _ in range(3):
        for _ in range(20):
            driver.fetch(0.002)
            driver.spend(0.1, region=Region.NO_GRAD)
        driver.fetches += 1
        driver.write(path, SIZE, 0.2, gap=3.0)
        driver.train(40)
    rank = ended(driver)
    adds_up(rank)
    if saves:
        assert rank.lost == pytest.approx({"checkpoint": 9.6}, abs=0.1)
        return
    assert rank.lost == {}
    assert rank.checkpoints == []
    assert rank.warnings == []
    assert rank.counters.phase_seconds["evaluation"] == pytest.approx(3 * 5.24, abs=0.3)


def test_a_save_after_the_last_step_is_a_stall() -> None:
    driver = trained()
    driver.spend(0.01)
    burst_and_save(driver, SAVES)
    driver.exit()
    run = played(driver).report(moment(driver.now)).runs[0]
    (rank,) = run.ranks
    adds_up(rank)
    (stall,) = rank.stalls
    assert stall.cause == "checkpoint"
    assert rank.lost == pytest.approx({"checkpoint": 0.6}, abs=0.05)
    assert rank.counters.phase_seconds["shutdown"] == pytest.approx(0.6, abs=0.05)
    (setting,) = (one for one in advice(run, rank, 4).settings if one.name == "checkpoint interval")
    assert (str(setting.now), setting.proposed) == ("once, after the last step", None)
    assert not [line for line in stall.advice if "save every" in line], "there is none to save more rarely"


@pytest.mark.parametrize("pause", [1.0, 4.0])
def test_a_pause_behind_a_last_save_is_the_shutdown_unless_it_is_long(pause: float) -> None:
    """mmcv sleeps for a second once it has trained, for whatever its hooks still do."""
    driver = Driver()
    driver.begin()
    driver.fork(2000)
    driver.train(40)
    pipeline = played(driver)
    driver.write("/run/last.pth", SIZE, 0.4)
    driver.die(2000)
    for _ in range(round(pause / 0.1)):
        driver.spend(0.1, Leaf.SLEEP)
        played(driver, pipeline, threads=(driver.sample(Leaf.SLEEP),))
    driver.finalize()
    driver.exit()
    rank = rank_of(played(driver, pipeline), driver)
    adds_up(rank)
    lost = {"checkpoint": 0.4, "unknown": pause} if pause > 3 else {"checkpoint": 0.4}
    assert rank.lost == pytest.approx(lost, abs=0.05)
    assert rank.counters.phase_seconds["shutdown"] == pytest.approx(0.6 + (pause if pause <= 3 else 0), abs=0.1)


def test_a_long_write_in_flight_is_a_checkpoint_beside_logs() -> None:
    """The stall that is open has no finished call on the checkpoint yet, but a few on a log."""
    driver = trained()
    pipeline = played(driver)
    driver.write("/run/train.log", 100, 0.001, ino=3, created=False)
    opened = driver.now
    driver.file(FileEventKind.OPENED, "/run/a.pth", 9, opened)
    driver.spend(0.9, Leaf.FILE_WRITE)
    sample = replace(driver.sample(Leaf.FILE_WRITE), since_ns=opened, dev=1, ino=9, files=tuple(driver.files.values()))
    looks = [Inspection(driver.pid, driver.tid, "D", wchan=where) for where in ("", "balance_dirty_pages.isra.0")]
    for look in looks:
        played(driver, pipeline, threads=(sample,), inspections=(look,))
    (stall,) = rank_of(pipeline, driver).stalls
    assert stall.shares["checkpoint"] > 0.95 * stall.seconds
    assert stall.chain[-1].endswith("(balance_dirty_pages, in 1 of 2 looks)")


@pytest.mark.parametrize("every", [1, 3])
def test_serialising_before_the_files_of_ordinary_steps_is_part_of_their_saves(every: int) -> None:
    """Of a save in each step the payload tells how much; else what the steps that save have beyond the others."""
    driver = Driver()
    driver.begin()
    for step in range(210):
        driver.step()
        if step % every == 0:
            driver.spend(0.02)
            driver.write("/run/state.pt", 3_000_000, 0.005)
    rank = ended(driver)
    assert rank.lost == pytest.approx({"checkpoint": 0.025 * 202 / every}, rel=0.06)


def test_a_file_that_is_never_closed_saves_only_while_it_is_written() -> None:
    driver = trained()
    driver.file(FileEventKind.OPENED, "/run/last.pt", 7, driver.now)
    driver.spend(0.2, Leaf.FILE_WRITE)
    driver.files[1, 7] = StepFile(1, 7, ns(0.2), 0, SIZE)
    driver.file(FileEventKind.PROGRESS, "/run/last.pt", 7, driver.now - ns(0.2), SIZE, ns(0.2))
    driver.events.append(StackSeen(driver.now, driver.pid, driver.tid, SEARCHES))
    driver.spend(0.5)
    driver.train(20)
    assert ended(driver).lost == pytest.approx({"cpu_bound": 0.5, "checkpoint": 0.2}, abs=0.01)


def test_a_slow_step_beside_a_save_by_helpers_keeps_its_stack() -> None:
    """As orbax saves: the driver opened the file, and computes something else while helpers write it."""
    driver = trained()
    opened = driver.now
    driver.file(FileEventKind.OPENED, "/run/last.pt", 7, opened)
    driver.spend(0.2, Leaf.FILE_WRITE)
    driver.train(5)
    driver.spend(0.3)
    driver.events.append(StackSeen(driver.now, driver.pid, driver.tid, SEARCHES))
    driver.spend(0.3)
    driver.train(5)
    driver.file(FileEventKind.CLOSED, "/run/last.pt", 7, opened, SIZE, ns(0.2))
    driver.train(20)
    rank = ended(driver)
    (slow,) = [stall for stall in rank.stalls if stall.cause == "cpu_bound"]
    assert slow.python_stack == [*SEARCHES]


@pytest.mark.parametrize("takes_part", [True, False])
def test_without_steps_a_save_by_other_threads_blocks_where_the_driver_takes_part_in_it(takes_part: bool) -> None:
    """As orbax saves: the driver opens the first file, helper threads write, and the driver computes until the end."""
    driver = Driver()
    driver.begin()
    pipeline = played(driver)
    for second in range(12):
        driver.spend(0.04)
        opened = driver.now
        if second == 8:
            driver.file(FileEventKind.OPENED, "/run/save-9/_CHECKPOINT_METADATA", 7, opened)
            driver.spend(0.4, Leaf.CPU if takes_part else Leaf.LOCK)
            driver.file(FileEventKind.CLOSED, "/run/save-9/_CHECKPOINT_METADATA", 7, opened, 600)
        driver.spend(1.0 - (driver.now - opened) / 1e9 - 0.04, Leaf.LOCK)
        played(driver, pipeline, threads=(driver.sample(Leaf.LOCK),))
    (save,) = rank_of(pipeline, driver).checkpoints
    assert save.seconds == pytest.approx(0.4)
    assert save.blocked_seconds == pytest.approx(0.4 if takes_part else 0.0, abs=1e-6)


def test_a_save_goes_on_while_threads_of_the_training_write_its_files() -> None:
    """Its first file, the driver's own, is closed when the step's end has been told; no stack shows the save."""
    driver = trained()
    opened, thread = driver.now, 99
    first = "/run/save-9/_CHECKPOINT_METADATA"
    driver.file(FileEventKind.OPENED, first, 7, opened, created=True)
    driver.spend(0.3)
    driver.spend(0.1, Leaf.LOCK)
    begun = driver.now - ns(0.1)
    data = FileEvent(FileEventKind.CLOSED, driver.now, driver.pid, thread, 1, 8, "/run/save-9/d/0", opened_ns=begun)
    driver.events.append(replace(data, bytes=SIZE, write_ns=ns(0.1), created=True))
    driver.train(1)
    driver.file(FileEventKind.CLOSED, first, 7, opened, 600, created=True)
    driver.train(20)
    assert ended(driver).lost == pytest.approx({"checkpoint": 0.4}, abs=0.02)


def test_the_interval_is_that_of_the_large_saves() -> None:
    driver = Driver()
    driver.begin()
    for step in range(200):
        driver.step()
        if step % 5 == 0:
            driver.write("/run/state.pkl", 20_000, 0.001, ino=8)
        if step % 40 == 39:
            driver.write("/run/model.pth", SIZE, 0.5)
    rank = ended(driver)
    assert (rank.counters.saves, rank.counters.save_every_steps) == (5, 40)
    assert rank.lost["checkpoint"] == pytest.approx(2.5, abs=0.05)


def test_the_late_close_of_an_older_file_hides_no_save_of_the_step() -> None:
    """Of a small file the close is known later than that of the large files which were begun after it."""
    driver = trained()
    driver.write("/run/40/rng_state.pth", 1000, 0.001, ino=5)
    late = driver.events.pop()
    driver.train(1)
    driver.spend(0.2)
    driver.write("/run/41/model.pth", SIZE, 0.3, ino=8)
    driver.events.append(late)
    driver.train(20)
    rank = ended(driver)
    assert rank.lost == pytest.approx({"checkpoint": 0.5}, abs=0.01)
    assert max(save.serialize_seconds for save in rank.checkpoints) == pytest.approx(0.2, abs=0.01)


def orbax_save(driver: Driver, name: str, thread: int = 99) -> None:
    """As orbax does: the driver's own file, those of a thread 0.2 s apart, one of them again and again, then the
    driver's own once more, and the directory gets its name. The small files' closes are reported later."""
    place, late = f"/run/{name}.orbax-checkpoint-tmp", []

    def file(path: str, ino: int, tid: int, size: int = 0) -> None:
        opened = driver.now
        driver.file(FileEventKind.OPENED, f"{place}/{path}", ino, opened, created=True, tid=tid)
        driver.spend(0.02, Leaf.LOCK)
        closed = FileEvent(
            FileEventKind.CLOSED, driver.now, driver.pid, tid, 1, ino, f"{place}/{path}", opened_ns=opened
        )
        late.append(replace(closed, bytes=size or 100, calls=1, write_ns=ns(0.02), created=True))

    base = 1000 * driver.steps
    file("_CHECKPOINT_METADATA", base, driver.tid)
    for number in range(4):
        file(f"d/{number}", base + 10 + number, thread, SIZE)
        file("manifest.ocdbt", base + 20 + number, thread)
        driver.spend(0.2, Leaf.LOCK)
    file("_METADATA", base + 30, thread)
    file("_CHECKPOINT_METADATA", base + 1, driver.tid)
    driver.file(FileEventKind.RENAMED, place, 0, new_path=f"/run/{name}")
    driver.train(4)
    driver.events += late


def test_the_files_of_a_directory_that_is_renamed_are_one_save() -> None:
    driver = trained()
    for number in range(5):
        orbax_save(driver, f"save-{number}")
        driver.train(16)
    rank = ended(driver)
    assert (rank.totals.saves, rank.totals.checkpoints, rank.counters.saves) == (5, 55, 5)
    assert sum(rank.counters.checkpoints.values()) == len(rank.checkpoints) == 55
    for file in rank.checkpoints:
        assert file.path.startswith(f"/run/save-{file.save - 1}/")
    assert rank.counters.save_every_steps == 20


def test_a_save_whose_directory_has_its_name_is_over() -> None:
    """A long wait for the GPU in the next step is none of it, though its files' closes were not reported."""
    driver = trained()
    orbax_save(driver, "save-0")
    late, driver.events = driver.events[-11:], driver.events[:-11]
    driver.spend(1.0, Leaf.GPU)
    driver.train(4)
    driver.events += late
    driver.train(20)
    rank = ended(driver)
    assert rank.lost["checkpoint"] == pytest.approx(1.02, abs=0.05)


def test_files_of_earlier_saves_whose_close_is_not_reported_yet_are_none_of_a_save() -> None:
    """Neither its text counts them nor a wait for the GPU between its calls is theirs."""
    driver = trained()
    for number in range(4):
        opened = driver.now
        driver.file(FileEventKind.OPENED, f"/run/checkpoint-{number}/state.json", 50 + number, opened, created=True)
        driver.train(3)
        driver.write(f"/run/checkpoint-{number}/model.pt", SIZE, 0.3)
        driver.train(3)
    rank = ended(driver)
    assert [" more" in stall.summary for stall in rank.stalls] == [False] * 4


def test_the_largest_file_of_a_save_by_helpers_names_it() -> None:
    """A small one, whose close is reported late, seems to be written for as long as the save lasts."""
    driver = trained()
    begun = driver.now
    driver.file(FileEventKind.OPENED, "/run/9.orbax-checkpoint-tmp/_sharding", 7, begun, created=True, tid=98)
    driver.spend(0.5, Leaf.LOCK)
    data = FileEvent(
        FileEventKind.CLOSED, driver.now, driver.pid, 99, 1, 8, "/run/9.orbax-checkpoint-tmp/d/0", opened_ns=begun
    )
    driver.events.append(replace(data, bytes=SIZE, calls=9, write_ns=ns(0.4), created=True))
    driver.train(1)
    driver.file(FileEventKind.CLOSED, "/run/9.orbax-checkpoint-tmp/_sharding", 7, begun, 600, created=True, tid=98)
    driver.train(20)
    (stall,) = ended(driver).stalls
    assert (
        "waiting for thread 99 of the training, which writes checkpoint /run/9.orbax-checkpoint-tmp/d/0"
        in stall.summary
    )
    assert [item.value for item in stall.evidence if item.key == "checkpoint.bytes"] == [SIZE]


@pytest.mark.parametrize("name", ["case_{:04}.nii.gz", "features_{:04}.npy", "frame_{:04}.json"])
def test_a_save_beside_hundreds_of_files_that_are_no_checkpoints_is_told_by_itself(name: str) -> None:
    """A validation's predictions, a file each. The kernel tells 8 files of a step, and the rest as one."""
    driver, pipeline = Driver(), Pipeline()
    driver.begin()
    ino = 1000
    for number in range(3):
        driver.train(100)
        driver.write(f"/out/best_{number}.pt", SIZE, 0.5, 0.1, ino=10 + number)
        for place in range(600):
            ino += 1
            driver.write(f"/out/val/{name.format(place)}", 2_000_000, 0.001, ino=ino)
        first, rest = list(driver.files.values())[:7], list(driver.files.values())[7:]
        sums = StepFile(0, 0, sum(one.io_ns for one in rest), 0, sum(one.bytes for one in rest))
        driver.files = {(one.dev, one.ino): one for one in (*first, sums)}
        played(driver, pipeline)
    driver.train(40)
    driver.exit()
    rank = rank_of(played(driver, pipeline), driver)
    assert rank.lost["checkpoint"] == pytest.approx(3 * 0.6, abs=0.01)
    assert [one.path for one in rank.checkpoints] == [f"/out/best_{number}.pt" for number in range(3)]
    assert (rank.counters.saves, rank.counters.checkpoint_last_bytes) == (3, SIZE)
    assert rank.stalls[0].summary.startswith("checkpoint /out/best_0.pt: 200 MB")


def test_a_save_of_thousands_of_files_is_told_with_all_of_them() -> None:
    """Of each save, and not those of the one before."""
    driver = trained()
    for number in range(2):
        for place in range(2000):
            driver.write(
                f"/out/checkpoint-{number}/part-{place}.bin", 1_000_000, 0.0005, ino=10_000 * number + place + 8
            )
        driver.train(60)
    rank = ended(driver)
    assert [stall.summary for stall in rank.stalls[:1]] == [
        stall.summary.replace("checkpoint-1", "checkpoint-0") for stall in rank.stalls[1:]
    ]
    assert ": 2000 MB with 1999 more files" in rank.stalls[0].summary
    assert (rank.counters.saves, sum(rank.counters.checkpoints.values())) == (2, 4000)


@pytest.mark.parametrize("files", [5, 1500, 3000])
@pytest.mark.parametrize("removes", ["/out/epoch_{}/shard-{}.bin", "/out/tiles/{}-{}.csv", "/tmp/{}-{}.bin"])
def test_saves_of_thousands_of_files_are_written_and_removed(files: int, removes: str) -> None:
    """The kernel tells 8 files of a step, and the rest as one. Other files that are removed are none of a save."""
    driver, pipeline = Driver(), Pipeline()
    driver.begin()
    name = "/out/epoch_{}/shard-{}.bin"
    for number in range(2):
        driver.train(100)
        for place in range(files):
            driver.write(name.format(number, place), 2_000_000, 1.0 / files, ino=10_000 * number + place + 8)
        first, rest = list(driver.files.values())[:7], list(driver.files.values())[7:]
        sums = StepFile(0, 0, sum(one.io_ns for one in rest), 0, sum(one.bytes for one in rest))
        driver.files = {(one.dev, one.ino): one for one in (*first, *((sums,) if rest else ()))}
        played(driver, pipeline)
    driver.train(50)
    for place in range(files):
        began = driver.now
        driver.spend(1.0 / files, Leaf.FILE_META)
        ino = place + 8 if removes == name else 50_000 + place
        driver.file(FileEventKind.UNLINKED, removes.format(0, place), ino, opened=began)
    driver.files[0, 0] = StepFile(0, 0, ns(1.0), 0, 0)
    driver.train(50)
    driver.exit()
    rank = rank_of(played(driver, pipeline), driver)
    removed = 1.0 if removes == name else 0.0
    assert rank.lost["checkpoint"] == pytest.approx(2.0 + removed, abs=0.01)
    assert rank.lost.get("unknown", 0.0) == pytest.approx(1.0 - removed, abs=0.01)


@pytest.mark.parametrize("files", [10, 2000])
def test_a_wait_for_another_thread_that_writes_thousands_of_files_is_one_for_it(files: int) -> None:
    driver = trained()
    for place in range(files):
        began, path, ino = driver.now, f"/out/checkpoint-1/part-{place}.pt", 8 + place
        driver.file(FileEventKind.OPENED, path, ino, began, tid=77)
        driver.spend(2.0 / files, Leaf.LOCK)
        driver.file(FileEventKind.CLOSED, path, ino, began, 2_000_000, ns(1.8 / files), tid=77)
    driver.train(60)
    (stall,) = ended(driver).stalls
    assert stall.summary.startswith("waiting for thread 77 of the training, which writes checkpoint /out/checkpoint-1/")


def test_a_small_file_that_gets_its_name_at_last_is_a_save_behind_hundreds_of_others() -> None:
    driver, pipeline = Driver(), Pipeline()
    driver.begin()
    driver.train(100)
    for number in range(600):
        driver.train(2)
        driver.write("/out/tmpk3j2", 5_000, 0.001, ino=10 + number)
        driver.file(FileEventKind.RENAMED, "/out/tmpk3j2", 10 + number, new_path="/out/model.pt", created=False)
        played(driver, pipeline)
    driver.train(2)
    assert rank_of(played(driver, pipeline), driver).counters.saves == 600


@pytest.mark.parametrize("first", ["rng_state.pth", "epoch_3/rank-0.pt"])
def test_a_save_of_ordinary_steps_is_told_by_its_largest_file(first: str) -> None:
    """Small ones come first, as random states do, and behind it."""
    driver = Driver()
    driver.begin()
    for _ in range(200):
        driver.step()
        for place, (name, size) in enumerate([(first, 14_000), ("model.pt", SIZE), ("scheduler.pt", 1000)]):
            driver.write(f"/run/{name}", size, 0.01, ino=8 + place)
    (bottleneck,) = ended(driver).bottlenecks
    assert bottleneck.summary.startswith("checkpoint /run/model.pt: ")
    assert "one in each step" in bottleneck.summary


@pytest.mark.parametrize("shards", [10, 2000])
@pytest.mark.parametrize("main_first", [True, False])
def test_a_save_of_thousands_of_files_is_told_by_its_main_one(shards: int, main_first: bool) -> None:
    """The record of the first ones has left the list by its end."""
    driver = trained()
    files = [(f"/out/checkpoint-1/shard-{place}.pt", 500_000, 0.0005) for place in range(shards)]
    main = ("/out/checkpoint-1/model.pt", SIZE, 0.2)
    for place, (path, size, spent) in enumerate([main, *files] if main_first else [*files, main]):
        driver.write(path, size, spent, ino=8 + place)
    driver.train(60)
    (stall,) = ended(driver).stalls
    assert stall.summary.startswith("checkpoint /out/checkpoint-1/model.pt: ")
    assert f" with {shards} more files" in stall.summary


@pytest.mark.parametrize("goes_on", [True, False])
def test_a_single_save_behind_the_last_step_is_not_advised_to_run_beside_steps(goes_on: bool) -> None:
    driver = trained()
    driver.write("/run/final.pt", SIZE, 2.0)
    if goes_on:
        driver.train(40)
    rank = ended(driver)
    (stall,) = rank.stalls
    assert stall.cause == "checkpoint"
    assert any("so that the steps go on" in one for one in stall.advice) == goes_on
