"""Real trainings that run out of something: warned of before, explained at once, with the other reasons ruled out."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.limits.groups import group, inside, memory
from benchmarks.programs import ROOT, environment, trainprobe
from benchmarks.stalls.host import CannotHere

PROGRAM = ROOT / "benchmarks" / "limits" / "trainings" / "exhaust.py"
MB = 1 << 20
SPACES = ("unshare", "--pid", "--mount", "--cgroup", "--fork", "--kill-child", "--mount-proc")
"""For pids, mounts and cgroups: a container in all but name."""


def watch(folder: Path, *command: str) -> tuple[int, dict[str, Any], str]:
    """Exit code, the one rank of the report, and stderr of a command under observation."""
    report = folder / "report.json"
    ended = subprocess.run(
        trainprobe("run", "-o", str(report), "--record", str(folder / "recording.jsonl"), "--", *command),
        capture_output=True, text=True, timeout=90, env=environment(), check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert report.exists(), ended.stderr
    (run,) = json.loads(report.read_text())["runs"]
    (rank,) = run["ranks"]
    return ended.returncode, rank | {"run": run}, ended.stderr


def training(torch_python: str, *arguments: object) -> list[str]:
    return [torch_python, str(PROGRAM), *map(str, arguments)]


def told(rank: dict[str, Any], cause: str) -> list[dict[str, Any]]:
    return [warning for warning in rank["warnings"] if warning["cause"] == cause]


def evidence(warning: dict[str, Any]) -> str:
    return "\n".join(
        f"{item['what']}: {item['value']:.0f} {item['unit']}"
        if isinstance(item["value"], (int, float))
        else f"{item['what']}: {item['value']}"
        for item in warning["evidence"]
    )


def rooms(recording: Path, directory: str) -> list[int]:
    """Bytes that were seen free in a directory of the training's, at each look."""
    frames = (json.loads(line) for line in recording.read_text().splitlines()[1:])
    looks = (look for frame in frames for look in frame.get("spaces", ()))
    return [look["available_bytes"] for look in looks if look["path"] == directory]


@pytest.fixture
def memory_group() -> Iterator[tuple[Path, int]]:
    """A memory cgroup below our own: (its directory, its limit)."""
    limit = random.randrange(700, 900) * MB
    try:
        with memory(f"trainprobe-test-{os.getpid()}", limit) as made:
            yield made, limit
    except CannotHere as reason:
        pytest.skip(str(reason))


@pytest.mark.timeout(120)
def test_a_leak_is_seen_coming_and_the_kill_explained(
    tmp_path: Path, torch_python: str, memory_group: tuple[Path, int]
) -> None:
    made, limit = memory_group
    command = training(torch_python, "--leak-bytes", random.randrange(900_000, 1_600_000), "--steps", 2000)
    code, rank, said = watch(tmp_path, *inside(made, command))
    assert code == 128 + signal.SIGKILL, said
    assert (rank["verdict"]["kind"], rank["verdict"]["cause"]) == ("end", "oom_kill"), rank["verdict"]
    assert rank["memory"]["limit_scope"] == "cgroup"
    assert rank["run"]["oom_kills"] == {"cgroup": 1}
    before, after = told(rank, "oom_kill")
    assert "grows by" in before["summary"]
    assert "the training" in before["summary"]
    assert made.name in before["summary"]
    assert "was killed for want of memory: the limit of its cgroup" in after["summary"]
    assert f"limit of the cgroup {str(made).removeprefix('/sys/fs/cgroup/memory')}: {limit} bytes" in evidence(after)
    assert "the victim held" in evidence(after)
    assert "the training" in evidence(after), "who held what"


@pytest.mark.timeout(120)
def test_batches_that_are_kept_use_up_the_descriptors(tmp_path: Path, torch_python: str) -> None:
    limit = random.randrange(250, 350)
    command = training(torch_python, "--keep", "--descriptors", limit, "--steps", 5000, "--pause", 0.12)
    code, rank, said = watch(tmp_path, *command)
    assert code == 1, said
    assert (rank["verdict"]["kind"], rank["verdict"]["cause"]) == ("end", "fd_exhaustion"), (rank["verdict"], said)
    warnings = told(rank, "fd_exhaustion")
    coming = [warning for warning in warnings if "none is left in" in warning["summary"]]
    happened = [warning for warning in warnings if "ran out of file descriptors" in warning["summary"]]
    assert coming, "it was seen coming"
    assert happened
    assert "tensors in shared memory" in happened[0]["summary"]
    assert f"limit (RLIMIT_NOFILE): {limit}" in evidence(happened[0])
    assert "/dev/shm is not the reason" in evidence(happened[0])
    assert "file_system" in " ".join(happened[0]["advice"])
    assert rank["fds"]["limit"] == limit
    assert sum(rank["counters"]["fd_errors"].values()) >= 1


