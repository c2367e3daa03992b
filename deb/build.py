"""Builds the package: ``python -m deb.build [--output DIR] [--version VERSION]``; prints the path of the .deb.

No debhelper: a tree is staged, every time stamp in it set to SOURCE_DATE_EPOCH (the last commit's time without it), and
dpkg-deb packs it. The same sources give the same bytes.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from datetime import datetime, timezone
from importlib.metadata import Distribution, distribution
from pathlib import Path

from deb import command_lines
from deb.sample import sample
from trainprobe import __version__
from trainprobe.config.schema import DaemonConfig, ExporterConfig

ROOT = Path(__file__).resolve().parents[1]
HERE = ROOT / "deb"
LIBRARY = Path("usr/lib/trainprobe")
DOCUMENTS = Path("usr/share/doc/trainprobe")
GENERATOR = Path("usr/lib/systemd/system-generators/trainprobe-backoff")
VENDORED = ("prometheus-client", "nvidia-ml-py")
PROGRAMS = {"trainprobe": "trainprobe.cli", "trainprobe-exporter": "trainprobe_exporters.cli"}
_LEFT_OUT = frozenset({"example.py", "INSTALLER", "RECORD", "REQUESTED", "direct_url.json"})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--output", type=Path, default=ROOT / "dist", help="directory of the .deb (default: %(default)s)"
    )
    parser.add_argument("--version", default=__version__.replace("rc", "~rc").replace(".dev", "~dev"))
    args = parser.parse_args()
    print(build(args.output, args.version, source_date()))
    return 0


def build(output: Path, version: str, epoch: int, level: int = 6) -> Path:
    """The package, in ``output``, compressed as well as ``level`` says: 0 takes a tenth of the time of 6. Raises
    CalledProcessError when dpkg-deb refuses the tree."""
    output.mkdir(parents=True, exist_ok=True)
    package = output / f"trainprobe_{version}_all.deb"
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory) / "root"
        stage(root, version, epoch)
        command = ["dpkg-deb", "--root-owner-group", "-Zxz", f"-z{level}", "--build", str(root), str(package)]
        environment = os.environ | {"SOURCE_DATE_EPOCH": str(epoch)}
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)
    return package


def source_date() -> int:
    """SOURCE_DATE_EPOCH, else when the last commit was made, else the newest source."""
    if given := os.environ.get("SOURCE_DATE_EPOCH"):
        return int(given)
    asked = subprocess.run(["git", "-C", str(ROOT), "log", "-1", "--format=%ct"], capture_output=True, text=True)
    if asked.returncode == 0 and asked.stdout.strip():
        return int(asked.stdout)
    return max(int(path.stat().st_mtime) for path in (ROOT / "daemon").rglob("*.py"))


def stage(root: Path, version: str, epoch: int) -> None:
    """The tree that dpkg-deb packs, with its control files."""
    _code(root)
    _system(root)
    _documents(root, version, epoch)
    _set_modes(root)
    _control(root, version)
    for path in [root, *root.rglob("*")]:
        os.utime(path, (epoch, epoch), follow_symlinks=False)


def _code(root: Path) -> None:
    for source in (ROOT / "daemon" / "trainprobe", ROOT / "exporters" / "trainprobe_exporters"):
        shutil.copytree(source, root / LIBRARY / source.name, ignore=shutil.ignore_patterns("__pycache__", "*.pyc"))
    for name in VENDORED:
        _vendor(distribution(name), root / LIBRARY / "vendor")
    for name, module in PROGRAMS.items():
        _write(root / "usr/bin" / name, (HERE / "program.in").read_text().replace("@module@", module))
    grafana = ROOT / "grafana"
    for part in ("dashboards", "rules", "provisioning"):
        if (grafana / part).is_dir():
            ignored = shutil.ignore_patterns("__pycache__", "*.py", "tests")
            shutil.copytree(grafana / part, root / "usr/share/trainprobe/grafana" / part, ignore=ignored)


def _vendor(package: Distribution, target: Path) -> None:
    """The files of an installed package that is pure Python, with its licence."""
    for file in package.files or ():
        if file.parts[0] == ".." or file.name in _LEFT_OUT or file.suffix == ".pyc":
            continue
        if file.suffix == ".so":
            raise ValueError(f"{package.name} is not pure Python: {file}")
        (target / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(str(file.locate()), target / file)


def _system(root: Path) -> None:
    units = ROOT / "systemd"
    for unit in units.glob("*.service"):
        _write(root / "usr/lib/systemd/system" / unit.name, unit.read_text())
    _write(root / GENERATOR, (units / GENERATOR.name).read_text())
    _write(root / "usr/lib/sysusers.d/trainprobe.conf", (units / "sysusers.conf").read_text())
    _write(root / "usr/lib/tmpfiles.d/trainprobe.conf", (units / "tmpfiles.conf").read_text())
    _write(root / "etc/trainprobe/trainprobe.yaml", sample(DaemonConfig, "trainprobe"))
    _write(root / "etc/trainprobe/exporter.yaml", sample(ExporterConfig, "trainprobe-exporter"))
    for name, parser in command_lines.programs().items():
        _write(root / "usr/share/bash-completion/completions" / name, command_lines.completion(parser, "bash"))
        _write(root / "usr/share/zsh/vendor-completions" / f"_{name}", command_lines.completion(parser, "zsh"))


def _documents(root: Path, version: str, epoch: int) -> None:
    date = datetime.fromtimestamp(epoch, timezone.utc)
    for name, parser in command_lines.programs().items():
        text = command_lines.manual(parser, version, f"{date:%Y-%m-%d}")
        _write_compressed(root / "usr/share/man/man1" / f"{name}.1.gz", text)
    documents = root / DOCUMENTS
    for page in (*ROOT.glob("README*.md"), *(ROOT / "docs").rglob("*.md")):
        _write(documents / page.relative_to(ROOT), page.read_text())
    _write(documents / "examples/no-sys-admin.conf", (ROOT / "systemd/no-sys-admin.conf").read_text())
    for example in (path for path in (ROOT / "systemd/slurm").iterdir() if path.is_file()):
        _write(documents / "examples/slurm" / example.name, example.read_text())
    _write(documents / "CHANGELOG.md", (ROOT / "CHANGELOG.md").read_text())
    _write_compressed(documents / "changelog.gz", _changelog(version, date))
    _write(root / "usr/share/lintian/overrides/trainprobe", (HERE / "lintian-overrides").read_text())
    _write(documents / "copyright", _copyright())


def _changelog(version: str, date: datetime) -> str:
    """What Debian's tools want to see; the changes themselves are in CHANGELOG.md."""
    control = (HERE / "control.in").read_text()
    maintainer = next(line.partition(": ")[2] for line in control.splitlines() if line.startswith("Maintainer:"))
    changes = f"  * The changes are in /{DOCUMENTS}/CHANGELOG.md."
    signed = f" -- {maintainer}  {date:%a, %d %b %Y %H:%M:%S} +0000"
    return f"trainprobe ({version}) unstable; urgency=medium\n\n{changes}\n\n{signed}\n"


