"""How long log files have become: asked for by name, believed by inode."""

from __future__ import annotations

import random

from tests.builders.driver import PID, Driver, moment, played
from trainprobe.derive.files.logs import KEEP
from trainprobe.model.frame import Frame
from trainprobe.model.sample import FileSizeSample, ProcessSample


def test_the_longest_logs_are_looked_at_and_told() -> None:
    driver = Driver()
    driver.begin()
    driver.train(20)
    for ino, name, size in ((7, "events.out.tfevents.1", 4000), (8, "train.log", 300)):
        driver.write(f"/out/{name}", size, write=0.001, ino=ino, created=False)
    driver.train(20)
    core = played(driver)
    core.step(Frame(at=moment(driver.now), processes=(ProcessSample(PID, 1, "driver", 0),)))
    wanted = {file.path: file for file in core.wants().files}
    assert set(wanted) == {"/out/events.out.tfevents.1", "/out/train.log"}
    told = random.randrange(5000, 10**9)
    event_file = wanted["/out/events.out.tfevents.1"]
    sample = FileSizeSample(PID, event_file.dev, event_file.ino, told)
    core.step(Frame(at=moment(driver.now), sizes=(sample,)))
    rank = core.report(moment(driver.now)).runs[0].ranks[0]
    assert {log.path: log.size for log in rank.logs} == {"/out/events.out.tfevents.1": told, "/out/train.log": None}
    assert rank.counters.log_file_bytes == {"tensorboard": told}


def test_counters_go_on_when_there_are_more_logs_than_have_names() -> None:
    driver = Driver()
    driver.begin()
    driver.train(20)
    for number in range(KEEP + 40):
        driver.write(f"/out/train-{number}.log", 300, write=0.001, ino=100 + number, created=False)
    driver.train(20)
    rank = played(driver).report(moment(driver.now)).runs[0].ranks[0]
    assert rank.counters.log_bytes["log"] == 300 * (KEEP + 40)
    assert rank.counters.log_writes["log"] == sum(log.writes for log in rank.logs[:1]) * (KEEP + 40)
    assert all(log.path for log in rank.logs)
