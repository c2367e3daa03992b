"""Whose a Python file is, and what version its package has."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainprobe.collect.procfs import Proc
from trainprobe.collect.python_files import PackageVersions, PythonFile

SITE = "/opt/env/lib/python3.11/site-packages"


@pytest.mark.parametrize(
    ("path", "package", "name"),
    [
        (f"{SITE}/mmengine/runner/loops.py", "mmengine", "loops.py"),
        (f"{SITE}/six.py", "six", "six.py"),
        ("/usr/lib/python3/dist-packages/numpy/core/fromnumeric.py", "numpy", "fromnumeric.py"),
        ("/usr/lib/python3.11/json/encoder.py", "python3.11", "encoder.py"),
        ("/opt/conda/lib/python3.13t/threading.py", "python3.13t", "threading.py"),
        ("/home/a/project/train.py", "", "train.py"),
        ("/home/a/lib/train.py", "", "train.py"),
        ("train.py", "", "train.py"),
        ("<string>", "", "<string>"),
        ("<frozen runpy>", "", "<frozen runpy>"),
        ("/opt/env/bin/yolo", "bin", "yolo"),
        ("/home/a/transformers/src/transformers/trainer.py", "transformers", "trainer.py"),
        ("/home/a/src/nnunetv2/training/nnUNetTrainer/nnUNetTrainer.py", "nnunetv2", "nnUNetTrainer.py"),
        ("/home/a/project/trainer.py", "", "trainer.py"),
    ],
)
def test_a_file_is_of_a_package_of_the_standard_library_or_the_users(path: str, package: str, name: str) -> None:
    file = PythonFile.of(path)
    assert (file.package, file.name) == (package, name)


def installed(root: Path, *names: str) -> PackageVersions:
    for name in names:
        (root / "7" / "root" / SITE.lstrip("/") / name).mkdir(parents=True)
    return PackageVersions(Proc(str(root), 0))


def test_a_version_is_read_where_the_process_sees_the_package(tmp_path: Path) -> None:
    versions = installed(
        tmp_path, "transformers-5.23.0.dist-info", "mmcv_full-1.7.2.dist-info", "orbax_checkpoint-0.12.8.dist-info",
        "Keras-3.15.1.dist-info", "lightning_utilities-0.15.3.dist-info", "flax-x.dist-info", "jax-1.egg-info",
    )  # fmt: skip
    told = {name: versions.of(7, name, SITE) for name in ("transformers", "mmcv", "orbax", "keras", "jax")}
    assert told == {"transformers": "5.23.0", "mmcv": "1.7.2", "orbax": "0.12.8", "keras": "3.15.1", "jax": "1"}
    assert [versions.of(7, name, SITE) for name in ("lightning", "flax", "timm")] == ["", "", ""]


def test_what_cannot_be_read_is_asked_for_again(tmp_path: Path) -> None:
    versions = PackageVersions(Proc(str(tmp_path), 0))
    assert versions.of(7, "timm", SITE) == ""
    installed(tmp_path, "timm-1.0.31.dist-info")
    assert versions.of(7, "timm", SITE) == "1.0.31"
    assert versions.of(8, "timm", SITE) == "", "another process may see other files there"