@pytest.mark.timeout(120)
def test_a_small_shared_memory_is_told_from_few_descriptors(tmp_path: Path, torch_python: str) -> None:
    size = random.randrange(24, 40)
    command = training(torch_python, "--width", 60_000, "--batch", 32, "--prefetch", 8, "--pause", 0.3)
    inside = f'mount -t tmpfs -o size={size}m none /dev/shm && exec "$@"'
    code, rank, said = watch(tmp_path, "unshare", "--mount", "sh", "-c", inside, "sh", *command)
    assert code == 1, said
    assert (rank["verdict"]["kind"], rank["verdict"]["cause"]) == ("end", "shm_exhaustion"), (rank["verdict"], said)
    (happened,) = [w for w in told(rank, "shm_exhaustion") if "ran out of /dev/shm" in w["summary"]]
    assert happened["summary"].startswith("worker ")
    assert f"/dev/shm size: {size * MB} bytes" in evidence(happened)
    assert "file descriptors are not the reason" in evidence(happened)
    assert rank["counters"]["shm_size_bytes"] == size * MB
    assert rank["counters"]["shm_errors"] >= 1


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    image, place = tmp_path / "image", tmp_path / "disk"
    with image.open("wb") as file:
        file.truncate(random.randrange(90, 130) * MB)
    place.mkdir()
    for command in (["mkfs.ext4", "-q", "-m", "0", str(image)], ["mount", "-o", "loop", str(image), str(place)]):
        if subprocess.run(command, check=False, capture_output=True).returncode:
            pytest.skip(f"no file system can be made: {command[0]}")
    yield place
    subprocess.run(["umount", str(place)], check=True)


@pytest.mark.timeout(120)
def test_a_disk_without_room_is_told_before_and_after(tmp_path: Path, torch_python: str, small_disk: Path) -> None:
    size = random.randrange(28, 36) * MB
    save = ("--save", small_disk, "--save-bytes", size, "--every", 150)
    code, rank, said = watch(tmp_path, *training(torch_python, *save, "--workers", 0, "--steps", 1000))
    assert code == 1, said
    assert (rank["verdict"]["kind"], rank["verdict"]["cause"]) == ("end", "disk_full"), (rank["verdict"], said)
    (coming,) = [w for w in told(rank, "disk_full") if "will not fit" in w["summary"]]
    (happened,) = [w for w in told(rank, "disk_full") if "failed with ENOSPC" in w["summary"]]
    assert coming["time"] < happened["time"]
    failed = [save for save in rank["checkpoints"] if save["error"] == "ENOSPC"]
    assert [save["path"] for save in failed] == [item["path"] for item in happened["evidence"][:1]]
    assert "do not resume from this file" in happened["summary"]


@pytest.mark.timeout(120)
def test_in_a_container_every_figure_is_the_containers(tmp_path: Path, torch_python: str) -> None:
    """Namespaces for pids, mounts and cgroups, and a cgroup whose name is a container's: what docker makes of it."""
    limit, size = random.randrange(1500, 2500) * MB, random.randrange(300, 500) * MB
    container = random.randbytes(32).hex()
    room, saved = random.randrange(200, 400) * MB, random.randrange(8, 20) * MB
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = f'mount -t tmpfs -o size={size} none /dev/shm && mount -t tmpfs -o size={room} none {disk} && exec "$@"'
    width, batch = random.randrange(2_000, 9_000), random.randrange(8, 33)
    own = ("--steps", 150, "--descriptors", 777, "--width", width, "--batch", batch)
    own += ("--save", disk, "--save-bytes", saved, "--every", 60)
    command = [*SPACES, "sh", "-c", mounted, "sh", *training(torch_python, *own)]
    try:
        with memory(container, limit) as made:
            code, rank, said = watch(tmp_path, *inside(made, command))
    except CannotHere as reason:
        pytest.skip(str(reason))
    assert code == 0, said
    assert rank["container_pid"] == 1, "the first process of its pid namespace"
    assert rank["pid"] > 1
    assert rank["run"]["labels"]["container"] == container
    page = 4096  # what the kernel rounds limits to
    assert (rank["memory"]["limit_scope"], abs(rank["memory"]["limit_bytes"] - limit) < page) == ("cgroup", True)
    assert 0 < rank["memory"]["pss_peak_bytes"] < limit
    assert abs(rank["counters"]["shm_size_bytes"] - size) < page, "its /dev/shm, not the host's"
    assert rank["fds"]["limit"] == 777
    assert rank["workers"]["started"] == 1
    of_batch = 4 * width * batch + page  # the samples, and a page for their labels
    assert abs(rank["memory"]["shm_bytes_per_batch"] / of_batch - 1) < 0.1, rank["memory"]
    assert rank["steps"]["count"] > 100
    assert [save["path"] for save in rank["checkpoints"]] == [f"{disk}/step-59.pt", f"{disk}/step-119.pt"]
    left = rooms(tmp_path / "recording.jsonl", str(disk))
    assert left, "its room was looked at while it went on"
    assert all(room - 2 * saved - MB < one < room for one in left), (room, saved, left)
    assert rank["warnings"] == []


@pytest.mark.timeout(120)
def test_in_a_container_it_is_the_containers_number_of_threads(tmp_path: Path, torch_python: str) -> None:
    """Far below the host's and the user's; the event says whose limit it was."""
    container, limit = random.randbytes(32).hex(), random.randrange(90, 200)
    command = [*SPACES, *training(torch_python, "--threads", "--steps", 3000)]
    try:
        with group("pids", container, "pids.max", limit) as made:
            code, rank, said = watch(tmp_path, *inside(made, command))
    except CannotHere as reason:
        pytest.skip(str(reason))
    assert code == 1, said
    assert (rank["verdict"]["kind"], rank["verdict"]["cause"]) == ("end", "pid_exhaustion"), (rank["verdict"], said)
    assert (rank["container_pid"], rank["run"]["labels"]["container"]) == (1, container)
    (happened,) = [warning for warning in told(rank, "pid_exhaustion") if "could not start" in warning["summary"]]
    figures = {item["what"]: item for item in happened["evidence"]}
    assert figures["pids.max"]["value"] == limit
    assert figures["pids.max"]["path"].endswith(container)
    assert 0.95 * limit <= figures["threads and processes in the cgroup"]["value"] <= limit
    assert container in happened["summary"]
