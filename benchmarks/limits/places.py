"""Where runs take place: namespaces, cgroups, small file systems, what others left. All of it is given back."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TypeAlias

from benchmarks.advice.host import swap
from benchmarks.limits import fake_cuda
from benchmarks.limits.fake_nvml import built
from benchmarks.limits.groups import group, inside, memory
from benchmarks.stalls.host import CannotHere

TRAININGS = Path(__file__).parent / "trainings"
MARK = "TRAINPROBE_LIMITS"
"""Environment variable by which processes that outlive their trainer are found again."""
Prepared: TypeAlias = AbstractContextManager[Callable[[list[str]], list[str]]]
Place: TypeAlias = Callable[[Path], Prepared]
"""From a run's folder to a context that says how its command is to be wrapped there."""


def anywhere(_: Path) -> Prepared:
    return nullcontext(lambda command: command)


def wrapped(*front: str) -> Place:
    return lambda _: nullcontext(lambda command: [*front, *command])


def grouped(controller: str, file: str, limit: int) -> Place:
    """A cgroup (v1) with one limit."""

    @contextmanager
    def around(_: Path) -> Iterator[Callable[[list[str]], list[str]]]:
        with group(controller, f"trainprobe-limits-{os.getpid()}", file, limit) as made:
            yield lambda command: inside(made, command)

    return around


def swapping(limit: int) -> Place:
    """So much memory, and swap for what does not fit."""

    @contextmanager
    def around(_: Path) -> Iterator[Callable[[list[str]], list[str]]]:
        with swap(), memory(f"trainprobe-limits-{os.getpid()}", limit) as made:
            yield lambda command: inside(made, command)

    return around


def small_disk(size: int) -> Place:
    """``{disk}`` in the command is a directory with so many bytes."""

    @contextmanager
    def around(folder: Path) -> Iterator[Callable[[list[str]], list[str]]]:
        image, place = folder / "image", Path(tempfile.mkdtemp(dir=folder))
        with image.open("wb") as file:
            file.truncate(size)
        for command in (["mkfs.ext4", "-q", "-m", "0", str(image)], ["mount", "-o", "loop", str(image), str(place)]):
            if subprocess.run(command, check=False, capture_output=True).returncode:
                raise CannotHere(f"no file system can be made: {command[0]}")
        try:
            yield lambda command: [str(place) if word == "{disk}" else word for word in command]
        finally:
            subprocess.run(["umount", "--lazy", str(place)], check=True)

    return around


@contextmanager
def gpu_on_paper(folder: Path) -> Iterator[Callable[[list[str]], list[str]]]:
    """A driver for GPUs whose figures the training makes up."""
    library, state = built(folder / "nvml"), folder / "gpus"
    state.write_text("99 count 1\n")
    before = {name: os.environ.get(name) for name in ("LD_LIBRARY_PATH", "FAKE_NVML")}
    os.environ.update(LD_LIBRARY_PATH=str(library), FAKE_NVML=str(state))
    try:
        yield lambda command: command
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            os.environ.update({name: value} if value is not None else {})


@contextmanager
def cuda_on_paper(folder: Path) -> Iterator[Callable[[list[str]], list[str]]]:
    """The same, and ``{cuda}`` in the command is a folder with a libcudart for it."""
    libraries = fake_cuda.built(folder / "cuda")
    with gpu_on_paper(folder):
        yield lambda command: [str(libraries) if word == "{cuda}" else word for word in command]


def littered(sizes: list[int]) -> Place:
    """A /dev/shm in which a program that was killed left tensors of these sizes."""

    @contextmanager
    def around(folder: Path) -> Iterator[Callable[[list[str]], list[str]]]:
        shared = folder / "shm"
        shared.mkdir()
        if subprocess.run(["mount", "-t", "tmpfs", "none", str(shared)], check=False, capture_output=True).returncode:
            raise CannotHere("no tmpfs can be mounted")
        front = ["unshare", "--mount", "sh", "-c", f'mount --bind {shared} /dev/shm && exec "$@"', "sh"]

        def after_others(command: list[str]) -> list[str]:
            _killed_with_tensors([*front, command[0], str(TRAININGS / "dies.py"), *map(str, sizes)], str(folder))
            return [*front, *command]

        try:
            yield after_others
        finally:
            subprocess.run(["umount", "--lazy", str(shared)], check=True)

    return around


def _killed_with_tensors(command: list[str], mark: str) -> None:
    """torch's own manager of such files would remove them: it is killed first, as whoever kills a container does."""
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, env=os.environ | {MARK: mark}
    )
    assert process.stdout is not None
    if not process.stdout.readline():
        raise CannotHere(f"the program that leaves tensors behind ended with {process.wait()}")
    kill_marked(mark, first="torch_shm_manag")
    process.wait()
    process.stdout.close()


@contextmanager
def outlived(folder: Path) -> Iterator[Callable[[list[str]], list[str]]]:
    """A job that goes on for a while after its training, as one that tidies up does; what is left then is ended."""
    mark = str(folder)
    try:
        yield lambda command: ["env", f"{MARK}={mark}", "sh", "-c", '"$@"; sleep 30', "sh", *command]
    finally:
        kill_marked(mark)


def kill_marked(mark: str, first: str = "") -> None:
    """End the processes with this mark, those of one name before the others."""
    found = [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if _has(pid, mark)]
    for pid in sorted(found, key=lambda pid: _name(pid) != first):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        _await_end(pid)


def _await_end(pid: int) -> None:
    deadline = time.monotonic() + 5
    while Path(f"/proc/{pid}/exe").exists() and time.monotonic() < deadline:
        time.sleep(0.005)


def _has(pid: int, mark: str) -> bool:
    try:
        return f"{MARK}={mark}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""
