"""A count that may be one is said with its word's singular, in messages and in what programs say."""

from __future__ import annotations

import re

import pytest
from babel.messages.catalog import Message

from tests.unit.text.test_translations import entries, key
from trainprobe.causes.stalls.gpu_memory import RETRIED
from trainprobe.pipeline.report.verdict import AFTER_STEPS, TOO_FEW
from trainprobe.text.render import Speaker
from trainprobe.text.saying import saying

SEVERAL = {
    *("logging.advice.writes", "stall.longest", "where.seen", "checkpoint.every", "verdict.in_steps"),
    *("verdict.longest_of", "checkpoint.without_steps", "verdict.healthy", "verdict.reads", "verdict.stall_count"),
    *("cpu_contention.affinity", "cpu_contention.advice.check_affinity", "io_limit.read_calls", "io_limit.write_calls"),
    *("cpu_bound.advice.do_rarer", "evaluation.advice.rarer", "logging.advice.not_each_step"),
    *("logging.advice.log_rarer", "checkpoint.advice.save_rarer", "network.advice.send_rarer", "source.many_threads"),
    *("drift.summary", "fake_batching.calls", "fake_batching.summary", "oom_kill.helpers", "oom_kill.workers"),
    *("checkpoint_unsafe.times", "pid_exhaustion.coming", "pid_exhaustion.in_cgroup", "pid_exhaustion.own"),
    *("orphan_workers.several", "checkpoint.who_writes"),
    *(" ({ranks} ranks)", ", {files} files in all", "{path}: {files} files", "Black box: the {seconds} seconds before"),
    *("STALLED now, {number} runs: {names}", "every {every} steps", "larger than {bytes} bytes"),
    *("goodput of the job over {attempts} attempts, {time} in all", "the latest {shown} of {total} stalls"),
    *("{a} calls {each} in A, {b} in B", "{calls} calls a step", "{share} of {wall} in {number} attempts"),
    "the loop calls next() {calls} times for a batch; a DataLoader's workers put it together beside the step",
    "{started} workers were started, {peak} at most at once: no step was late for one that was new",
    *("{number} steps, mean", "{number} stalls and events", "advice.more_shards"),
    "{idle} of them got nothing to load: a data set of {best} shards or more would gain {gain}",
}
"""Never said of one: another sentence is, or there are always more."""
PLURAL = re.compile(r"\{\w+(?::[^}|]*)?\} ([a-z]+s)\b")
VERBS = {"grows", "has", "hides", "holds", "is", "kills", "less", "lets", "needs", "runs", "shows", "stands", "stops"}
VERBS |= {"costs", "does", "uses", "was"}


def test_a_count_that_may_be_one_has_a_singular() -> None:
    """In its place, or in a sentence of its own."""
    said = {(entry.context, text) for entry in entries("zh") for text in _forms(entry)}
    texts = {text for _, text in said}
    found = set()
    for context, text in said:
        plurals = [match for match in PLURAL.finditer(text) if match[1] not in VERBS]
        alone = [f"{text[: match.end() - 1]}{text[match.end() :]}" for match in plurals]
        if texts.isdisjoint(alone) and plurals and {context, text}.isdisjoint(SEVERAL):
            found.add(key(context, text))
    assert not found


def _forms(entry: Message) -> tuple[str, ...]:
    return (entry.id,) if isinstance(entry.id, str) else tuple(entry.id)


@pytest.mark.parametrize(("count", "said"), [(1, "once"), (2, "2 times")])
def test_messages(count: int, said: str) -> None:
    assert f"no memory left {said} (" in str(RETRIED(count=count, used=None))
    assert str(AFTER_STEPS(what="exit code 1", steps=count)).endswith("after 1 step" if count == 1 else "after 2 steps")
    assert str(TOO_FEW(steps=count)).startswith("1 step: " if count == 1 else "2 steps: ")
    assert Speaker("zh").message(TOO_FEW(steps=count), "") == f"只有 {count} 步：太少，无法判断普通步是什么样"


def test_sayings() -> None:
    said = {count: saying("{writes:# write|# writes} in all", writes=count) for count in (0, 1, 2)}
    assert [str(one) for one in said.values()] == ["0 writes in all", "1 write in all", "2 writes in all"]
    assert Speaker().text(said[1]) == "1 write in all"
    assert "1 " in Speaker("zh").text(said[1])
    fits = "memory: {fit:# worker fits|# workers fit}"
    assert [Speaker().say(fits, fit=count) for count in (1, 3)] == ["memory: 1 worker fits", "memory: 3 workers fit"]
