"""The image: daemon and exporter as two containers find the training of another user in a third one."""

from __future__ import annotations

import json
import re
import shutil
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from image import build
from tests.systemd.booted import _have_tracefs
from tests.systemd.containers import Containers

URL = "http://127.0.0.1:19752/metrics"
TRAINING = Path(__file__).parents[1] / "observability" / "stalling_training.py"
OWNER = 61184
ARCHIVE = build.archive(build.DIST)

pytestmark = [
    pytest.mark.timeout(600),
    # Built by `make image`, else by the test itself in `make nightly`.
    *([] if ARCHIVE.exists() else [pytest.mark.nightly]),
    pytest.mark.skipif(shutil.which("podman") is None, reason="no podman here"),
]


def metrics() -> str:
    try:
        with urllib.request.urlopen(URL, timeout=5) as answer:
            return str(answer.read().decode())
    except OSError:
        return ""


def until_exported(expected: str, seconds: float) -> float:
    """How long it took."""
    begun = time.monotonic()
    while not re.search(expected, text := metrics(), re.MULTILINE):
        assert time.monotonic() < begun + seconds, text
        time.sleep(0.05)
    return time.monotonic() - begun


@dataclass(frozen=True)
class Pair:
    containers: Containers
    image: str
    published: Path
    first_metrics_seconds: float
    """From the moment at which both containers had been started."""


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    _have_tracefs()
    with Containers() as containers:
        image = containers.load(ARCHIVE if ARCHIVE.exists() else build.built(build.DIST, build.source_date())[0])
        # As Kubernetes makes an emptyDir.
        published, state = (containers.directory(name, 0, 0, 0o777) for name in ("published", "state"))
        containers.daemon(image, published, state)
        containers.exporter(image, published, state)
        waited = until_exported(r"^trainprobe_report_timestamp_seconds \d", 30)
        yield Pair(containers, image, published, waited)


def test_the_first_metrics_come_soon(pair: Pair) -> None:
    """From the start of the exporter, on a machine that has nothing else to do."""
    assert pair.first_metrics_seconds < 3


def test_a_training_of_another_user_in_another_container_is_found(pair: Pair, torch_python: str) -> None:
    environment = Path(torch_python).parents[1]
    assert sys.base_prefix == "/usr", "the image's own Python runs the packages of this one"
    place = pair.containers.directory("training", OWNER, OWNER)
    shutil.copy(TRAINING, place / "train.py")
    pair.containers.podman(
        "run", "--rm", "--name=training", "--network=none", "--cap-drop=all", f"--user={OWNER}:{OWNER}",
        f"--volume={environment}:{environment}:ro", f"--volume={place}:/training", pair.image,
        torch_python, "/training/train.py", "/training", "9", "checkpoint=1.5",
    )  # fmt: skip
    # Less than its 1.5 seconds where other programs take the CPU meanwhile.
    until_exported(r'^trainprobe_stall_seconds_total{run="train.py-.*cause="checkpoint"} (0\.[4-9]|[1-9])', 10)
    run = json.loads((pair.published / "report.json").read_text())["runs"][-1]
    assert re.fullmatch("[0-9a-f]{64}", run["labels"]["container"])
    own = pair.published / "users" / f"{OWNER}.json"
    assert json.loads(own.read_text())["runs"][-1]["run"] == run["run"]


def test_the_daemon_has_four_capabilities_and_the_exporter_none(pair: Pair) -> None:
    for name, count in (("daemon", 4), ("exporter", 0)):
        pid = pair.containers.podman("inspect", "--format={{.State.Pid}}", name)
        status = Path(f"/proc/{pid}/status").read_text()
        assert [int(mask, 16).bit_count() for mask in re.findall(r"Cap(?:Eff|Bnd):\t(\w+)", status)] == [count, count]
        assert pair.containers.podman("exec", name, "sh", "-c", "touch /usr/x 2>/dev/null || echo no") == "no"


def test_neither_has_anything_to_complain_of(pair: Pair) -> None:
    assert pair.containers.logs("daemon") == ""
    assert pair.containers.logs("exporter") == "listening on http://127.0.0.1:19752"
