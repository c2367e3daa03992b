"""What to do after a worker died depends on who killed it."""

from __future__ import annotations

import pytest

from trainprobe.advise.text import Facts, advice, worker_death
from trainprobe.language.speaker import Speaker
from trainprobe.model.cause import Cause


@pytest.mark.parametrize(
    ("signal", "sender", "words"),
    [
        (9, (77, "slurmstepd"), ["the training did not fail by itself", "slurmstepd (pid 77)"]),
        (15, (78, ""), ["ask who runs pid 78"]),
        (9, (79, "earlyoom"), ["lower num_workers"]),
        (9, None, ["the kernel did", "dmesg"]),
        (7, None, ["/dev/shm", "--shm-size"]),
        (11, None, ["native code crashed", "faulthandler", "num_workers=0"]),
        (None, None, ["num_workers=0 once to see the exception"]),
    ],
)
def test_who_killed_a_worker_says_whom_to_ask(
    signal: int | None, sender: tuple[int, str] | None, words: list[str]
) -> None:
    told = worker_death(signal, sender)
    assert all(word in " ".join(told) for word in words)
    if sender is not None and "earlyoom" not in sender:
        assert "memory" not in " ".join(told)
        assert "num_workers" not in " ".join(told)
    chinese = Speaker("zh")
    assert all(chinese.told(sentence) != sentence for sentence in told)


def test_a_worker_that_comes_back_needs_no_time_limit() -> None:
    once = advice(Cause.WORKER_HANG, Facts(each=4.0, fetching=True))
    again = advice(Cause.WORKER_HANG, Facts(each=1.4, every=94, fetching=True))
    assert "timeout=" in once[0]
    assert "goes on by itself after 1.40 s, every 94 steps" in again[0]
    assert Speaker("zh").told(again[0]) != again[0]