def _copyright() -> str:
    two_clauses = (ROOT / "LICENSES/BSD-2-Clause.txt").read_text()
    header = str(distribution("nvidia-ml-py").locate_file("pynvml.py"))
    three_clauses = "\n".join(_header_comment(Path(header)))
    parts = [(HERE / "copyright").read_text().rstrip("\n")]
    for name, text in (("BSD-2-Clause", two_clauses), ("BSD-3-Clause", three_clauses)):
        lines = (f" {line.rstrip()}" if line.strip() else " ." for line in text.strip().splitlines())
        parts.append(f"License: {name}\n" + "\n".join(lines))
    return "\n\n".join(parts) + "\n"


def _header_comment(path: Path) -> Iterator[str]:
    for line in path.read_text().splitlines():
        if not line.startswith("#"):
            return
        yield line.strip("#").removeprefix(" ")


def _set_modes(root: Path) -> None:
    for path in [root, *root.rglob("*")]:
        runs = path.parent == root / "usr/bin" or path == root / GENERATOR
        path.chmod(0o755 if path.is_dir() or runs else 0o644)


def _control(root: Path, version: str) -> None:
    files = sorted(path for path in root.rglob("*") if path.is_file())
    size = sum(-(-path.stat().st_size // 1024) for path in files)
    control = root / "DEBIAN"
    text = (HERE / "control.in").read_text().replace("@version@", version).replace("@size@", str(size))
    _write(control / "control", text)
    names = [path.relative_to(root) for path in files]
    _write(control / "conffiles", "".join(f"/{name}\n" for name in names if name.parts[0] == "etc"))
    sums = (f"{hashlib.md5((root / n).read_bytes()).hexdigest()}  {n}\n" for n in names if n.parts[0] != "etc")
    _write(control / "md5sums", "".join(sums))
    for script in (HERE / "scripts").iterdir():
        _write(control / script.name, script.read_text())
        (control / script.name).chmod(0o755)
    for path in (control, *control.iterdir()):
        path.chmod(path.stat().st_mode | 0o755 if path.is_dir() else path.stat().st_mode & 0o755 | 0o644)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def _write_compressed(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text.encode(), 9, mtime=0))


if __name__ == "__main__":
    sys.exit(main())
