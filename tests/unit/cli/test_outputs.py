"""Files that a person asked for: his alone, whole, and where he said."""

from __future__ import annotations

import gzip
import os
import resource
import zlib
from pathlib import Path

import pytest

from trainprobe.cli import outputs

STRANGER = 61185


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_a_new_file_is_for_nobody_else(tmp_path: Path) -> None:
    outputs.write(tmp_path / "report.json", "{}")
    record = outputs.RecordFile(tmp_path / "rec.jsonl")
    record.begin()
    record.line(b"{}")
    record.close()
    assert [mode(path) for path in sorted(tmp_path.iterdir())] == [0o600, 0o600]


def test_a_recording_is_compressed_where_its_name_says_so(tmp_path: Path) -> None:
    """Each line is in the file when it was written: a kill costs the end mark alone."""
    path = tmp_path / "rec.jsonl.gz"
    record = outputs.RecordFile(path)
    record.begin()
    record.line(b"{}")
    assert zlib.decompressobj(31).decompress(path.read_bytes()) == b"{}\n"
    record.line(b"[]")
    record.close()
    assert gzip.decompress(path.read_bytes()) == b"{}\n[]\n"
    assert mode(path) == 0o600


@pytest.mark.parametrize("name", ["rec.jsonl", "rec.jsonl.gz"])
def test_no_room_ends_a_recording_and_nothing_else(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At a line as at the end mark of what is compressed, which comes when the command's exit code is to be told."""
    said: list[str] = []
    monkeypatch.setattr(outputs, "complain", lambda what, _remedy: said.append(str(what)))
    for lines in (1, 0):
        path = tmp_path / f"{lines}-{name}"
        record = outputs.RecordFile(path)
        record.begin()
        for _ in range(2):
            record.line(b"{}")
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size, before[1]))
        try:
            for _ in range(lines):
                record.line(b"{}")
            record.close()
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert said == ["the recording ends here: File too large"] * (lines or name.endswith(".gz"))
        said.clear()


def test_a_file_that_was_there_keeps_who_may_read_it(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text("old")
    path.chmod(0o644)
    outputs.write(path, "new")
    assert (path.read_text(), mode(path)) == ("new", 0o644)


def test_ones_own_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "place")
    outputs.write(outputs.checked(tmp_path / "link"), "new")
    assert (tmp_path / "place").read_text() == "new"
    assert (tmp_path / "link").is_symlink()


@pytest.mark.skipif(os.geteuid() != 0, reason="not root")
def test_another_users_link_chooses_no_file_of_ours(tmp_path: Path) -> None:
    victim, link = tmp_path / "victim", tmp_path / "report.json"
    victim.write_text("precious")
    link.symlink_to(victim)
    os.lchown(link, STRANGER, STRANGER)
    for write in (outputs.checked, lambda path: outputs.write(path, "{}")):
        with pytest.raises(PermissionError, match="another user"):
            write(link)
    assert victim.read_text() == "precious"


@pytest.mark.skipif(os.geteuid() != 0, reason="not root")
def test_another_users_file_in_its_place_opens_nothing_to_him(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text("bait")
    path.chmod(0o666)
    os.chown(path, STRANGER, STRANGER)
    outputs.write(path, "{}")
    assert (path.stat().st_uid, mode(path)) == (0, 0o600)
