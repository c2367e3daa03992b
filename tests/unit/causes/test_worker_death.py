"""What to do after a worker died depends on who killed it."""

from __future__ import annotations

import pytest

from trainprobe.causes.run import worker_death
from trainprobe.derive.workers import Death
from trainprobe.model.moment import Moment

NOW = Moment(0, 0)


@pytest.mark.parametrize(
    ("signal", "sender", "words"),
    [
        (9, (77, "slurmstepd"), ["the training did not fail by itself", "slurmstepd (pid 77)"]),
        (15, (78, ""), ["ask who runs pid 78"]),
        (9, (79, "earlyoom"), ["lower num_workers"]),
        (9, None, ["the kernel did", "dmesg"]),
        (7, None, ["/dev/shm", "--shm-size"]),
        (11, None, ["native code crashed", "faulthandler", "num_workers=0"]),
        (None, None, ["see its stderr for what ended it", "num_workers=0 runs the same code"]),
    ],
)
def test_who_killed_a_worker_says_whom_to_ask(
    signal: int | None, sender: tuple[int, str] | None, words: list[str]
) -> None:
    pid, comm = sender or (None, "")
    told = worker_death.warning(Death(9, 0, None if signal else 1, signal, "killed", pid, comm), NOW).advice
    assert all(word in " ".join(told) for word in words)
    if sender is not None and "earlyoom" not in sender:
        assert "memory" not in " ".join(told)
        assert "num_workers" not in " ".join(told)
