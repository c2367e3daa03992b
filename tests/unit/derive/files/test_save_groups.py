"""Which files are one save: by their directory, the steps and the pauses between them."""

from __future__ import annotations

import pytest

from trainprobe.derive.files.renames import Rename
from trainprobe.derive.files.save_groups import PATHS, SavedFile, SaveGroups
from trainprobe.model.moment import NS


def file(
    path: str, at: float, lasts: float = 0.01, *, step: int | None = None, by_driver: bool = True, renamed: float = 0.0
) -> SavedFile:
    return SavedFile(path, int(at * NS), int((at + lasts) * NS), by_driver, step, int(renamed * NS))


def numbers(*files: SavedFile) -> list[int]:
    groups = SaveGroups()
    return [groups.add(one) for one in files]


def test_files_of_one_directory_in_one_step_are_one_save() -> None:
    """The pause before the last one is longer than a second, and shorter than the save until then."""
    names = (("model.safetensors", 0.0), ("optimizer.pt", 3.0), ("scheduler.pt", 6.0))
    files = [
        file(f"/run/out/{name}", at + late, 2.0, step=step) for step, at in ((60, 0), (120, 50)) for name, late in names
    ]
    assert numbers(*files) == [1, 1, 1, 2, 2, 2]


def test_a_step_between_two_files_of_the_driver_begins_another_save() -> None:
    """However soon they follow each other."""
    assert numbers(*(file(f"/run/model-{n}.pt", n / 50, step=n) for n in range(1, 5))) == [1, 2, 3, 4]
    assert numbers(*(file("/run/model.pt", n / 50, step=n) for n in range(1, 5))) == [1, 2, 3, 4]


def test_a_file_that_is_written_again_in_the_same_step_is_another_save() -> None:
    assert numbers(file("/run/last.pt", 0, 0.2, step=9), file("/run/last.pt", 0.8, 0.2, step=9)) == [1, 2]


def test_files_whose_directory_got_its_name_at_once_are_one_save() -> None:
    """orbax: its threads write while the training makes steps; the next save waits for the last ones of this one."""
    files = [file("/run/save-9/_CHECKPOINT_METADATA", 0, step=9, renamed=9)]
    files += [file(f"/run/save-9/d/{n}", n, step=9 + n, by_driver=False, renamed=9) for n in range(1, 8)]
    files += [file("/run/save-9/_CHECKPOINT_METADATA", 8, step=30, renamed=9)]
    files += [file("/run/save-30/_CHECKPOINT_METADATA", 9.01, step=30, renamed=18)]
    assert numbers(*files) == [1] * 9 + [2]


@pytest.mark.parametrize("folder", ["checkpoint-60", "global_step60", "iter_0000060", "60.orbax-checkpoint-tmp"])
def test_helpers_write_one_save_into_a_directory_of_one_save(folder: str) -> None:
    """With steps and pauses between the files, and below it, too."""
    paths = [f"/run/{folder}/model.pt", f"/run/{folder}/rank_0/optimizer.pt", f"/run/{folder}/rank_0/optimizer.pt"]
    assert numbers(*(file(path, 5 * n, step=60 + n, by_driver=False) for n, path in enumerate(paths))) == [1, 1, 1]


def test_directories_beside_each_other_are_one_save_in_one_step() -> None:
    parts = ("unet", "vae", "text_encoder")
    assert numbers(*(file(f"/run/out/{part}/model.bin", n / 5, step=9) for n, part in enumerate(parts))) == [1, 1, 1]
    assert numbers(*(file(f"/run/checkpoint-{n}/model.bin", n / 50) for n in (3, 6, 9))) == [1, 2, 3]
    assert numbers(*(file(f"/run/epoch{n}/model.bin", n / 50) for n in (3, 6, 9))) == [1, 2, 3]


def test_a_file_above_the_directory_belongs_to_its_save() -> None:
    files = [file("/run/checkpoint-3/model.bin", 0, step=3), file("/run/best.bin", 0.1, step=3)]
    files += [file("/run/checkpoint-6/model.bin", 0.3, step=6), file("/run/best.bin", 0.4, step=6)]
    assert numbers(*files) == [1, 1, 2, 2]


def test_without_steps_the_pauses_and_the_names_decide() -> None:
    assert numbers(file("/run/model.pt", 0), file("/run/optimizer.pt", 0.5)) == [1, 1]
    assert numbers(file("/run/step-7.pt", 0), file("/run/step-8.pt", 0.5)) == [1, 2]
    assert numbers(file("/run/model.pt", 0), file("/run/optimizer.pt", 1.5)) == [1, 2]


def test_a_file_whose_close_is_reported_late_belongs_to_its_own_save() -> None:
    files = [file(f"/run/checkpoint-{n}/model.bin", n, step=n) for n in (1, 2, 3)]
    assert numbers(*files, file("/run/checkpoint-1/trainer_state.json", 1.02, step=1)) == [1, 2, 3, 1]


def test_a_copy_goes_on_by_itself() -> None:
    groups = SaveGroups()
    groups.add(file("/run/a.pt", 0, step=1))
    other = groups.copy()
    assert other.add(file("/run/b.pt", 0.1, step=1)) == 1
    assert other.add(file("/run/a.pt", 9, step=9)) == 2
    assert groups.count == 1
    assert groups.add(file("/run/b.pt", 0.1, step=1)) == 1


def test_a_save_of_thousands_of_files_is_one_and_keeps_few_of_their_names() -> None:
    """DCP: the shards of many ranks in one directory; written again into the same, it is another save."""
    shards = [file(f"/run/out/__{n}_{n % 7}.distcp", n / 100, step=9) for n in range(4000)]
    again = [file(one.path, one.start_ns / NS + 40.1, step=9) for one in shards]
    groups = SaveGroups()
    assert {groups.add(one) for one in shards} == {1}
    assert len(groups.recent[0].paths) == PATHS
    assert groups.copy().recent[0].paths is groups.recent[0].paths, "copies share them"
    assert {groups.add(one) for one in again} == {2}
    assert max(len(group.names) for group in groups.recent) <= PATHS


def test_a_renamed_directory_takes_along_the_saves_that_were_written_lately() -> None:
    groups = SaveGroups()
    for at, path in ((0, "/out/tmp-1/a"), (100, "/out/tmp-2/a"), (101, "/out/tmp-3/x/a"), (102, "/out/tmp-33/a")):
        groups.add(file(path, at, step=at))
    assert groups.rename(Rename("/out/tmp-3", "/out/checkpoint-3", 103 * NS), 43 * NS)
    assert not groups.rename(Rename("/out/tmp-1", "/out/checkpoint-1", 103 * NS), 43 * NS)
    assert [(one.root, one.own, one.renamed_ns // NS) for one in groups.recent] == [
        ("/out/tmp-1", "", 0),
        ("/out/tmp-2", "", 0),
        ("/out/checkpoint-3", "/out/checkpoint-3", 103),
        ("/out/tmp-33", "", 0),
    ]
    assert groups.add(file("/out/checkpoint-3/y/b", 104, step=104, renamed=103)) == 3
