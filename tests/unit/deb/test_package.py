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


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build.build(tmp_path_factory.mktemp("package"), "1.2.3", EPOCH, level=0)


@needs_dpkg
def test_the_same_sources_give_the_same_bytes(package: Path, tmp_path: Path) -> None:
    assert package.name == "trainprobe_1.2.3_all.deb"
    assert package.read_bytes() == build.build(tmp_path, "1.2.3", EPOCH, level=0).read_bytes()


@needs_dpkg
def test_its_metadata_names_version_and_what_it_needs(package: Path) -> None:
    shown = subprocess.run(["dpkg-deb", "-f", str(package)], check=True, capture_output=True, text=True).stdout
    told = dict(re.findall(r"^([\w-]+): (.*)$", shown, re.MULTILINE))
    assert (told["Package"], told["Version"], told["Architecture"]) == ("trainprobe", "1.2.3", "all")
    needed = {"python3-bpfcc", "python3-bcrypt", "python3-h11", "python3-yaml"}
    assert needed < {name.split()[0] for name in told["Depends"].split(",")}


def test_all_of_the_programs_is_there_and_nothing_compiled(staged: Path) -> None:
    for source in (build.ROOT / "daemon/trainprobe", build.ROOT / "exporters/trainprobe_exporters"):
        wanted = {path.relative_to(source) for path in source.rglob("*") if path.is_file() and path.suffix != ".pyc"}
        packed = staged / "usr/lib/trainprobe" / source.name
        assert {path.relative_to(packed) for path in packed.rglob("*") if path.is_file()} == wanted
    assert [path for path in staged.rglob("*") if path.suffix in (".pyc", ".so")] == []


def test_the_readme_comes_in_both_languages(staged: Path) -> None:
    documents = staged / "usr/share/doc/trainprobe"
    assert "(README.zh.md)" in (documents / "README.md").read_text()
    assert (documents / "README.zh.md").read_text() == (build.ROOT / "README.zh.md").read_text()


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
    # Until postinst gives it to its group, or where nobody runs postinst, the exporter reads it like everybody.
    assert (staged / "etc/trainprobe/exporter.yaml").stat().st_mode & 0o777 == 0o644


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


@pytest.mark.parametrize(("version", "waits_longer"), [("249.11-0ubuntu3", False), ("252", False), ("257.9", True)])
def test_systemd_waits_longer_before_each_restart_where_it_can(
    staged: Path, tmp_path: Path, version: str, waits_longer: bool
) -> None:
    """Versions before 254 warn of the keys: only later ones get to see them."""
    systemctl = tmp_path / "systemctl"
    systemctl.write_text(f"#!/bin/sh\necho 'systemd {version.partition('.')[0]} ({version})'\necho '+PAM -ELFUTILS'\n")
    systemctl.chmod(0o755)
    (normal := tmp_path / "normal").mkdir()
    generator = staged / build.GENERATOR
    assert generator.stat().st_mode & 0o777 == 0o755
    subprocess.run([generator, normal, normal, normal], check=True, env={"PATH": f"{tmp_path}:/usr/bin:/bin"})
    made = {str(path.relative_to(normal)): path.read_text() for path in normal.rglob("*.conf")}
    units = ("trainprobe", "trainprobe-exporter") if waits_longer else ()
    assert set(made) == {f"{unit}.service.d/00-backoff.conf" for unit in units}
    assert all(Path(name).name < "10-own.conf" for name in made), "an administrator's is applied later"
    for text in made.values():
        assert "RestartMaxDelaySec=60\n" in text


@pytest.mark.parametrize("unit", ["trainprobe", "trainprobe-exporter"])
def test_systemd_never_gives_up(staged: Path, unit: str) -> None:
    text = (staged / "usr/lib/systemd/system" / f"{unit}.service").read_text()
    assert "\nStartLimitIntervalSec=0\n" in text
    assert "\nRestart=on-failure\n" in text
    assert "StartLimitBurst" not in text
