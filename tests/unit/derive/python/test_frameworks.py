"""Which framework runs the loop, by the stacks of its driver."""

from __future__ import annotations

import re

import pytest

from trainprobe.bpf.compile.defines import defines, hash_of
from trainprobe.derive.python.frameworks import LOOPS, FrameworkSeen

SCRIPT = "<module> (train.py:80)"


def seen(*stacks: tuple[str, ...], **versions: str) -> tuple[str | None, str | None]:
    found = FrameworkSeen()
    for stack in stacks:
        found.add(stack, versions)
    return found.name, found.version


def test_the_loop_that_the_script_calls_counts_and_not_what_it_is_built_on() -> None:
    trainer = (SCRIPT, "train (transformers/trainer.py:2300)", "backward (accelerate/accelerator.py:90)")
    assert seen(trainer, transformers="5.23.0", accelerate="1.15.0") == ("transformers", "5.23.0")
    own = (SCRIPT, "train (mmcv/epoch_based_runner.py:50)", "on_step (hooks.py:3)")
    assert seen(own, mmcv="1.7.2") == ("mmcv", "1.7.2")


def test_a_model_of_a_framework_is_no_loop_of_it() -> None:
    assert seen((SCRIPT, "forward (transformers/modeling_bert.py:400)")) == (None, None)
    assert seen((SCRIPT, "forward (lightning/wrappers.py:90)")) == (None, None)


def test_a_library_counts_where_no_loop_is_seen_and_a_loop_seen_later_replaces_it() -> None:
    step, loop = (SCRIPT, "step (accelerate/optimizer.py:160)"), (SCRIPT, "run (mmengine/loops.py:290)")
    assert seen(step, accelerate="1.15.0") == ("accelerate", "1.15.0")
    assert seen(step, loop, accelerate="1.15.0") == ("mmengine", None)
    assert seen(loop, step, mmengine="0.10.7", accelerate="1.15.0") == ("mmengine", "0.10.7")


def test_a_version_that_comes_later_is_taken_up() -> None:
    found = FrameworkSeen()
    found.add((SCRIPT, "run (mmengine/loops.py:290)"), {})
    found.add((SCRIPT, "run (mmengine/loops.py:290)"), {"mmengine": "0.10.7"})
    assert (found.name, found.version) == ("mmengine", "0.10.7")


def test_frames_of_older_recordings_name_none() -> None:
    assert seen((SCRIPT, "train (trainer.py:2300)", "_save (serialization.py:900)")) == (None, None)


@pytest.mark.parametrize(
    ("loops", "name"),
    [
        ((), None),
        (("transformers",), "transformers"),
        (("transformers", "sentence_transformers"), "sentence_transformers"),
        (("transformers", "lightning"), None),
    ],
)
def test_without_a_stack_the_only_loop_that_was_imported_counts(loops: tuple[str, ...], name: str | None) -> None:
    found = FrameworkSeen()
    found.add_imported(loops)
    found.add((), {})  # none came
    assert (found.name, found.version) == (name, None)


def test_a_stack_outranks_what_was_imported() -> None:
    found = FrameworkSeen()
    found.add_imported(("ultralytics",))
    found.add((SCRIPT, "forward (torch/module.py:9)"), {})
    assert found.name is None, "the training has a loop of its own"
    found.add((SCRIPT, "run (mmengine/loops.py:290)"), {"mmengine": "0.10.7"})
    found.add_imported(("ultralytics",))
    assert (found.name, found.version) == ("mmengine", "0.10.7")


def test_the_kernel_knows_the_files_of_loops_compiled_or_not() -> None:
    given = dict(flag[2:].split("=") for flag in defines())
    known = dict(re.findall(r"LOOP\((\d+)ull,(\d+)\)", given["LOOP_FILES"]))
    assert len(known) == 2 * sum(map(len, LOOPS.values())), "no two are alike"
    for path in ("mmcv/runner/iter_based_runner", "mmcv/runner/__pycache__/iter_based_runner"):
        assert list(LOOPS)[int(known[str(hash_of(path))])] == "mmcv"
    assert len(LOOPS) <= 32, "each has a bit"
