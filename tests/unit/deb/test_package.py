"""The package holds what it should, the same bytes each time, and configuration files that change nothing."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest

from deb import build
from deb.sample import sample
from trainprobe.config.load import load
from trainprobe.config.schema import DaemonConfig, ExporterConfig

EPOCH = 1_700_000_000
KINDS = pytest.mark.parametrize("kind", [DaemonConfig, ExporterConfig])
needs_dpkg = pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="no dpkg-deb here")


@pytest.fixture(scope="module")
def staged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("staged") / "root"
    build.stage(root, "1.2.3", EPOCH)
    return root


@needs_dpkg
def test_the_same_sources_give_the_same_bytes(tmp_path: Path) -> None:
    first, second = (build.build(tmp_path / name, "1.2.3", EPOCH) for name in ("a", "b"))
    assert first.name == "trainprobe_1.2.3_all.deb"
    assert first.read_bytes() == second.read_bytes()


@needs_dpkg
def test_its_metadata_names_version_and_what_it_needs(tmp_path: Path) -> None:
    package = build.build(tmp_path, "1.2.3", EPOCH)
    shown = subprocess.run(["dpkg-deb", "-f", str(package)], check=True, capture_output=True, text=True).stdout
    told = dict(re.findall(r"^([\w-]+): (.*)$", shown, re.MULTILINE))
    assert (told["Package"], told["Version"], told["Architecture"]) == ("trainprobe", "1.2.3", "all")
    assert {"python3-bpfcc", "python3-yaml"} < {name.split()[0] for name in told["Depends"].split(",")}


def test_all_of_the_programs_is_there_and_nothing_compiled(staged: Path) -> None:
    for source in (build.ROOT / "daemon/trainprobe", build.ROOT / "exporters/trainprobe_exporters"):
        wanted = {path.relative_to(source) for path in source.rglob("*") if path.is_file() and path.suffix != ".pyc"}
        packed = staged / "usr/lib/trainprobe" / source.name
        assert {path.relative_to(packed) for path in packed.rglob("*") if path.is_file()} == wanted
    assert [path for path in staged.rglob("*") if path.suffix in (".pyc", ".so")] == []


def test_what_is_vendored_keeps_its_licence(staged: Path) -> None:
    vendor = staged / "usr/lib/trainprobe/vendor"
    assert {path.name for path in vendor.glob("prometheus_client-*/licenses/*")} == {"LICENSE", "NOTICE"}
    assert "Redistributions of source code" in (vendor / "pynvml.py").read_text()[:1000]
    notice = (staged / "usr/share/doc/trainprobe/copyright").read_text()
    for text in (
        "The Prometheus Authors",
        "Michele Simionato",
        "NVIDIA Corporation",
        "License: BSD-3-Clause\n Copyright",
    ):
        assert text in notice


def test_whatever_lies_in_etc_is_a_conffile(staged: Path) -> None:
    listed = (staged / "DEBIAN/conffiles").read_text().split()
    assert listed == ["/etc/trainprobe/exporter.yaml", "/etc/trainprobe/trainprobe.yaml"]
    assert (staged / "etc/trainprobe/exporter.yaml").stat().st_mode & 0o777 == 0o640


def test_programs_take_no_module_from_their_caller(staged: Path, tmp_path: Path) -> None:
    (tmp_path / "trainprobe.py").write_text("raise SystemExit('taken from the caller')")
    shutil.copy(tmp_path / "trainprobe.py", tmp_path / "yaml.py")
    for name in build.PROGRAMS:
        text = (staged / "usr/bin" / name).read_text()
        program = tmp_path / name
        program.write_text(text.replace("/usr/lib/trainprobe", str(staged / "usr/lib/trainprobe")))
        program.chmod(0o755)
        done = subprocess.run(
            [program, "--version"], cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith(name)


@pytest.mark.parametrize("script", ["postinst", "prerm", "postrm"])
def test_maintainer_scripts_are_shell(staged: Path, script: str) -> None:
    path = staged / "DEBIAN" / script
    assert path.stat().st_mode & 0o777 == 0o755
    subprocess.run(["sh", "-n", str(path)], check=True)


@KINDS
def test_the_configuration_that_comes_along_changes_nothing(tmp_path: Path, kind: type) -> None:
    path = tmp_path / "file.yaml"
    path.write_text(sample(kind, "unit"))
    assert load(kind, path) == kind()


@KINDS
def test_uncommented_it_holds_every_key_with_its_default(tmp_path: Path, kind: type) -> None:
    head, _, body = sample(kind, "unit").partition("\n\n")
    assert kind.__doc__ is not None
    assert kind.__doc__ in head
    path = tmp_path / "file.yaml"
    path.write_text(re.sub(r"^#", "", body, flags=re.MULTILINE))
    assert load(kind, path) == kind()
    written = re.findall(r"^ *(\w+):", path.read_text(), re.MULTILINE)
    assert sorted(written) == sorted(_keys(kind()))


def _keys(section: Any) -> list[str]:
    keys = []
    for field in fields(section):
        value = getattr(section, field.name)
        keys += [field.name, *(_keys(value) if is_dataclass(value) else ())]
    return keys
