# SPDX-License-Identifier: Apache-2.0
"""Every way to write a file that trainings use: bytes exact, names absolute, errors kept."""

from __future__ import annotations

import errno
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kernel.observing import Observed, await_true, observe
from trainprobe.bpf.probes import Probes
from trainprobe.model.event import FileEventKind

OPENED, CLOSED, RENAMED = FileEventKind.OPENED, FileEventKind.CLOSED, FileEventKind.RENAMED
MB = 1 << 20
SETUP = "import os, sys\nfile, other = sys.argv[1:3]\nnew = os.O_WRONLY | os.O_CREAT | os.O_TRUNC\nMB = 1 << 20\n"

WRITERS = {
    "write": "f = open(file, 'wb', buffering=0)\nfor _ in range(3): f.write(bytes(MB))\nf.close()",
    "writev": "fd = os.open(file, new)\nos.writev(fd, [bytes(MB), bytes(2 * MB)])\nos.close(fd)",
    "pwrite64": "fd = os.open(file, new)\nfor i in range(3): os.pwrite(fd, bytes(MB), i * MB)\nos.close(fd)",
    "pwritev2": "fd = os.open(file, new)\nos.pwritev(fd, [bytes(MB)] * 3, 0)\nos.close(fd)",
    "sendfile": (
        "open(other, 'wb').write(bytes(3 * MB))\ni = os.open(other, os.O_RDONLY)\no = os.open(file, new)\n"
        "left = 3 * MB\nwhile left: left -= os.sendfile(o, i, None, left)\nos.close(o)"
    ),
    "copy_file_range": (
        "open(other, 'wb').write(bytes(3 * MB))\ni = os.open(other, os.O_RDONLY)\no = os.open(file, new)\n"
        "left = 3 * MB\nwhile left: left -= os.copy_file_range(i, o, left)\nos.close(o)"
    ),
    "dup": (
        "fd = os.open(file, new)\nd = os.dup(fd)\nos.write(fd, bytes(MB))\nos.close(fd)\n"
        "os.write(d, bytes(2 * MB))\nos.close(d)"
    ),
    "dup2": "fd = os.open(file, new)\nos.dup2(fd, 77)\nos.close(fd)\nos.write(77, bytes(3 * MB))\nos.close(77)",
    "read meanwhile": (
        "fd = os.open(file, new)\nos.write(fd, bytes(MB))\nr = os.open(file, os.O_RDONLY)\n"
        "os.dup2(os.open(other, new), os.dup(r))\nos.close(r)\nos.write(fd, bytes(2 * MB))\nos.close(fd)"
    ),
    "never closed": "fd = os.open(file, new)\nos.write(fd, bytes(3 * MB))",
    "truncate first": (
        "fd = os.open(file, os.O_RDWR | os.O_CREAT)\nos.truncate(fd, MB)\nos.write(fd, bytes(3 * MB))\nos.close(fd)"
    ),
}


@pytest.mark.parametrize("name", WRITERS)
def test_bytes_are_exact_and_told_once(probes: Probes, tmp_path: Path, name: str) -> None:
    path = str(tmp_path / "file")
    told = observe(probes, SETUP + WRITERS[name], path, str(tmp_path / "other"))
    assert told.status == 0
    assert told.written(path) == 3 * MB
    (opened,) = [e for e in told.files(OPENED) if e.path == path]
    (closed,) = [e for e in told.files(CLOSED) if e.path == path]
    assert opened.created
    assert (opened.dev, opened.ino) == (closed.dev, closed.ino)
    assert closed.ino == os.stat(path).st_ino
    assert opened.at_ns <= closed.at_ns
    assert closed.write_ns > 0


def test_a_file_that_a_reader_synced_is_closed_with_it(probes: Probes, tmp_path: Path) -> None:
    """As whoever makes sure of a checkpoint does behind its close."""
    path = str(tmp_path / "model.pt")
    body = (
        "fd = os.open(file, new)\nos.write(fd, bytes(3 * MB))\nos.close(fd)\n"
        "r = os.open(file, os.O_RDONLY)\nos.fsync(r)\nos.close(r)\nprint('there', flush=True)\nsys.stdin.readline()"
    )
    program = Observed.python(probes, SETUP + body, path, "").go()
    going, told = program.process.stdin, program.process.stdout
    assert going
    assert told
    assert told.readline() == "there\n"
    program.collect()
    assert [event for event in probes.open_files() if event.path == path] == []
    assert program.told.written(path) == 3 * MB
    going.write("\n")
    going.flush()
    assert program.finish().written(path) == 3 * MB


