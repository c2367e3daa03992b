"""The account of a job over its attempts, and a run as one attempt of it."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainprobe.derive.goodput import Attempt, goodput, key
from trainprobe.model.goodput import Badput, Goodput, Outcome
from trainprobe.model.report import Checkpoint, Counters, Exit, PhaseSpan, Rank, Restore, Run, Stall, Startup, Steps
from trainprobe.model.vocabulary import Ending
from trainprobe.pipeline.report.goodput import attempt_of

MODEL = "/data/last.pt"


def attempt(started: float, productive: float, **rest: object) -> Attempt:
    told: dict[str, object] = {"badput": {"startup": 2.0}, "outcome": Outcome.FAILED, "stepped": True, "restored": []}
    return Attempt(started, productive, **(told | rest))  # type: ignore[arg-type]


def job(*attempts: Attempt) -> Goodput:
    account = None
    for one in attempts:
        account = goodput(one, account)
    assert account is not None
    return account


def test_a_failure_takes_back_what_the_last_checkpoint_does_not_hold() -> None:
    told = job(attempt(0, 30, saved={MODEL: 20}, safe=20))
    assert told.productive_seconds == 20
    assert told.badput == {"startup": 2, "wasted_progress": 10}
    assert (told.attempt, told.wasted_progress_seconds, told.between_attempts_seconds) == (1, 10, None)


def test_an_attempt_that_goes_on_or_finished_wastes_nothing() -> None:
    for outcome in (Outcome.RUNNING, Outcome.FINISHED, Outcome.STOPPED):
        told = job(attempt(0, 30, saved={MODEL: 20}, safe=20, outcome=outcome))
        assert (told.productive_seconds, told.wasted_progress_seconds) == (30, 0)


def test_the_gap_after_a_failure_is_recovery_and_the_account_goes_on() -> None:
    first = attempt(0, 30, saved={MODEL: 20}, safe=20)  # until 32
    second = attempt(40, 50, restored=[MODEL], outcome=Outcome.FINISHED)  # until 92
    told = job(first, second)
    assert told.badput == {"startup": 4, "wasted_progress": 10, "recovery": 8}
    assert told.productive_seconds == 70
    assert told.wall_seconds == 92
    assert (told.attempt, told.between_attempts_seconds) == (2, 8)


def test_what_is_resumed_is_what_counts_not_the_last_checkpoint() -> None:
    saves = {"/data/step_10.pt": 10.0, "/data/step_20.pt": 20.0}
    told = job(attempt(0, 30, saved=saves, safe=20), attempt(40, 5, restored=["/data/step_10.pt"], outcome="running"))
    assert told.wasted_progress_seconds == 20


def test_a_third_attempt_may_resume_what_the_first_one_saved() -> None:
    first, second = attempt(0, 30, saved={MODEL: 20}, safe=20), attempt(40, 7, restored=[MODEL])
    third = attempt(60, 5, restored=[MODEL], outcome=Outcome.RUNNING)
    told = job(first, second, third)
    assert told.wasted_progress_seconds == 10 + 7
    assert told.productive_seconds == 20 + 5
    assert (told.attempt, told.between_attempts_seconds) == (3, 8 + 11)


def test_until_an_attempt_steps_the_last_checkpoint_is_taken_for_the_resumed_one() -> None:
    told = job(attempt(0, 30, saved={MODEL: 20}, safe=20), attempt(40, 0, stepped=False, restored=None))
    assert told.wasted_progress_seconds == 10


def test_a_resumed_checkpoint_that_is_not_known_is_null() -> None:
    first = attempt(0, 30, saved={MODEL: 20}, safe=20)
    for restored in ([], ["/data/backbone.pt"], None):
        told = job(first, attempt(40, 5, restored=restored, outcome=Outcome.RUNNING))
        assert told.wasted_progress_seconds is None
        assert "wasted_progress" not in told.badput
        assert told.productive_seconds == 35


def test_who_never_saves_and_reads_nothing_begins_anew() -> None:
    told = job(attempt(0, 30), attempt(40, 5, outcome=Outcome.RUNNING))
    assert (told.wasted_progress_seconds, told.productive_seconds) == (30, 5)


def test_a_launch_after_one_that_finished_is_another_training() -> None:
    told = job(attempt(0, 30, outcome=Outcome.FINISHED), attempt(40, 5))
    assert told.badput == {"startup": 4, "other": 8, "wasted_progress": 5}


def test_a_launch_beside_another_one_is_not_its_next_attempt() -> None:
    told = job(attempt(0, 30), attempt(10, 5))
    assert (told.attempt, told.between_attempts_seconds, told.badput) == (1, None, {"startup": 2, "wasted_progress": 5})


seconds = st.floats(0, 1e6)
attempts = st.builds(
    Attempt,
    started=seconds,
    productive=seconds,
    badput=st.dictionaries(st.sampled_from([b.value for b in Badput if b != "wasted_progress"]), seconds),
    outcome=st.sampled_from(list(Outcome)),
    stepped=st.booleans(),
    restored=st.none() | st.lists(st.sampled_from(["a", "b", "c"])),
    saved=st.dictionaries(st.sampled_from(["a", "b", "c"]), seconds),
    safe=st.none() | seconds,
)


@given(st.lists(attempts, min_size=1, max_size=5))
def test_it_closes_whatever_happened(drawn: list[Attempt]) -> None:
    """Productive and badput are the wall time of the attempts and of the gaps between them, and nothing is negative."""
    account, wall, until = None, 0.0, 0.0
    for one in drawn:
        before, account = account, goodput(one, account)
        after = account.between_attempts_seconds is not None
        assert before is None or after == (account.attempt > 1)
        wall = one.wall + (wall + max(0.0, one.started - until) if after else 0.0)
        until = one.started + one.wall
        assert account.wall_seconds == pytest.approx(wall, rel=1e-9, abs=1e-6)
        assert account.productive_seconds >= -1e-6
        assert all(value >= 0 for value in account.badput.values())


def rank(**rest: object) -> Rank:
    """A rank of 100 s: 12 until its baseline, of which 10 to the first step; one stall of 8 s, an evaluation of 5."""
    told: dict[str, object] = {
        "wall_seconds": 100.0,
        "productive_seconds": 75.0,
        "started": 1003.0,
        "lost": {"checkpoint": 8.0},
        "steps": Steps(500, "autograd"),
        "startup": Startup(3.0, 1.0, 2.0, 1.0, 0.0, 3.0),
        "counters": Counters(phase_seconds={"startup": 12.0, "evaluation": 5.0}),
        "phases": [PhaseSpan("startup", 1003, 1015), PhaseSpan("evaluation", 1060, 1065)],
        "stalls": [Stall("a", 1040.0, 1048.0, 8.0, "checkpoint", {"checkpoint": 8.0}, 9, 1)],
        "checkpoints": [Checkpoint(MODEL, 1040.0, 1048.0, 9, 8.0, outcome="complete")],
        "restores": [Restore(MODEL, 9, 2.0)],
        "exit": Exit(None, 9, ending=Ending.KILLED),
    }
    return Rank(0, 1, 7, **(told | rest))  # type: ignore[arg-type]


def run(*ranks: Rank) -> Run:
    return Run("train.py-1", [], "ann", "/", 1000.0, 1103.0, ranks=list(ranks))


def test_a_run_is_accounted_for_from_its_launch() -> None:
    made = attempt_of(run(rank()))
    assert made.badput == {
        "startup": 3 + 3,
        "training_prep": 1 + 1 + 3,
        "checkpoint_restore": 2,
        "checkpoint_save": 8,
        "evaluation": 5,
    }
    assert made.productive == 75 + 2  # with the steps before the baseline
    assert (made.wall, made.time_to_first_step, made.restore) == (103, 13, 2)
    assert (made.outcome, made.restored) == (Outcome.FAILED, [MODEL])
    assert made.safe == made.saved[MODEL] == pytest.approx(1040 - 1013)


def test_a_wait_for_a_late_rank_is_what_the_late_rank_lost() -> None:
    late = rank(lost={"data_inline": 8.0})
    waits = rank(lost={"collective_wait": 8.0})
    badput = attempt_of(run(waits, late, waits)).badput
    assert badput["data_loading"] == pytest.approx(8)
    assert "other" not in badput


def test_a_wait_whose_cause_is_on_another_host_is_other() -> None:
    assert attempt_of(run(rank(lost={"collective_wait": 8.0}))).badput["other"] == pytest.approx(8)


def test_where_ranks_save_parts_the_one_behind_decides() -> None:
    later = rank(checkpoints=[Checkpoint("/data/1.pt", 1080.0, 1081.0, 9, 1.0, outcome="complete")])
    open_ = rank(checkpoints=[Checkpoint("/data/2.pt", 1090.0, None, 9, 1.0)])
    made = attempt_of(run(rank(), later, open_))
    assert made.safe == made.saved[MODEL] < made.saved["/data/1.pt"]
    assert "/data/2.pt" not in made.saved


def test_one_that_a_person_ended_or_that_ended_unseen_has_not_failed() -> None:
    ends = {
        Outcome.STOPPED: [Exit(None, 2, ending=Ending.INTERRUPTED), Exit(None, 15, ending=Ending.KILLED), None],
        Outcome.FINISHED: [Exit(0, None, ending=Ending.FINISHED)],
        Outcome.FAILED: [Exit(1, None, ending=Ending.EXCEPTION), Exit(None, 9, ending=Ending.OOM)],
    }
    for outcome, exits in ends.items():
        for one in exits:
            assert attempt_of(run(rank(exit=one))).outcome == outcome
    live = run(rank(exit=None))
    live.ended = None
    assert attempt_of(live).outcome == Outcome.RUNNING


def test_what_was_not_watched_from_its_begin_is_not_known() -> None:
    attached = rank(
        startup=Startup(), restores=[], started=1000.0, counters=Counters(phase_seconds={"attaching": 12.0}), phases=[]
    )
    made = attempt_of(run(attached))
    assert (made.restored, made.time_to_first_step, made.restore) == (None, None, None)
    assert made.productive == pytest.approx(75 + 12)
    assert "startup" not in made.badput


def test_one_that_never_stepped_was_in_its_start() -> None:
    early = rank(
        startup=Startup(), restores=[], steps=Steps(), productive_seconds=0.0, lost={}, stalls=[], checkpoints=[],
        counters=Counters(phase_seconds={"startup": 100.0}),
    )  # fmt: skip
    made = attempt_of(run(early))
    assert (made.badput, made.productive) == ({"startup": 103}, 0)


def test_paths_are_remembered_by_a_key() -> None:
    assert job(attempt(0, 30, saved={MODEL: 20}, safe=20)).progress.saved == {key(MODEL): 20}


def test_what_each_save_holds_is_found_in_one_pass_over_the_stalls() -> None:
    """It was one for each of the 32 saves: 4 ms for each run of a report."""

    def seconds(saves: int) -> float:
        stalls = [Stall(str(n), 10.0 * n, 10.0 * n + 3, 2.0, "checkpoint", {}, n, 1) for n in range(200)]
        rank = Rank(0, 1, 1, started=0.0, wall_seconds=2000.0, productive_seconds=1600.0, stalls=stalls)
        rank.checkpoints = [
            Checkpoint(f"/{n}", 60.0 * n, 60.0 * n + 1, 1, 1, 1, 0, 0, 0, 0, "driver", "complete") for n in range(saves)
        ]
        run = Run("r", ["python"], "u", "/", 0.0, ranks=[rank])
        begun = time.process_time()
        for _ in range(10):
            attempt_of(run)
        return time.process_time() - begun

    turns = [(seconds(32), seconds(1)) for _ in range(5)]
    many, one = map(min, zip(*turns))
    assert many < 5 * one
