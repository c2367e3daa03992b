"""``make release`` refuses what it should; the version is the same in every file that has it."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tools import release

FILES = {
    "daemon/trainprobe/__init__.py": '__version__ = "1.2.0"\n',
    "charts/trainprobe/Chart.yaml": 'version: 1.2.0\nappVersion: "1.2.0"\n',
    "charts/deploy.yaml": "        image: trainprobe:1.2.0\n",
    "image/Containerfile": "FROM scratch\nARG VERSION=1.2.0\n",
    "CHANGELOG.md": "# Changelog\n\n## [Unreleased]\n\n## [1.2.0] - 2026-01-02\n\n### Added\n\n- All.\n",
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    git(tmp_path, "init", "--quiet")
    commit(tmp_path)
    return tmp_path


def git(tree: Path, *arguments: str) -> None:
    who = ("-c", "user.name=test", "-c", "user.email=test@localhost")
    subprocess.run(["git", "-C", str(tree), *who, *arguments], check=True)


def commit(tree: Path) -> None:
    git(tree, "add", "--all")
    git(tree, "commit", "--quiet", "--message", "all")


def test_a_clean_tree_can_be_released(tree: Path) -> None:
    assert list(release.findings(tree, "1.2.0")) == []


def test_a_changed_tree_is_refused(tree: Path) -> None:
    (tree / "new").write_text("")
    assert list(release.findings(tree, "1.2.0")) == ["the tree has changes that are not committed: new"]


def test_a_tag_that_exists_is_refused(tree: Path) -> None:
    git(tree, "tag", "v1.2.0")
    assert list(release.findings(tree, "1.2.0")) == ["the tag v1.2.0 exists"]


@pytest.mark.parametrize("name", list(FILES))
def test_another_version_in_one_file_is_refused(tree: Path, name: str) -> None:
    (tree / name).write_text(FILES[name].replace("1.2.0", "1.1.0", 1))
    commit(tree)
    (found,) = release.findings(tree, "1.2.0")
    assert name in found


def test_unreleased_changes_are_refused(tree: Path) -> None:
    (tree / "CHANGELOG.md").write_text(FILES["CHANGELOG.md"].replace("[Unreleased]\n", "[Unreleased]\n\n- More.\n"))
    commit(tree)
    assert list(release.findings(tree, "1.2.0")) == ["CHANGELOG.md has changes that are [Unreleased]"]


def test_the_version_stands_in_one_place() -> None:
    """All other files are made from it: make generated, make chart WRITE=--write."""
    assert list(release.other_versions(release.ROOT, release.__version__)) == []


def test_an_image_has_the_package_of_this_version_whatever_else_was_built() -> None:
    """A wildcard would be several packages where dist/ holds those of earlier versions."""
    packages = re.findall(r"trainprobe_(\S*)_all\.deb", (release.ROOT / "image" / "Containerfile").read_text())
    assert set(packages) == {"${VERSION}"}


def test_the_sums_are_those_that_sha256sum_checks(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a")
    (tmp_path / "SHA256SUMS").write_text(release.sums([tmp_path / "a"]))
    subprocess.run(["sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS"], cwd=tmp_path, check=True)


def test_the_chart_is_packed_the_same_each_time(tmp_path: Path) -> None:
    first, second = (release.chart(tmp_path, version, 1_700_000_000) for version in ("1", "2"))
    assert first.read_bytes() == second.read_bytes()