def test_rename_while_open_and_after_closing(probes: Probes, tmp_path: Path) -> None:
    """safetensors renames while the file is open, others after it is closed; both end under the final name.

    Relative names need the working directory, which is asked of the process while it lives: hence the sleep.
    """
    body = (
        "os.chdir(os.path.dirname(file))\nfd = os.open('.tmpAB12', new)\nos.ftruncate(fd, 2 * MB)\n"
        "os.write(fd, bytes(MB))\n"
        "os.rename('.tmpAB12', 'model.safetensors')\nos.write(fd, bytes(MB))\nos.fsync(fd)\nos.close(fd)\n"
        "import tempfile\nt, name = tempfile.mkstemp(dir='.')\nos.write(t, bytes(3 * MB))\nos.close(t)\n"
        "os.replace(name, 'last.ckpt')\nimport time\ntime.sleep(0.3)"
    )
    told = observe(probes, SETUP + body, str(tmp_path / "x"), "")
    assert told.status == 0
    first, second = (e for e in told.files(RENAMED) if e.path.startswith(str(tmp_path)))
    assert (first.path, first.new_path) == (str(tmp_path / ".tmpAB12"), str(tmp_path / "model.safetensors"))
    assert second.new_path == str(tmp_path / "last.ckpt")
    assert first.ino == os.stat(tmp_path / "model.safetensors").st_ino
    assert second.ino == os.stat(tmp_path / "last.ckpt").st_ino
    (closed,) = (e for e in told.files(CLOSED) if e.ino == first.ino)
    assert (closed.bytes, closed.path) == (2 * MB, str(tmp_path / "model.safetensors"))
    assert closed.sync_ns > 0
    assert closed.errno == first.errno == 0


def test_a_rename_to_another_file_system_fails_with_its_errno(probes: Probes, tmp_path: Path) -> None:
    """Lightning from $TMPDIR: EXDEV, then sendfile, then unlink."""
    shm = Path("/dev/shm")
    source = tmp_path / "from"
    if os.stat(shm).st_dev == os.stat(tmp_path).st_dev:
        pytest.skip("/dev/shm is on the file system of the temporary directory")
    body = "import shutil\nopen(file, 'wb').write(bytes(3 * MB))\nshutil.move(file, other)"
    target = shm / f"trainprobe-test-{os.getpid()}"
    try:
        told = observe(probes, SETUP + body, str(source), str(target))
        (renamed,) = (e for e in told.files(RENAMED) if e.path == str(source))
        assert renamed.errno == 18
        assert [e.path for e in told.files(FileEventKind.UNLINKED)] == [str(source)]
        assert told.written(str(target)) == 3 * MB, "in shared memory, what is written to is told"
    finally:
        target.unlink(missing_ok=True)


def test_an_inherited_descriptor_is_named(probes: Probes, tmp_path: Path) -> None:
    """stdout redirected to a file before we came: the first write names it."""
    path = tmp_path / "train.log"
    with path.open("wb") as log:
        told = observe(probes, "import os; os.write(2, b'x' * 10000)", stderr=log)
    (opened,) = told.files(OPENED)
    assert opened.path == str(path)
    assert told.written(str(path)) == 10000
    assert not opened.created


