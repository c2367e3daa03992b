from __future__ import annotations

from trainprobe.causes.stalls.unknown import FOR_FILE
from trainprobe.config.schema import Privacy
from trainprobe.model.report import Checkpoint, Rank, Report, Run, Stall
from trainprobe.runtime.publishing.privacy import withheld


def report() -> Report:
    stall = Stall("a", 1.0, 2.0, 1.0, "checkpoint", {}, 1, 1, summary="write of /secret/project/c.pt took 1 s")
    stall.python_stack, stall.chain = ["main (train.py:1)"], ["training thread in write on /secret/project/c.pt"]
    rank = Rank(0, 1, 7, stalls=[stall], checkpoints=[Checkpoint("/secret/project/c.pt", 1.0, 2.0, 3, 1.0)])
    return Report(
        runs=[Run("r", ["python", "train.py", "--client", "acme"], "ann", "/secret/project", 1.0, ranks=[rank])]
    )


def test_nothing_is_changed_where_nothing_is_private() -> None:
    made = report()
    assert withheld(made, Privacy()) is made


def test_command_lines() -> None:
    assert withheld(report(), Privacy(command_lines=False)).runs[0].command == []


def test_stacks() -> None:
    assert withheld(report(), Privacy(stacks=False)).runs[0].ranks[0].stalls[0].python_stack is None


def test_paths_in_fields_and_in_sentences() -> None:
    hidden = withheld(report(), Privacy(paths=False))
    assert "/secret" not in repr(hidden)
    stall = hidden.runs[0].ranks[0].stalls[0]
    assert (stall.summary, stall.chain) == ("write of c.pt took 1 s", ["training thread in write on c.pt"])


def test_the_original_is_left_as_it_is() -> None:
    made = report()
    withheld(made, Privacy(paths=False, stacks=False, command_lines=False))
    assert made == report()


def test_a_path_that_only_a_sentence_names_is_shortened_too() -> None:
    made = report()
    said = FOR_FILE(path="/secret/project/ready", seconds=1.0)
    made.runs[0].ranks[0].stalls[0].message, made.runs[0].ranks[0].stalls[0].summary = said, str(said)
    assert "/secret" not in repr(withheld(made, Privacy(paths=False)))
