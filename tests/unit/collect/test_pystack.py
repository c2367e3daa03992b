from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from benchmarks import pace
from tests.builders.waiting import wait_until
from trainprobe.collect import cost, pystack
from trainprobe.collect.confine import confinement
from trainprobe.collect.procfs import Proc
from trainprobe.collect.pystack import LIMIT_NS, UNREAD, PyStack, find, read_dump
from trainprobe.collect.source import Unavailable
from trainprobe.model.event import PythonThread, StackSeen
from trainprobe.model.moment import NS

OWN = os.getpid()


def frame(name: str, line: int, file: str = "/home/a/train.py") -> dict[str, object]:
    return {"name": name, "filename": file, "line": line}


def thread(tid: int | None, name: str, *frames: dict[str, object]) -> dict[str, object]:
    return {"os_thread_id": tid, "thread_name": name, "frames": list(frames)}


def wait(stacks: PyStack) -> StackSeen:
    """The answer, while time passes for the stacks as for us."""
    return wait_until(lambda: stacks.poll(time.monotonic_ns()))


def ended(stacks: PyStack) -> StackSeen:
    """The answer of a child that ends, however long a busy machine takes for it."""
    return wait_until(lambda: stacks.poll(0))


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A child that is killed has as long to end as a busy machine takes."""
    monkeypatch.setattr(pystack, "ENDING_SECONDS", 10.0)


def script(path: Path, text: str) -> str:
    path.write_text("#!/bin/sh\n" + textwrap.dedent(text))
    path.chmod(0o755)
    return str(path)


def test_frames_are_outermost_first_with_short_file_names() -> None:
    dump = json.dumps([thread(9, "T"), thread(8, "MainThread", frame("save", 88), frame("<module>", 3))])
    assert read_dump(dump.encode(), 5, 8, 8) == StackSeen(5, 8, 8, ("<module> (train.py:3)", "save (train.py:88)"))


def test_other_python_threads_are_told_with_their_innermost_frame() -> None:
    threads = [
        thread(8, "MainThread", frame("get", 9)),
        thread(9, "L", frame("decode", 31), frame("run", 1)),
        thread(7, "X"),
    ]
    seen = read_dump(json.dumps([*threads, thread(None, "N", frame("a", 1))]).encode(), 5, 8, 8)
    assert seen.others == (PythonThread(9, "decode (train.py:31)"),)


def test_a_librarys_thread_is_told_with_the_users_function_that_called_it() -> None:
    library = {"name": "readinto", "filename": "/usr/lib/python3.11/socket.py", "line": 706}
    threads = [
        thread(8, "MainThread", frame("get", 9)),
        thread(9, "L", library, frame("produce", 20), frame("<module>", 1)),
        thread(7, "T", library),
    ]
    inner = "readinto (python3.11/socket.py:706)"
    seen = read_dump(json.dumps(threads).encode(), 5, 8, 8)
    assert seen.others == (PythonThread(9, inner, "produce (train.py:20)"), PythonThread(7, inner))


def test_the_main_thread_is_found_where_thread_ids_are_unknown() -> None:
    dump = json.dumps([thread(None, "T", frame("x", 1)), thread(None, "MainThread", frame("y", 2))]).encode()
    assert read_dump(dump, 5, 8, 8).frames == ("y (train.py:2)",)
    assert read_dump(dump, 5, 8, 9) == StackSeen(5, 8, 9, (), "py-spy does not know the thread")


@pytest.mark.parametrize(
    "data", [b"", b"{}", b"null", b"[" * 100_000, b"\xff", b"[1, {}]", b'[{"frames": 5, "os_thread_id": 8}]']
)
def test_any_answer_is_survived(data: bytes) -> None:
    seen = read_dump(data, 5, 8, 8)
    assert seen.frames == ()
    assert seen.reason


def test_hostile_names_are_bounded() -> None:
    dump = json.dumps([thread(8, "MainThread", *[frame("n" * 9999, 1, "f" * 9999)] * 500)]).encode()
    seen = read_dump(dump, 5, 8, 8)
    assert len(seen.frames) <= 64
    assert max(map(len, seen.frames)) < 300


def test_switched_off_is_the_reason() -> None:
    stacks = PyStack(enabled=False)
    assert isinstance(stacks.trouble(5), Unavailable)
    assert stacks.start(8, 8, 5)
    assert ended(stacks) == StackSeen(5, 8, 8, (), "Python stacks are switched off")
    assert stacks.poll(6) is None


def test_switched_off_later_drops_the_one_under_way(tmp_path: Path) -> None:
    stacks = PyStack(path=script(tmp_path / "py-spy", "sleep 60"))
    assert stacks.trouble(5) is None
    assert stacks.start(os.getpid(), os.getpid(), 5)
    stacks.switch_off()
    assert stacks.poll(6) is None
    assert stacks.trouble(6) == PyStack(enabled=False).trouble(6)
    wait_until(lambda: stacks.start(8, 8, 7, "another run"))  # the killed child may end late
    assert ended(stacks) == StackSeen(7, 8, 8, (), "Python stacks are switched off")


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    outcome = find(str(tmp_path / "py-spy"))
    assert isinstance(outcome, Unavailable)
    assert outcome.remedy


@pytest.mark.usefixtures("patient")
def test_one_at_a_time_three_in_a_row_and_then_one_in_five_seconds_for_a_run(tmp_path: Path) -> None:
    stacks = PyStack(path=script(tmp_path / "py-spy", "echo '[]'"))
    now = time.monotonic_ns()

    def taken(seconds: float, run: str) -> bool:
        begun = stacks.start(OWN, OWN, now + int(seconds * NS), run)
        if begun:
            ended(stacks)
        return begun

    assert stacks.start(OWN, OWN, now, "a")
    assert not stacks.start(OWN, OWN, now, "b")
    ended(stacks)
    assert [taken(0.1 * number, "a") for number in range(1, 4)] == [True, True, False]
    assert taken(0.4, "b")
    assert [taken(5.0 * number + extra, "a") for number in (1, 2) for extra in (0.0, 4.9)] == [True, False] * 2
    assert [taken(60 + number, "a") for number in range(5)] == [True] * 3 + [False] * 2
    stacks.close()


@pytest.mark.usefixtures("patient")
def test_one_that_could_not_be_read_is_taken_again_once(tmp_path: Path) -> None:
    stacks = PyStack(path=script(tmp_path / "py-spy", "exit 1"))
    now = time.monotonic_ns()
    begun = 0
    for _ in range(6):
        if stacks.start(OWN, OWN, now, "a"):
            assert ended(stacks).reason == UNREAD
            begun += 1
    assert begun == 4, "three in a row, and the first that was for nothing"
    stacks.close()


@pytest.mark.usefixtures("patient")
@pytest.mark.skipif(os.geteuid() != 0, reason="needs another user's process")
def test_the_owner_who_has_waited_longest_is_first_however_many_threads_another_has(tmp_path: Path) -> None:
    stacks = PyStack(path=script(tmp_path / "py-spy", "echo '[]'"))
    now = time.monotonic_ns()
    with subprocess.Popen(["/bin/sleep", "60"], user=65534, group=65534, extra_groups=[]) as other:
        late = [*((OWN, tid) for tid in range(1, 9)), (other.pid, other.pid)]
        firsts = []
        for turn in range(4):
            first, *_ = stacks.in_turn(late)
            assert stacks.start(*first, now + turn * 10 * NS, f"run of {first[0]}")
            assert stacks.in_turn(late) == (), "one is under way"
            ended(stacks)
            firsts.append(first[0])
        other.kill()
    stacks.close()
    assert firsts == [OWN, other.pid, OWN, other.pid]


@pytest.mark.usefixtures("patient")
def test_a_child_that_takes_too_long_is_killed(tmp_path: Path) -> None:
    proc = Proc()
    stacks = PyStack(path=script(tmp_path / "py-spy", "exec sleep 60"), proc=proc)
    proc.stat(OWN)
    others = set(proc.children(OWN))
    began = time.monotonic_ns()
    assert stacks.start(OWN, OWN, began)
    assert len(set(proc.children(OWN)) - others) == 1
    assert "longer than 200 ms" in wait(stacks).reason
    assert time.monotonic_ns() - began < LIMIT_NS * 3
    assert stacks.fileno() is None
    assert set(proc.children(OWN)) <= others


@pytest.mark.usefixtures("patient")
def test_a_child_that_took_too_long_has_more_time_the_next_time(tmp_path: Path) -> None:
    stacks = PyStack(path=script(tmp_path / "py-spy", "exec sleep 60"))
    now = time.monotonic_ns()
    tries = [("a", 0, 1), ("a", 5 * NS, 2), ("a", 10 * NS, 4), ("a", 15 * NS, 4), ("b", 0, 1)]
    for run, later_ns, limits in tries:
        begun = now + later_ns
        assert stacks.start(OWN, OWN, begun, run)
        assert stacks.poll(begun + limits * LIMIT_NS - 1) is None
        seen = stacks.poll(begun + limits * LIMIT_NS)
        assert seen
        assert seen.late
        assert f"longer than {limits * 200} ms" in seen.reason
    stacks.close()


@pytest.mark.usefixtures("patient")
def test_what_a_stack_costs_is_counted_apart(tmp_path: Path) -> None:
    stacks = PyStack(path=script(tmp_path / "py-spy", "i=0; while [ $i -lt 100000 ]; do i=$((i + 1)); done; echo '[]'"))
    before = cost.read(stacks=stacks.cpu_seconds)
    assert before.stacks_seconds == 0.0
    stacks.start(OWN, OWN, time.monotonic_ns())
    ended(stacks)
    after = cost.read(stacks=stacks.cpu_seconds)
    assert after.stacks_seconds is not None
    assert 0.01 < after.stacks_seconds <= after.cpu_seconds - before.cpu_seconds
    stacks.close()


@pytest.mark.usefixtures("patient")
def test_a_child_that_writes_without_end_is_killed(tmp_path: Path) -> None:
    stacks = PyStack(path=script(tmp_path / "py-spy", "exec yes"))
    stacks.start(OWN, OWN, time.monotonic_ns())
    assert "too large" in ended(stacks).reason


@pytest.mark.usefixtures("patient")
def test_closing_leaves_no_child(tmp_path: Path) -> None:
    proc = Proc()
    stacks = PyStack(path=script(tmp_path / "py-spy", "exec sleep 60"), proc=proc)
    proc.stat(OWN)
    others = set(proc.children(OWN))
    stacks.start(OWN, OWN, time.monotonic_ns())
    stacks.close()
    assert set(proc.children(OWN)) <= others


class Unkillable(subprocess.Popen[bytes]):
    """As a child that waits for a file system in the kernel: SIGKILL does not end it."""

    def kill(self) -> None:
        pass


class StacksThatHang(PyStack):
    """Its children read nothing, write nothing, and do not end before ``free``."""

    hung: Unkillable

    def _spawn(self, program: str, pid: int, uid: int, gid: int) -> subprocess.Popen[bytes]:
        self.hung = Unkillable(["/bin/cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        return self.hung

    def free(self) -> None:
        assert self.hung.stdin
        self.hung.stdin.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs another user's process")
def test_a_child_that_cannot_be_killed_is_not_waited_for(tmp_path: Path) -> None:
    stacks = StacksThatHang(path=script(tmp_path / "py-spy", "exec sleep 60"))
    now = time.monotonic_ns()
    with subprocess.Popen(["/bin/sleep", "60"], user=65534, group=65534, extra_groups=[]) as other:
        assert stacks.start(OWN, OWN, now)
        began = time.monotonic()
        assert stacks.poll(now + LIMIT_NS)
        assert pace.within(time.monotonic() - began, 0.1)
        killed = now + LIMIT_NS
        assert stacks.trouble(killed + NS - 1) is None
        hung = stacks.trouble(killed + NS)
        assert hung
        assert f"(process {stacks.hung.pid}) cannot be killed while it reads process {OWN}" in str(hung.reason)
        assert f"end process {OWN}" in str(hung.remedy)
        assert not stacks.start(OWN, OWN, killed + NS, "another run"), "the same user's"
        first, later = stacks.hung, killed + 2 * NS
        assert stacks.start(other.pid, other.pid, later, "another run"), "another user's"
        stacks.free()
        assert stacks.poll(later + LIMIT_NS)
        assert first.stdin
        first.stdin.close()
        end = time.monotonic() + 5
        while stacks.trouble(later + 2 * NS) and time.monotonic() < end:
            time.sleep(0.005)
            stacks.poll(later + 2 * NS)
        assert stacks.trouble(later + 2 * NS) is None
        assert stacks.start(OWN, OWN, later + 9 * NS), "again"
        stacks.free()
        other.kill()
    began = time.monotonic()
    stacks.close()
    assert pace.within(time.monotonic() - began, 0.1)
    stacks.hung.wait(5)


def test_a_process_that_is_gone_is_the_reason(tmp_path: Path) -> None:
    stacks = PyStack(path=script(tmp_path / "py-spy", "echo '[]'"))
    assert stacks.start(999_999_999, 999_999_999, 5)
    assert "gone" in ended(stacks).reason


@pytest.mark.skipif(confinement() != ("unshare", "prlimit", "setpriv"), reason="not root, or a tool is missing")
def test_the_child_is_the_processes_user_with_one_capability_and_no_network(tmp_path: Path) -> None:
    report = "cat /proc/self/status /proc/self/limits /proc/net/dev | tr '\\n' '~'; echo"
    tmp_path.chmod(0o700)
    with subprocess.Popen(["/bin/sleep", "60"], user=65534, group=65534, extra_groups=[]) as process:
        stacks = PyStack(path=script(tmp_path / "py-spy", report))
        stacks.start(process.pid, process.pid, time.monotonic_ns())
        running = stacks._running
        assert running
        ended(stacks)
        process.kill()
    text = running.output.decode().replace("~", "\n")
    fields = {line.split(":")[0].strip(): line.split(":")[-1].split() for line in text.splitlines() if ":" in line}
    ptrace_alone = [f"{1 << 19:016x}"]
    assert (fields["Uid"], fields["Gid"], fields.get("Groups")) == (["65534"] * 4, ["65534"] * 4, [])
    assert (fields["CapPrm"], fields["CapEff"], fields["CapBnd"]) == (ptrace_alone, ptrace_alone, ptrace_alone)
    assert fields["NoNewPrivs"] == ["1"]
    assert [name for name in fields if name in ("lo", "eth0")] == ["lo"]
    assert "Max core file size        0" in text


@pytest.mark.usefixtures("patient")
@pytest.mark.skipif(isinstance(find(), Unavailable), reason="py-spy is not installed")
def test_a_real_process(tmp_path: Path) -> None:
    file = tmp_path / "slow.py"
    inner = "def inner():\n    print('up', flush=True)\n    time.sleep(60)\n"
    file.write_text(f"import time\n{inner}def outer():\n    inner()\nouter()\n")
    with subprocess.Popen([sys.executable, str(file)], stdout=subprocess.PIPE) as process:
        assert process.stdout
        process.stdout.readline()
        stacks = PyStack()
        seen = StackSeen(0, 0, 0, (), "none")
        for attempt in range(5):  # py-spy may meet a stack that changes
            stacks.start(process.pid, process.pid, time.monotonic_ns(), str(attempt))
            seen = ended(stacks)
            if seen.frames:
                break
        process.kill()
    assert seen.frames == ("<module> (slow.py:7)", "outer (slow.py:6)", "inner (slow.py:4)")


@pytest.mark.skipif(isinstance(find(), Unavailable), reason="py-spy is not installed")
def test_a_real_process_that_is_no_python() -> None:
    with subprocess.Popen(["/bin/sleep", "60"]) as process:
        stacks = PyStack()
        stacks.start(process.pid, process.pid, time.monotonic_ns())
        seen = ended(stacks)
        process.kill()
    assert seen.frames == ()
    assert seen.reason


@pytest.mark.usefixtures("patient")
@pytest.mark.skipif(
    isinstance(find(), Unavailable) or os.geteuid() != 0 or not shutil.which("unshare"), reason="py-spy, root, unshare"
)
def test_a_thread_in_another_pid_namespace_of_another_user(tmp_path: Path) -> None:
    file = tmp_path / "threads.py"
    file.write_text(
        "import threading, time\n"
        "def other():\n    print(threading.get_native_id(), flush=True)\n    time.sleep(60)\n"
        "def main():\n    time.sleep(60)\n"
        "threading.Thread(target=other, daemon=True).start()\nmain()\n"
    )
    command = ["unshare", "--pid", "--fork", "--kill-child", "/usr/bin/setpriv", "--reuid=65534", "--clear-groups"]
    with (
        file.open() as text,
        subprocess.Popen([*command, "/usr/bin/python3", "-c", text.read()], stdout=subprocess.PIPE) as process,
    ):
        assert process.stdout
        inner_tid = int(process.stdout.readline())
        (pid,) = Proc().children(process.pid)
        (tid,) = [tid for tid in Proc().threads(pid) if tid != pid]
        assert inner_tid != tid
        stacks = PyStack()
        tops = {}
        for wanted in (pid, tid):
            for attempt in range(5):
                stacks.start(pid, wanted, time.monotonic_ns(), f"{wanted} {attempt}")
                seen = ended(stacks)
                if seen.frames:
                    break
            tops[wanted] = seen.frames[-1:]
        process.kill()
    assert tops == {pid: ("main (<string>:6)",), tid: ("other (<string>:4)",)}


def test_of_a_single_late_thread_nobody_asks_who_owns_it(monkeypatch: pytest.MonkeyPatch) -> None:
    proc = Proc()
    monkeypatch.setattr(proc, "_ask", lambda _reads: pytest.fail("a helper was asked"))
    assert list(PyStack(enabled=False, proc=proc).in_turn([(1, 2)])) == [(1, 2)]
