"""A server in each step: an experiment tracker, or one whose answers the training works with."""

from __future__ import annotations

import pytest

from tests.builders.driver import Driver, played
from tests.unit.pipeline.test_pipeline import rank_of
from trainprobe.derive.python.trackers import reports
from trainprobe.model.cells import Leaf
from trainprobe.model.event import StackSeen
from trainprobe.pipeline import Pipeline

LOOP = ("<module> (train.py:90)", "train (train.py:31)")
SENDS = ("HTTPAdapter.send (requests/adapters.py:600)", "readinto (python3.11/socket.py:718)")
TRACKER = (*LOOP, "MlflowClient.log_metric (mlflow/client.py:1400)", *SENDS)
OWN = (*LOOP, "log_to_server (report.py:8)", *SENDS)
SERVER = (*LOOP, "VLLMClient.generate (trl/vllm_client.py:200)", *SENDS)
UPLOAD = (*LOOP, "keep (train.py:40)", "upload_file (boto3/transfer.py:300)", *SENDS)
FORWARD = (*LOOP, "forward (net.py:12)")


@pytest.mark.parametrize(
    ("stack", "part", "ahead"), [(TRACKER, 0.5, False), (OWN, 0.5, False), (SERVER, 0.5, True), (TRACKER, 0.1, True)]
)
def test_a_tracker_in_each_step_is_asked_nothing_ahead(stack: tuple[str, ...], part: float, ahead: bool) -> None:
    """Of the stacks of ordinary steps a ``part`` shows it: with little it is not what most of the wait is for."""
    driver, pipeline = Driver(), Pipeline()
    driver.begin()
    for step in range(200):
        driver.step(0.3)
        driver.spend(0.6, Leaf.SOCKET)
        if step % 10 == 9:
            (state,) = played(driver, pipeline).runs["train.py-0123abcd"].ranks.by_pid[driver.pid]
            state.ordinary.lines_ns = driver.now
            shown = stack if step % 100 < 100 * part else SERVER if ahead else FORWARD
            driver.events.append(StackSeen(driver.now, driver.pid, driver.tid, shown))
    rank = rank_of(played(driver, pipeline), driver)
    (bottleneck,) = rank.bottlenecks
    assert bottleneck.cause == "network"
    assert ("ask for the next step's" in bottleneck.advice[0]) == ahead
    assert "send from another thread or process" in bottleneck.advice[-1]


@pytest.mark.parametrize("stack", [TRACKER, OWN, UPLOAD, SERVER])
def test_a_tracker_every_few_steps_is_asked_nothing_ahead(stack: tuple[str, ...]) -> None:
    driver = Driver()
    driver.begin()
    driver.train(40)
    pipeline = played(driver)
    for _ in range(20):
        driver.spend(0.6, Leaf.SOCKET)
        driver.events.append(StackSeen(driver.now, driver.pid, driver.tid, stack))
        driver.train(5)
        played(driver, pipeline)
    stall = rank_of(pipeline, driver).stalls[-1]
    assert stall.cause == "network"
    assert any("ask for the next step's" in advice for advice in stall.advice) == (stack is SERVER)
    assert any("send every" in advice for advice in stall.advice) == (stack is not SERVER)


@pytest.mark.parametrize("name", ["compute_log_probs", "get_logits", "reward", "catalog", "login"])
def test_what_is_no_report(name: str) -> None:
    assert not reports((*LOOP, f"{name} (train.py:8)", *SENDS))


@pytest.mark.parametrize("name", ["Logger.log", "log_metrics", "report", "notify_slack", "post_metrics", "_log"])
def test_what_is_a_report(name: str) -> None:
    assert reports((*LOOP, f"{name} (train.py:8)", *SENDS))