def test_an_inherited_descriptor_of_a_deleted_deep_path(probes: Probes, tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "c.log"
    path.parent.mkdir(parents=True)
    with path.open("wb") as log:
        path.unlink()
        told = observe(probes, "import os; os.write(2, b'x' * 10000)", stderr=log)
    (opened,) = told.files(OPENED)
    assert opened.path == str(path)


def test_a_log_opened_for_every_line_is_told_once_a_second(probes: Probes, small_disk: Path) -> None:
    path = str(small_disk / "events.log")  # lines that take a disk's time are told sooner
    body = "import time\nfor _ in range(60):\n    with open(file, 'a') as f: f.write('x' * 50)\n    time.sleep(0.05)"
    program = Observed.python(probes, SETUP + body, path, "").go()
    told = program.finish()
    time.sleep(2.1)
    probes.open_files()
    program.collect()
    closed = [e for e in told.files(CLOSED) if e.path == path]
    assert sum(e.bytes for e in closed) == 60 * 50
    assert sum(e.calls for e in closed) == 60
    slow = sum(e.write_ns + e.sync_ns + e.meta_ns >= 1e6 for e in closed)  # a line that took so long is told by itself
    assert len(closed) <= 6 + slow
    assert len([e for e in told.files(OPENED) if e.path == path]) <= 6 + slow
    assert slow < 30, "else little was tested"
    assert all(e.append for e in closed)


def test_a_small_file_ends_when_it_was_closed_though_it_is_told_later(probes: Probes, tmp_path: Path) -> None:
    """scheduler.pt beside optimizer.pt: 1 kB that takes no time."""
    body = (
        "import time\nfor name in (file, other):\n    with open(name, 'wb') as f: f.write(bytes(1500))\n"
        "    print(time.monotonic_ns(), flush=True)\ntime.sleep(0.4)"
    )
    program = Observed.python(probes, SETUP + body, str(tmp_path / "a"), str(tmp_path / "b")).go()
    told = program.finish()
    time.sleep(2.1)
    probes.open_files()
    program.collect()
    for name, after in zip("ab", told.output.split()):
        (closed,) = [e for e in told.files(CLOSED) if e.path == str(tmp_path / name)]
        assert closed.bytes == 1500
        assert 0 <= int(after) - closed.at_ns < 5e6


def test_small_saves_under_one_name_are_told_one_by_one(probes: Probes, tmp_path: Path) -> None:
    """criterion.pt of each epoch: opened anew and emptied, not a log's next line."""
    path = str(tmp_path / "criterion.pt")
    body = "import time\nfor _ in range(4):\n    with open(file, 'wb') as f: f.write(bytes(1300))\n    time.sleep(0.3)"
    program = Observed.python(probes, SETUP + body, path, "").go()
    told = program.finish()
    time.sleep(2.1)
    probes.open_files()
    program.collect()
    closed = [e for e in told.files(CLOSED) if e.path == path]
    assert [e.bytes for e in closed] == [1300] * 4
    assert all(e.at_ns - e.opened_ns < 50e6 for e in closed)


def test_a_new_file_that_gets_an_old_ones_inode_is_a_new_file(probes: Probes, tmp_path: Path) -> None:
    body = (
        "for i in range(5):\n    with open(f'{file}{i}', 'wb') as f: f.write(bytes(100))\n    os.unlink(f'{file}{i}')\n"
        "with open(file, 'wb') as f: f.write(bytes(3 * MB))"
    )
    path = str(tmp_path / "f")
    told = observe(probes, SETUP + body, path, "")
    assert told.written(path) == 3 * MB
    assert [e.path for e in told.files(OPENED)] == [*(f"{path}{i}" for i in range(5)), path]


def test_no_space_is_kept_though_the_writer_hides_it(probes: Probes, small_disk: Path) -> None:
    body = (
        "fd = os.open(file, new)\n"
        "try:\n    for _ in range(9): os.write(fd, bytes(MB))\nexcept OSError: pass\nos.close(fd)\n"
        "try: open(other, 'wb').write(bytes(MB))\nexcept OSError: pass"
    )
    path = small_disk / "ckpt.pt"
    told = observe(probes, SETUP + body, str(path), str(small_disk / "next"))
    (closed,) = (e for e in told.files(CLOSED) if e.path == str(path))
    assert closed.errno == 28
    assert closed.bytes == path.stat().st_size


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """4 MB that fill up, on a tmpfs of their own."""
    target = tmp_path / "disk"
    target.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "none", str(target)], check=False).returncode:
        pytest.skip("nothing can be mounted here")
    yield target
    subprocess.run(["umount", str(target)], check=True)


def test_what_goes_nowhere_is_not_told(probes: Probes) -> None:
    body = (
        "import os, socket\nr, w = os.pipe()\nos.write(w, b'x')\na, b = socket.socketpair()\n"
        "os.write(a.fileno(), b'x')\n"
        "os.write(os.memfd_create('m'), bytes(10000))\nopen('/dev/null', 'wb').write(bytes(10000))\n"
        "open('/proc/self/comm', 'w').write('x')"
    )
    told = observe(probes, body)
    assert told.status == 0
    assert told.files() == []


