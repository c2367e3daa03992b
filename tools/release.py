"""Makes a release in dist/ and tags it: ``python -m tools.release [--dry-run] [--output DIR]`` (``make release``).

The version is ``trainprobe.__version__``. Nothing is made where a check finds something; the tag comes last. The files:
Debian package, container image, Helm chart, source archive, and SHA256SUMS over them.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from deb import build as deb
from image import build as image
from trainprobe import __version__

ROOT = Path(__file__).parents[1]
VERSIONS = {
    "daemon/trainprobe/__init__.py": r'^__version__ = "(.+)"$',
    "charts/trainprobe/Chart.yaml": r'^(?:v|appV)ersion: "?([^"\n]+)"?$',
    "image/Containerfile": r"^ARG VERSION=(.+)$",
    "charts/deploy.yaml": r"^ *image: trainprobe:(\S+)$",
}
"""Files with the version. All but the first are made from it: ``make generated``, ``make chart WRITE=--write``."""
_DATED = re.compile(r"^## \[(.+)\] - \d{4}-\d{2}-\d{2}$", re.MULTILINE)
_UNRELEASED = re.compile(r"^## \[Unreleased\]\n(.*?)^## \[", re.MULTILINE | re.DOTALL)


def findings(root: Path, version: str) -> Iterator[str]:
    """Why this tree cannot be released as that version."""
    if changed := _git(root, "status", "--porcelain"):
        yield f"the tree has changes that are not committed: {', '.join(changed.split()[1::2])}"
    if _git(root, "tag", "--list", tag(version)):
        yield f"the tag {tag(version)} exists"
    yield from other_versions(root, version)
    changes = (root / "CHANGELOG.md").read_text()
    latest, unreleased = _DATED.search(changes), _UNRELEASED.search(changes)
    if latest is None or latest[1] != version:
        yield f"CHANGELOG.md begins with no section [{version}] and its date"
    if unreleased is not None and unreleased[1].strip():
        yield "CHANGELOG.md has changes that are [Unreleased]"


def other_versions(root: Path, version: str) -> Iterator[str]:
    """Files that have another version than the program."""
    for name, pattern in VERSIONS.items():
        found = re.findall(pattern, (root / name).read_text(), re.MULTILINE)
        if not found or set(found) != {version}:
            yield f"{name} has the version {', '.join(dict.fromkeys(found)) or 'of nothing'}, not {version}"


def tag(version: str) -> str:
    return f"v{version}"


def _git(root: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(root), *arguments], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def chart(output: Path, version: str, epoch: int) -> Path:
    """The chart as ``helm package`` packs it, the same bytes each time."""
    package = output / f"trainprobe-chart_{version}.tgz"
    same = ["--sort=name", f"--mtime=@{epoch}", "--owner=0", "--group=0", "--numeric-owner", "--mode=go=rX,u+rw"]
    left_out = (ROOT / "charts/trainprobe/.helmignore").read_text().split()
    same += [f"--exclude=trainprobe/{pattern.rstrip('/')}" for pattern in left_out]
    command = ["tar", *same, "--use-compress-program=gzip -n", "-C", str(ROOT / "charts"), "-cf", str(package)]
    subprocess.run([*command, "trainprobe"], check=True)
    return package


def sources(output: Path, version: str, epoch: int) -> Path:
    """The source archive (sdist)."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", "sdist", "--directory", str(output.resolve())]
    environment = os.environ | {"SOURCE_DATE_EPOCH": str(epoch)}
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, env=environment)
    return output / f"trainprobe-{version}.tar.gz"


PARTS: tuple[Callable[[Path, str, int], Path], ...] = (
    deb.build,
    lambda output, _, epoch: image.built(output, epoch)[0],
    chart,
    sources,
)


def sums(files: list[Path]) -> str:
    """As sha256sum(1) writes and checks them."""
    return "".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dry-run", action="store_true", help="check only; make nothing, tag nothing")
    parser.add_argument("--output", type=Path, default=ROOT / "dist", help="directory (default: %(default)s)")
    options = parser.parse_args()
    if found := list(findings(ROOT, __version__)):
        print("\n".join(f"trainprobe: {line}" for line in found), file=sys.stderr)
        return 1
    if options.dry_run:
        print(f"trainprobe {__version__} can be released as {tag(__version__)}")
        return 0
    options.output.mkdir(parents=True, exist_ok=True)
    files = []
    for part in PARTS:
        files.append(part(options.output, __version__, deb.source_date()))
        print(files[-1], flush=True)
    (options.output / "SHA256SUMS").write_text(sums(files))
    _git(ROOT, "tag", "--annotate", tag(__version__), "--message", f"trainprobe {__version__}")
    print(f"{options.output / 'SHA256SUMS'}\ntagged {tag(__version__)}; git push origin {tag(__version__)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
