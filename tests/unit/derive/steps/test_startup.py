"""The time to the first step by what the main thread opened: the parts add up, the more particular one has the time."""

from __future__ import annotations

from dataclasses import astuple

import pytest

from trainprobe.derive.files.purpose import FileRules, is_restored
from trainprobe.derive.steps.startup import BeforeFirstStep, restores, startup
from trainprobe.model.event import OpenedFile, OpenedKind, OpenedSpan, StartSeen
from trainprobe.model.report import Restore, Startup

CODE, LIBRARY, DATA = OpenedKind.CODE, OpenedKind.LIBRARY, OpenedKind.DATA


def ns(seconds: float) -> int:
    return round(seconds * 1e9)


def start(*spans: tuple[OpenedKind, float, float], files: tuple[OpenedFile, ...] = ()) -> StartSeen:
    opened = tuple(OpenedSpan(kind, ns(begin), ns(end), 1) for kind, begin, end in spans)
    return StartSeen(ns(60.0), 1, 0, opened, files)


def file(path: str, begin: float, end: float, size: int = 1 << 20) -> OpenedFile:
    return OpenedFile(path, ns(begin), ns(end), size)


def before(end: float, **known: object) -> BeforeFirstStep:
    return BeforeFirstStep(0, ns(end), **known)  # type: ignore[arg-type]


def account(seen: StartSeen, known: BeforeFirstStep) -> Startup:
    found = startup(seen, known, FileRules())
    parts = astuple(found)
    assert None not in parts
    assert sum(parts) == pytest.approx((known.end - known.begin) / 1e9)
    assert min(parts) >= 0
    return found


def test_each_part_has_its_time() -> None:
    seen = start(
        (CODE, 0.1, 3.0), (DATA, 3.2, 5.0), (DATA, 6.5, 6.5), files=(file("/runs/model.pt", 6.5, 8.0),)
    )  # fmt: skip
    known = before(12.0, forks=(ns(9.0), ns(9.2)), fetches=ns(0.8), compiling=[(ns(10.0), ns(11.0))])
    found = account(seen, known)
    assert found == Startup(3.0, pytest.approx(1.8), 1.5, 1.0, 1.0, pytest.approx(3.7))
    assert restores(seen, known, FileRules()) == [Restore("/runs/model.pt", 1 << 20, 1.5)]


def test_a_library_is_relocated_before_the_next_module_is_opened() -> None:
    assert account(start((CODE, 0.0, 1.0), (LIBRARY, 1.0, 1.1), (CODE, 3.6, 4.0)), before(5.0)).imports == 4.0
    assert account(start((CODE, 0.0, 1.0), (CODE, 3.6, 4.0)), before(5.0)).imports == pytest.approx(1.4)


def test_what_a_module_reads_for_itself_is_its_import() -> None:
    seen = start((CODE, 0.0, 1.0), (DATA, 1.01, 1.02), (CODE, 1.05, 2.0))
    assert account(seen, before(3.0)) == Startup(2.0, 0.0, 0.0, 0.0, 0.0, 1.0)
    longer = start((CODE, 0.0, 1.0), (DATA, 1.1, 1.8), (CODE, 1.9, 2.0))
    assert account(longer, before(3.0)).dataset == pytest.approx(0.7)


def test_a_pause_between_two_reads_of_data_is_no_scan() -> None:
    assert account(start((DATA, 1.5, 2.0), (DATA, 2.9, 3.0)), before(4.0)).dataset == pytest.approx(0.6)
    assert account(start((DATA, 1.5, 2.0), (DATA, 2.2, 3.0)), before(4.0)).dataset == pytest.approx(1.5)


def test_what_came_after_the_first_step_does_not_count() -> None:
    seen = start((CODE, 0.0, 1.0), (CODE, 5.0, 9.0), files=(file("/m.ckpt", 6.0, 7.0),))
    known = before(4.0, forks=(ns(3.5),), fetches=ns(3.0))
    assert account(seen, known) == Startup(1.0, 0.0, 0.0, 0.5, 0.0, 2.5)
    assert restores(seen, known, FileRules()) == []


def test_a_mapped_checkpoint_is_named_without_figures() -> None:
    seen = start((CODE, 0.0, 1.0), files=(file("/model.safetensors", 2.0, 2.0, 0),))
    assert restores(seen, before(4.0), FileRules()) == [Restore("/model.safetensors", None, None)]


def test_a_file_read_twice_is_one_restore() -> None:
    seen = start(files=(file("/m.pt", 1.0, 2.0), file("/m.pt", 3.0, 3.5)))
    assert restores(seen, before(4.0), FileRules()) == [Restore("/m.pt", 2 << 20, 1.5)]


@pytest.mark.parametrize(
    ("path", "is_one"),
    [
        ("/runs/step_100.ckpt", True), ("/hub/pytorch_model.bin", True), ("/hub/model.safetensors", True),
        ("/data/train.pt", False), ("/data/tokens.bin", False), ("/data/processed/graph.pt", False),
        ("/usr/lib/python3/dist-packages/easy-install.pth", False), ("/data/features.npz", False),
        ("/data/shard.npy", False), ("/runs/checkpoint-100/optimizer.bin", True),
    ],
)  # fmt: skip
def test_which_files_are_checkpoints(path: str, is_one: bool) -> None:
    assert is_restored(path, FileRules()) is is_one