def test_in_shared_memory_a_checkpoint_on_its_way_is_told_and_a_tensor_is_not(probes: Probes, tmp_path: Path) -> None:
    body = (
        "import os, shutil\nopen('/dev/shm/torch_1_2', 'wb').write(b'x')\nos.unlink('/dev/shm/torch_1_2')\n"
        "open('/dev/shm/trainprobe-t', 'wb').write(bytes(10000))\n"
        f"shutil.move('/dev/shm/trainprobe-t', {str(tmp_path / 'step-1.pt')!r})\n"
        "import time; time.sleep(0.5)"  # its mounts are read meanwhile
    )
    told = observe(probes, body)
    assert told.status == 0
    assert not [event for event in told.files() if "torch_1_2" in event.path]
    written = [event for event in told.files() if event.path == "/dev/shm/trainprobe-t"]
    assert max(event.bytes for event in told.files() if event.ino == written[0].ino) == 10000
    (moved,) = [event for event in written if event.kind is FileEventKind.RENAMED]
    assert (moved.new_path, moved.errno) == (str(tmp_path / "step-1.pt"), errno.EXDEV)


def test_threads_and_children_write_too(probes: Probes, tmp_path: Path) -> None:
    body = (
        "import threading\n"
        "t = threading.Thread(target=lambda: open(file, 'wb').write(bytes(3 * MB)))\nt.start(); t.join()\n"
        "pid = os.fork()\nif pid == 0:\n    open(other, 'wb').write(bytes(3 * MB)); os._exit(0)\nos.wait()\nprint(pid)"
    )
    mine, childs = str(tmp_path / "thread"), str(tmp_path / "child")
    told = observe(probes, SETUP + body, mine, childs)
    assert told.written(mine) == told.written(childs) == 3 * MB
    by = {e.path: (e.pid, e.tid) for e in told.files(CLOSED)}
    assert by[mine][0] == told.pid
    assert by[mine][1] != told.pid
    assert by[childs] == (int(told.output), int(told.output))


def test_a_file_in_progress_shows_its_bytes_and_the_call_in_flight(probes: Probes, tmp_path: Path) -> None:
    path = str(tmp_path / "file")
    body = "fd = os.open(file, new)\nos.write(fd, bytes(MB))\nsys.stdin.readline()"
    program = Observed.python(probes, SETUP + body, path, "").go()
    try:
        await_true(
            lambda: [e for e in probes.open_files() if e.path == path and e.bytes == MB] or (program.collect() and 0),
            "it",
        )
        (event,) = (e for e in probes.open_files() if e.path == path)
        assert event.kind is FileEventKind.PROGRESS
        assert event.pid == program.pid
    finally:
        program.process.kill()
        told = program.finish()
    assert told.written(path) == MB, "killed, and its totals are told"


def test_a_row_names_no_file_that_was_not_told_before(probes: Probes, tmp_path: Path) -> None:
    body = "for i in range(6):\n    with open(f'{file}{i}', 'wb') as f: f.write(bytes(MB))"
    told = observe(probes, SETUP + body, str(tmp_path / "f"), "")
    opened = {(e.dev, e.ino): e.at_ns for e in told.files(OPENED)}
    row = told.last_row
    assert len(row.files) == 4
    named = [f for f in row.files if f.ino]
    assert len(named) == 3
    assert all(opened[f.dev, f.ino] <= row.at_ns for f in named)
    assert sum(f.bytes for f in row.files) == 6 * MB
    assert row.files[-1].ino == 0


AGAIN = """
log = os.open(other, new)
os.write(log, bytes(MB))
print("there", flush=True)
sys.stdin.readline()
fd = os.open(file, new)
os.write(fd, bytes(MB))
os.close(log)
os.write(fd, bytes(2 * MB))
os.close(fd)
print("closed", flush=True)
sys.stdin.readline()
"""


def test_of_a_process_that_is_watched_again_each_file_has_its_end(probes: Probes, tmp_path: Path) -> None:
    path = str(tmp_path / "model.pt")
    program = Observed.python(probes, SETUP + AGAIN, path, str(tmp_path / "log")).go()
    going, told = program.process.stdin, program.process.stdout
    assert going
    assert told
    assert told.readline() == "there\n"
    program.collect()
    probes.unwatch(program.pid)
    probes.watch(program.pid)
    going.write("\n")
    going.flush()
    assert told.readline() == "closed\n"
    program.collect()
    assert program.told.written(path) == 3 * MB, "before the process ends"
    going.write("\n")
    going.flush()
    assert program.finish().written(path) == 3 * MB


