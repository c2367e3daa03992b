from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from trainprobe_exporters.access import FILE_NAME, token_in


def test_the_token_is_for_the_group_to_read_and_for_nobody_else(tmp_path: Path) -> None:
    directory = tmp_path / "run"
    token = token_in(directory)
    status = (directory / FILE_NAME).stat()
    assert stat.S_IMODE(status.st_mode) == 0o640
    assert (directory / FILE_NAME).read_text() == token + "\n"
    assert len(token) >= 40
    assert [path.name for path in directory.iterdir()] == [FILE_NAME]


def test_it_outlives_a_restart(tmp_path: Path) -> None:
    assert token_in(tmp_path) == token_in(tmp_path)


def test_each_directory_has_its_own(tmp_path: Path) -> None:
    assert token_in(tmp_path / "a") != token_in(tmp_path / "b")


def test_a_file_that_others_could_have_written_or_read_is_replaced(tmp_path: Path) -> None:
    for mode in (0o666, 0o660, 0o644):
        token = token_in(tmp_path)
        (tmp_path / FILE_NAME).chmod(mode)
        assert token_in(tmp_path) != token


def test_a_link_is_replaced_and_its_target_neither_read_nor_written(tmp_path: Path) -> None:
    target = tmp_path / "elsewhere"
    target.write_text("A" * 43)
    target.chmod(0o600)
    (tmp_path / FILE_NAME).symlink_to(target)
    assert token_in(tmp_path) != "A" * 43
    assert target.read_text() == "A" * 43
    assert not (tmp_path / FILE_NAME).is_symlink()


@pytest.mark.parametrize("content", ["", "short", "x" * 44, "ü" * 43])
def test_what_is_no_token_is_replaced(tmp_path: Path, content: str) -> None:
    (tmp_path / FILE_NAME).write_text(content)
    (tmp_path / FILE_NAME).chmod(0o640)
    assert token_in(tmp_path) != content


def test_where_it_cannot_be_written_that_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError):
        token_in(tmp_path / "file")
    assert os.listdir(tmp_path) == ["file"]
