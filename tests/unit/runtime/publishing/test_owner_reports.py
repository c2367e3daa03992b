"""A user reads the report of his own runs, and neither he nor anybody else can change it."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.builders.users import OWNER, STRANGER, mounted, output, reachable
from trainprobe.model.moment import NS
from trainprobe.model.report import Report, Run
from trainprobe.runtime.history.files import HistoryFiles
from trainprobe.runtime.publishing.publish import Publisher

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user needs root")

READ = "import json, sys; print([run['run'] for run in json.load(open(sys.argv[1]))['runs']])"
FILL = """
import os, sys
path = sys.argv[1]
try:
    os.chmod(path, 0o600)
    with open(path, "ab") as file:
        while True:
            file.write(bytes(1 << 16))
except OSError as error:
    print(error.strerror)
"""
RENAME = "import os, sys; os.rename(sys.argv[1], sys.argv[1] + 'x')"
REMOVE = "import os, sys; os.unlink(sys.argv[1])"
OPEN = "import sys; open(sys.argv[1], 'r+')"


def report(*users: int, name: str = "r") -> Report:
    return Report(generated=1.0, runs=[Run(f"{name}-{user}", [], str(user), "/", 1.0) for user in users])


@pytest.fixture
def directory() -> Iterator[Path]:
    """A file system of 1 MB, as /run is one of a fixed size."""
    with reachable() as made, mounted("tmpfs", made / "run", "size=1m,mode=755") as run:
        yield run / "trainprobe"


def test_an_owner_who_tries_to_fill_the_file_system_stops_nothing(directory: Path) -> None:
    publisher = Publisher(directory)
    publisher.open()
    publisher.publish(report(OWNER, STRANGER), NS)
    own = directory / "users" / f"{OWNER}.json"
    assert output(OWNER, READ, own) == f"['r-{OWNER}']"
    assert output(OWNER, FILL, own) == "Operation not permitted"
    publisher.publish(report(OWNER, STRANGER, name="later"), 9 * NS)
    assert output(OWNER, READ, own) == f"['later-{OWNER}']"
    publisher.close()
    assert not directory.exists()


def test_it_is_roots_and_a_stranger_cannot_read_it(directory: Path) -> None:
    publisher = Publisher(directory)
    publisher.open()
    publisher.publish(report(OWNER), NS)
    own = directory / "users" / f"{OWNER}.json"
    assert own.stat().st_uid == 0
    assert stat.S_IMODE(own.stat().st_mode) & stat.S_IRWXO == 0
    for user, code in ((STRANGER, READ), (STRANGER, FILL), (OWNER, RENAME), (OWNER, REMOVE), (OWNER, OPEN)):
        told = output(user, code, own)
        assert "Permission denied" in told or "not permitted" in told, (user, code)
    assert publisher.owners.source.state == "up"
    publisher.close()


def test_a_group_that_owner_and_file_share_opens_nothing(directory: Path) -> None:
    """The file's group is the daemon's: its members see all reports by another file, and root's group sees none."""
    publisher = Publisher(directory)
    publisher.open()
    publisher.publish(report(OWNER), NS)
    own = directory / "users" / f"{OWNER}.json"
    os.chown(own, 0, STRANGER)
    assert "Permission denied" in output(STRANGER, READ, own)
    publisher.close()


def test_without_acls_nobody_gets_a_file_and_the_report_says_so() -> None:
    """ramfs has none. A file of the user's own or of his group's would be worse than no file."""
    with reachable() as made, mounted("ramfs", made / "run") as run:
        publisher = Publisher(run / "trainprobe")
        publisher.open()
        publisher.publish(report(OWNER), NS)
        assert list((run / "trainprobe" / "users").iterdir()) == []
        assert json.loads((run / "trainprobe" / "report.json").read_text())["runs"]
        source = publisher.owners.source
        assert (source.state, "without POSIX ACLs" in source.reason) == ("unavailable", True)
        assert "sudo trainprobe report" in source.remedy
        publisher.close()
        files = HistoryFiles(run / "state", -1)
        files.open()
        files.publish_to(OWNER, [])
        assert files.owners.uids() == []
        assert files.owners.source.state == "unavailable"