LIBAIO = """
import ctypes, mmap
libc = ctypes.CDLL(None, use_errno=True)
context = ctypes.c_ulong(0)
assert libc.syscall(206, 8, ctypes.byref(context)) == 0
class Iocb(ctypes.Structure):
    _fields_ = [("data", ctypes.c_uint64), ("key", ctypes.c_uint32), ("rw", ctypes.c_uint32), ("op", ctypes.c_uint16),
        ("prio", ctypes.c_int16), ("fd", ctypes.c_uint32), ("buf", ctypes.c_uint64), ("n", ctypes.c_uint64),
        ("off", ctypes.c_int64), ("r2", ctypes.c_uint64), ("flags", ctypes.c_uint32), ("resfd", ctypes.c_uint32)]
fd = os.open(file, new)
page = mmap.mmap(-1, MB)
buffer = ctypes.addressof(ctypes.c_char.from_buffer(page))
blocks = [Iocb(op=1, fd=fd, buf=buffer, n=MB, off=i * MB) for i in range(3)]
pointers = (ctypes.c_void_p * 3)(*[ctypes.addressof(b) for b in blocks])
assert libc.syscall(209, context, ctypes.c_long(3), pointers) == 3
events = ctypes.create_string_buffer(32 * 8)
assert libc.syscall(208, context, ctypes.c_long(3), ctypes.c_long(8), events, None) == 3
os.close(fd)
"""


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="system call numbers of x86-64")
def test_libaio(probes: Probes, tmp_path: Path) -> None:
    """DeepSpeed's fast engine: the bytes are in io_submit."""
    path = str(tmp_path / "file")
    told = observe(probes, SETUP + LIBAIO, path, "")
    assert told.status == 0
    assert told.written(path) == 3 * MB


def test_files_whose_names_differ_far_behind_are_told_apart(probes: Probes, tmp_path: Path) -> None:
    """A sweep's folders are named after its settings; a checkpoint is written beside its name, then renamed."""
    folder = tmp_path / ",".join(f"model.layer_{at}.p=0.{at}" for at in range(9)) / ("optimizer.lr=0.001," * 5)
    folder.mkdir(parents=True)
    model, optimizer = str(folder / "model.pth"), str(folder / "optimizer.pth")
    assert 255 < len(str(folder)) < len(optimizer) + len(".tmp") < 512
    body = (
        "for name, size in ((file, 3 * MB), (other, 2 * MB)):\n    fd = os.open(name + '.tmp', new)\n"
        "    os.write(fd, bytes(size))\n    os.close(fd)\n    os.rename(name + '.tmp', name)"
    )
    told = observe(probes, SETUP + body, model, optimizer)
    assert told.status == 0
    assert [e.path for e in told.files(OPENED)] == [f"{model}.tmp", f"{optimizer}.tmp"]
    renamed = [(e.path, e.new_path, e.ino) for e in told.files(RENAMED)]
    assert renamed == [(f"{name}.tmp", name, os.stat(name).st_ino) for name in (model, optimizer)]
    assert [(e.ino, e.bytes) for e in told.files(CLOSED)] == [(renamed[0][2], 3 * MB), (renamed[1][2], 2 * MB)]


def test_a_path_as_long_as_the_kernel_takes_it_is_counted_under_its_own_name(probes: Probes, tmp_path: Path) -> None:
    """With everything in it that a name may hold; what is left out of its middle is no other file's name."""
    part = 'e\n"}\\\x1b[2J' + "x" * 190
    room = 4095 - len(os.fsencode(tmp_path)) - len("/model.pt")
    deep = "/".join([part] * (room // (len(part) + 1)))
    body = (
        "fd = os.open(other, os.O_PATH)\nfor name in file.split('/')[:-1]:\n    os.mkdir(name, dir_fd=fd)\n"
        "    fd = os.open(name, os.O_PATH, dir_fd=fd)\n"
        "whole = other + '/' + file\nassert len(whole) > 3800\nf = os.open(whole, new)\nos.write(f, bytes(3 * MB))\n"
        "os.close(f)\nprint(os.stat(whole).st_ino)"
    )
    told = observe(probes, SETUP + body, f"{deep}/model.pt", str(tmp_path))
    assert told.status == 0
    (closed,) = [e for e in told.files(CLOSED) if e.ino == int(told.output)]
    assert closed.bytes == 3 * MB
    assert len(closed.path) <= 4096
    assert f"{tmp_path}/{deep}/model.pt".startswith(closed.path.partition("…")[0])
