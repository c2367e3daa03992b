"""The numbers of saves are those of a fold over all files, however few of them are folded again."""

from __future__ import annotations

import random

from trainprobe.derive.files.save import Save
from trainprobe.derive.files.save_groups import SavedFile, SaveGroups
from trainprobe.derive.files.save_numbers import ANEW, SaveNumbers
from trainprobe.model.moment import NS

FORGOTTEN_BEYOND = 120


def saved_file(save: Save) -> SavedFile:
    return SavedFile(save.path, save.start_ns, save.end_ns or save.start_ns, save.tid == 1, save.step, save.renamed_ns)


def a_save(at: float, *, open_: bool = False, name: str = "model.pt") -> Save:
    end_ns = None if open_ else int((at + 0.2) * NS)
    return Save((1, 1, 1), f"/out/{name}", int(at * NS), 1, end_ns, step=int(at) // 3)


def started(save: Save) -> int:
    return save.start_ns


def test_one_more_save_is_numbered_with_a_bounded_number_of_others() -> None:
    numbers, gone, folded, closed = SaveNumbers(), SaveGroups(), [0], [a_save(at) for at in range(200)]

    def file(save: Save) -> SavedFile:
        folded[0] += 1
        return saved_file(save)

    numbers.of(closed, (), gone, file, None)
    for at in range(200, 300):
        closed.append(a_save(at))
        numbers.changed(closed[-1])
        folded[0] = 0
        numbers.of(closed, (), gone, file, None)
        assert folded[0] <= 3 * ANEW


def test_the_numbers_are_those_of_all_files_whatever_changes() -> None:
    """Files close late, are open for long, get names with their directory, and leave the list."""
    chance = random.Random(7)
    numbers, gone = SaveNumbers(), SaveGroups()
    closed: list[Save] = []
    being: list[Save] = []
    used = 0
    for turn in range(1500):
        at = turn / 3 - (chance.choice((1, 20)) if chance.random() < 0.1 else 0)
        save = a_save(at, open_=chance.random() < 0.1, name=chance.choice(("model.pt", "optimizer.pt", "a/x", "b/x")))
        if save.end_ns is None:
            being.append(save)
        else:
            closed.append(save)
            numbers.changed(save)
        if being and chance.random() < 0.3:
            over = being.pop(0)
            over.end_ns = int(turn / 3 * NS)
            closed.append(over)
            numbers.changed(over)
        if chance.random() < 0.02:
            other = chance.choice(closed)
            other.renamed_ns = other.start_ns + NS
            numbers.changed(other)
        closed.sort(key=started)
        while len(closed) > FORGOTTEN_BEYOND:
            gone.add(saved_file(closed.pop(0)))
            numbers.forget_first()
        whole = gone.copy()
        expected = [whole.add(saved_file(one)) for one in sorted([*closed, *being], key=started)]
        assert numbers.of(closed, being, gone, saved_file, int((turn / 3 - 2) * NS)) == expected
        used += len(numbers.settled)
    assert used > 1500, "it is not all folded each time"
