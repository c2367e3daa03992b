"""Builds the container image as an OCI archive, without a registry: ``python -m image.build [--output DIR]``.

mmdebstrap makes the root file system from Debian's packages and ours, buildah packs it into one layer. All times are
those of the last commit (SOURCE_DATE_EPOCH). What is there already is not built again.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from deb import build
from trainprobe import __version__

HERE = Path(__file__).parent
DIST = build.ROOT / "dist"
SUITE = "bookworm"
LIMIT = 100_000_000
"""Bytes of the archive."""
SCRIPTS = ("finish.sh", "prune.sh")
NOT_UNPACKED = ("man", "doc", "locale", "lintian")
LABELS = {
    "title": "trainprobe",
    "description": "says why a PyTorch training stalls, from the kernel's own accounting",
    "licenses": "Apache-2.0",
    "version": __version__,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=DIST, help="directory (default: %(default)s)")
    made, size = built(parser.parse_args().output, build.source_date())
    print(f"{made} ({size / 1e6:.1f} MB)")
    if size > LIMIT:
        print(f"trainprobe: the image has more than {LIMIT // 1_000_000} MB", file=sys.stderr)
        return 1
    return 0


def archive(output: Path) -> Path:
    return output / f"trainprobe-image_{__version__}.tar"


def built(output: Path, epoch: int) -> tuple[Path, int]:
    """The archive and its bytes. Raises CalledProcessError when one of the tools refuses."""
    target = archive(output)
    with tempfile.TemporaryDirectory(dir=_work()) as directory:
        work = Path(directory)
        package = build.build(work, __version__, epoch)
        sources = [package, *(HERE / name for name in (*SCRIPTS, "build.py"))]
        made_of = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()
        stamp = target.with_suffix(".sources")
        if not (target.exists() and stamp.exists() and stamp.read_text() == made_of):
            output.mkdir(parents=True, exist_ok=True)
            _root_file_system(package, work / "root.tar", epoch)
            _pack(work, epoch)
            (work / "image.tar").replace(target)
            stamp.write_text(made_of)
    return target, target.stat().st_size


def _work() -> Path:
    place = build.ROOT / "build"
    place.mkdir(exist_ok=True)
    return place


def _root_file_system(package: Path, tree: Path, epoch: int) -> None:
    asked = ["dpkg-deb", "--field", str(package), "Depends"]
    depends = subprocess.run(asked, check=True, capture_output=True, text=True).stdout
    names = re.sub(r"\([^)]*\)|\s", "", depends)
    given = " ".join(shlex.quote(str(path)) for path in (package, *(HERE / name for name in SCRIPTS)))
    hooks = (
        f'mkdir "$1/opt/trainprobe" && cp {given} "$1/opt/trainprobe"',
        f'chroot "$1" sh /opt/trainprobe/finish.sh /opt/trainprobe/{package.name}',
        'chroot "$1" sh /opt/trainprobe/prune.sh && rm -r "$1/opt/trainprobe"',
    )
    command = ["mmdebstrap", "--quiet", "--variant=minbase", f"--include={names}"]
    command.append("--aptopt=Apt::Install-Recommends false")
    command += [f"--dpkgopt=path-exclude=/usr/share/{part}/*" for part in NOT_UNPACKED]
    command += [f"--customize-hook={hook}" for hook in hooks]
    environment = os.environ | {"SOURCE_DATE_EPOCH": str(epoch)}
    subprocess.run([*command, SUITE, str(tree)], check=True, stdout=subprocess.DEVNULL, env=environment)


def _pack(work: Path, epoch: int) -> None:
    """One layer with the tree, compressed by zstd: containerd 1.5, podman 3, Docker 23 and later read it."""
    store = ["buildah", f"--root={work / 'store'}", f"--runroot={work / 'run'}", "--storage-driver=vfs"]

    def buildah(*arguments: str) -> str:
        done = subprocess.run([*store, *arguments], check=True, stdout=subprocess.PIPE, text=True)
        return done.stdout.strip()

    container = buildah("from", "scratch")
    buildah("add", "--quiet", container, str(work / "root.tar"), "/")
    labels = [f"--label=org.opencontainers.image.{name}={value}" for name, value in LABELS.items()]
    buildah(
        "config",
        '--cmd=["trainprobe", "daemon"]',
        "--env=PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        *labels,
        container,
    )
    image = buildah("commit", "--quiet", "--rm", f"--timestamp={epoch}", container)
    compression = ("--compression-format=zstd", "--compression-level=19")
    target = f"oci-archive:{work / 'image.tar'}:trainprobe:{__version__}"
    buildah("push", "--quiet", *compression, image, target)


if __name__ == "__main__":
    sys.exit(main())
