"""`trainprobe run` and `attach` from outside: exit codes, signals, what the command inherits, what is left behind."""

from __future__ import annotations

import functools
import gzip
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from trainprobe.cli import main, published
from trainprobe.wire import report_file

FRONT = Path(__file__).with_name("front.py")
ROOT = Path(__file__).parents[3] / "daemon"


class Front:
    """Runs the program in ``directory``."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": f"{ROOT}:{ROOT.parent}",
            "FAKE_LOG": str(directory / "order.json"),
            "LC_ALL": "C.UTF-8",
        }

    def start(
        self, *arguments: str, fake: str = "", stderr: int = subprocess.PIPE, **options: object
    ) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, str(FRONT), *arguments],
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            cwd=self.directory,
            env={**self.environment, "FAKE": fake},
            **options,  # type: ignore[call-overload]
        )

    def __call__(self, *arguments: str, fake: str = "") -> subprocess.CompletedProcess[str]:
        child = self.start(*arguments, fake=fake)
        out, err = child.communicate(timeout=30)
        return subprocess.CompletedProcess(arguments, child.returncode, out, err)

    def order(self) -> dict[str, object]:
        told: dict[str, object] = json.loads((self.directory / "order.json").read_text())
        return told


@pytest.fixture
def front(tmp_path: Path) -> Front:
    return Front(tmp_path)


def wait_for(path: Path) -> None:
    for _ in range(500):
        if path.exists():
            return
        time.sleep(0.01)
    raise AssertionError(f"{path} did not appear")


@pytest.mark.parametrize(
    ("script", "code"), [("exit 0", 0), ("exit 3", 3), ("exit 125", 125), ("kill -9 $$", 137), ("kill -15 $$", 143)]
)
def test_the_exit_code_is_the_commands(front: Front, script: str, code: int) -> None:
    ended = front("run", "--", "sh", "-c", script)
    assert ended.returncode == code
    assert "cost of watching" in ended.stderr


def test_a_command_that_does_not_exist_is_127(front: Front) -> None:
    ended = front("run", "--", "no-such-command")
    assert ended.returncode == 127
    assert ended.stderr == "trainprobe: no-such-command: No such file or directory\n"


def test_a_command_that_is_not_executable_is_126(front: Front) -> None:
    (front.directory / "plain").write_text("hello")
    ended = front("run", "--", "./plain")
    assert ended.returncode == 126
    assert ended.stderr == "trainprobe: ./plain: Permission denied\n"


def test_a_directory_is_126(front: Front) -> None:
    assert front("run", "--", "/tmp").returncode == 126


def test_a_script_without_an_interpreter_line_is_126(front: Front) -> None:
    """It is found out by exec alone, after the watching has begun."""
    path = front.directory / "script"
    path.write_text("exit 0\n")
    path.chmod(0o755)
    ended = front("run", "--", "./script")
    assert ended.returncode == 126
    assert ended.stderr.startswith("trainprobe: ./script: Exec format error\n")


def test_a_script_whose_interpreter_is_gone_is_127(front: Front) -> None:
    path = front.directory / "script"
    path.write_text("#!/no/such/shell\n")
    path.chmod(0o755)
    assert front("run", "--", "./script").returncode == 127


@pytest.mark.parametrize(
    "arguments",
    [
        ("run",),
        ("run", "--"),
        ("run", "--nonsense", "--", "true"),
        ("run", "--config", "missing.yaml", "--", "true"),
        ("run", "-o", "no/such/dir/r.json", "--", "true"),
        ("run", "-o", "/tmp", "--", "true"),
        ("run", "--record", "no/such/dir/r.jsonl", "--", "true"),
    ],
)
def test_our_own_failures_before_the_start_are_125(front: Front, arguments: tuple[str, ...]) -> None:
    ended = front(*arguments)
    assert ended.returncode == 125
    assert ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    ("verb", "fake", "code"), [("run", "no part", 125), ("run", "no child", 125), ("attach", "no part", 1)]
)
def test_no_room_for_a_process_is_told_in_a_line(front: Front, verb: str, fake: str, code: int) -> None:
    """As RLIMIT_NPROC and a cgroup's pids.max have it."""
    what = ("--", "touch", "started") if verb == "run" else ("1",)
    ended = front(verb, *what, fake=fake)
    assert (ended.stderr, ended.returncode) == ("trainprobe: Resource temporarily unavailable\n", code)
    assert not (front.directory / "started").exists()


def test_every_error_of_the_configuration_is_told(front: Front) -> None:
    (front.directory / "c.yaml").write_text("thresholds: {stall_factor: 0.5, stal: 1}\ncheckpoint: {}\n")
    ended = front("run", "--config", "c.yaml", "--", "true")
    assert ended.returncode == 125
    for path in ("thresholds.stall_factor", "thresholds.stal:", "checkpoint:"):
        assert path in ended.stderr


def test_the_configuration_reaches_the_other_half(front: Front) -> None:
    (front.directory / "c.yaml").write_text("thresholds: {stall_factor: 2.5}\n")
    front("run", "--config", "c.yaml", "--", "true")
    assert front.order()["config"]["thresholds"]["stall_factor"] == 2.5  # type: ignore[index]


def test_the_command_does_not_start_when_nothing_can_watch_it(front: Front) -> None:
    ended = front("run", "--", "touch", "started", fake="refuse")
    assert ended.returncode == 125
    assert not (front.directory / "started").exists()
    assert ended.stderr == "trainprobe: this kernel has no BTF\n  to mend it: another kernel\n"


@pytest.mark.parametrize("fake", ["die", "dumb"])
def test_the_command_goes_on_when_the_other_half_fails(front: Front, fake: str) -> None:
    ended = front("run", "--", "sh", "-c", "sleep 0.3; touch done; exit 7", fake=fake)
    assert ended.returncode == 7
    assert (front.directory / "done").exists()
    assert "the half that loads eBPF programs" in ended.stderr


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("run", "-o", "r.json", "--record", "/dev/full", "--", "sh", "-c", "exit 7"), 7),
        (("run", "--", "no-such-command"), 127),
        (("run", "--nonsense"), 125),
        (("report", "--nonsense"), 2),
        (("attach", "999999999"), 1),
    ],
)
@pytest.mark.parametrize("broken", ["/dev/full", "nobody reads"])
def test_what_nobody_can_read_changes_no_exit_code(
    front: Front, arguments: tuple[str, ...], code: int, broken: str
) -> None:
    """A full disk below `2> log`, `2>&1 | head`, a terminal that is gone."""
    reader, writer = (
        os.pipe() if broken != "/dev/full" else (os.open(broken, os.O_RDONLY), os.open(broken, os.O_WRONLY))
    )
    os.close(reader)
    child = front.start(*arguments, stderr=writer)
    os.close(writer)
    child.communicate(timeout=30)
    assert child.returncode == code
    assert "-o" not in arguments or (front.directory / "r.json").exists()


def test_output_and_input_are_the_callers(front: Front) -> None:
    child = front.start("run", "--", "cat", stdin=subprocess.PIPE)
    out, _err = child.communicate("through\n", timeout=30)
    assert out == "through\n"


def test_the_environment_is_the_callers(front: Front) -> None:
    """Python itself adds LC_CTYPE in the C locale, which the command must not see."""
    del front.environment["LC_ALL"]
    ended = front("run", "--", "env")
    assert dict(line.split("=", 1) for line in ended.stdout.splitlines()) == {**front.environment, "FAKE": ""}


def test_an_entry_of_the_environment_without_a_name_ends_nothing(front: Front) -> None:
    """Python starts nothing with one: `execve` itself does."""
    entries = [b"=x", b"alone", *(f"{name}={value}".encode() for name, value in front.environment.items()), b"FAKE="]
    script = (
        "import ctypes, sys\n"
        "def made(*of): return (ctypes.c_char_p * (len(of) + 1))(*of, None)\n"
        f"arguments = made(sys.executable.encode(), {str(FRONT).encode()!r}, b'run', b'--', b'env')\n"
        f"ctypes.CDLL(None).execve(sys.executable.encode(), arguments, made(*{entries!r}))\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script], cwd=front.directory, capture_output=True, text=True, timeout=30, check=False
    )
    assert ended.returncode == 0
    assert dict(line.split("=", 1) for line in ended.stdout.splitlines()) == {**front.environment, "FAKE": ""}


@pytest.mark.parametrize("ignored", [(), (signal.SIGCHLD, signal.SIGTTOU, signal.SIGHUP)], ids=["none", "some"])
def test_signal_dispositions_are_the_callers(front: Front, ignored: tuple[signal.Signals, ...]) -> None:
    """A caller that ignores SIGCHLD has the kernel throw away how its children ended."""

    def ignore() -> None:
        for number in ignored:
            signal.signal(number, signal.SIG_IGN)

    command = ["sh", "-c", "grep -E 'Sig(Blk|Ign)' /proc/self/status; exit 3"]
    bare = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, preexec_fn=ignore)
    watched = front.start("run", "--", *command, preexec_fn=ignore)
    out, err = watched.communicate(timeout=30)
    assert out == bare.communicate()[0]
    assert (watched.returncode, "Traceback" in err) == (3, False)


def test_descriptors_are_the_callers(front: Front) -> None:
    ended = front("run", "--", "ls", "/proc/self/fd")
    assert ended.stdout.split() == ["0", "1", "2", "3"]  # 3: the directory that ls reads


def test_descriptors_that_the_caller_closed_stay_closed(front: Front) -> None:
    def close() -> None:
        os.closerange(0, 3)

    script = "ls /proc/self/fd > descriptors; exit 7"
    child = front.start("run", "-o", "r.json", "--record", "r.jsonl", "--", "sh", "-c", script, preexec_fn=close)
    child.communicate(timeout=30)
    assert child.returncode == 7
    assert (front.directory / "descriptors").read_text().split() == [
        "0",
        "1",
    ]  # the directory that ls reads, its output
    assert json.loads((front.directory / "r.json").read_text())["version"] == 1
    assert (front.directory / "r.jsonl").read_text() == '{"trainprobe_recording":1}\n{"at":[1,2]}\n'


def test_process_group_is_the_callers(front: Front) -> None:
    child = front.start("run", "--", "sh", "-c", "cut -d' ' -f5 /proc/self/stat", start_new_session=True)
    out, _err = child.communicate(timeout=30)
    assert int(out) == child.pid


@pytest.mark.parametrize(
    "number",
    [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGALRM, signal.SIGXCPU, signal.SIGURG, signal.SIGRTMIN + 3],
)
def test_a_signal_for_us_is_for_the_command(front: Front, number: int) -> None:
    # An exception of the handler would be lost where it is called as the file that nobody holds is taken down.
    script = (
        f"import os, signal, time; signal.signal({number:d}, lambda *_: os._exit(42));"
        "open('up', 'w').close(); time.sleep(20)"
    )
    caught = functools.partial(signal.signal, number, signal.SIG_DFL)  # a shell's & has its commands ignore SIGINT
    child = front.start("run", "-o", "r.json", "--", sys.executable, "-c", script, preexec_fn=caught)
    wait_for(front.directory / "up")
    child.send_signal(number)
    _out, err = child.communicate(timeout=30)
    assert child.returncode == 42
    assert "cost of watching" in err
    assert json.loads((front.directory / "r.json").read_text())["version"] == 1


def test_a_signal_that_may_not_be_passed_on_ends_nothing(front: Front) -> None:
    """`trainprobe run -- sudo -u other …`: the command is another user's."""
    script = "touch up; while [ ! -e go ]; do sleep 0.05; done; exit 7"
    child = front.start("run", "--", "sh", "-c", script, fake="strange")
    wait_for(front.directory / "up")
    child.send_signal(signal.SIGTERM)
    assert child.stderr is not None
    assert child.stderr.readline().endswith(": Operation not permitted\n")
    (front.directory / "go").touch()
    _out, err = child.communicate(timeout=30)
    assert child.returncode == 7
    assert "cost of watching" in err


def test_a_signal_of_the_terminal_reaches_the_command_once(front: Front) -> None:
    """The terminal tells the whole process group; passed on by us it would come twice."""
    script = (
        "import signal, time, sys\n"
        "count = []\n"
        "signal.signal(signal.SIGINT, lambda *_: count.append(1))\n"
        "open('up', 'w')\n"
        "end = time.monotonic() + 0.7\n"
        "while time.monotonic() < end: time.sleep(0.05)\n"
        "sys.exit(len(count))\n"
    )
    import pty

    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(front.directory)
        environment = {**front.environment, "FAKE": "", "TERM": "dumb"}
        os.execve(sys.executable, [sys.executable, str(FRONT), "run", "--", sys.executable, "-c", script], environment)
    wait_for(front.directory / "up")
    os.write(terminal, b"\x03")
    try:
        while os.read(terminal, 4096):
            pass
    except OSError:
        pass  # EIO: the other side is closed
    _pid, status = os.waitpid(pid, 0)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(status) == 1


@pytest.mark.parametrize(("arguments", "code"), [(("run", "--", "sh", "-c", "exit 7"), 7), (("attach", "1"), 0)])
def test_a_signal_behind_the_end_of_what_is_watched_costs_no_report(
    front: Front, arguments: tuple[str, ...], code: int
) -> None:
    """A batch system, or who presses Ctrl-C twice: there is nobody left whom it could mean."""
    ended = front(*arguments, fake="hurry")
    assert (ended.returncode, "cost of watching" in ended.stderr) == (code, True), ended.stderr


def test_the_command_is_told_that_the_terminal_hung_up(front: Front) -> None:
    """As `ssh -t HOST trainprobe run …` when the connection breaks: the kernel tells the session's leader alone."""
    import pty

    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(front.directory)
        environment = {**front.environment, "FAKE": "", "TERM": "dumb"}
        script = "trap 'touch told; exit 3' HUP; touch up; for i in $(seq 200); do sleep 0.05; done"
        os.execve(sys.executable, [sys.executable, str(FRONT), "run", "--", "sh", "-c", script], environment)
    wait_for(front.directory / "up")
    os.close(terminal)
    wait_for(front.directory / "told")
    _pid, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 3


def test_an_alarm_set_before_us_is_the_commands(front: Front) -> None:
    """`perl -e 'alarm 3600; exec @ARGV' trainprobe run …`: a timer stays with the process through exec."""
    script = "trap 'exit 42' ALRM; touch up; for i in $(seq 200); do sleep 0.05; done"
    assert front("run", "--", "sh", "-c", script, fake="alarm").returncode == 42


def test_an_interrupt_while_the_program_is_imported_is_silent() -> None:
    """At the import of a module that comes late among those of the program."""
    script = (
        "import importlib.abc, os, signal, sys\n"
        "class Interrupt(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path, target=None):\n"
        "        if name == 'trainprobe.text.saying': os.kill(os.getpid(), signal.SIGINT)\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "sys.meta_path.insert(0, Interrupt())\n"
        "import trainprobe.cli\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script], env={"PYTHONPATH": str(ROOT)}, capture_output=True, timeout=30
    )
    assert (ended.returncode, ended.stderr) == (-signal.SIGINT, b"")


def test_an_interrupt_of_a_program_that_is_imported_is_an_exception() -> None:
    script = "import signal, trainprobe.cli; assert signal.getsignal(2) is signal.default_int_handler"
    prepared = "import signal; signal.signal(2, signal.default_int_handler); "
    ended = subprocess.run([sys.executable, "-c", prepared + script], env={"PYTHONPATH": str(ROOT)}, timeout=30)
    assert ended.returncode == 0


def test_an_interrupt_before_the_start_starts_nothing(front: Front) -> None:
    child = front.start("run", "--", "touch", "started", fake="refuse", stdin=subprocess.DEVNULL)
    child.send_signal(signal.SIGINT)
    child.communicate(timeout=30)
    assert child.returncode != 0
    assert not (front.directory / "started").exists()


def test_reports_and_recordings_are_whole_and_nothing_else_is_left(front: Front) -> None:
    ended = front("run", "-o", "r.json", "--record", "r.jsonl", "--", "true")
    assert ended.returncode == 0
    assert json.loads((front.directory / "r.json").read_text())["runs"][0]["run"] == "x-1"
    assert (front.directory / "r.jsonl").read_text() == '{"trainprobe_recording":1}\n{"at":[1,2]}\n'
    assert sorted(path.name for path in front.directory.iterdir()) == ["order.json", "r.json", "r.jsonl"]


def test_the_report_of_many_ranks_with_full_lists_is_written_and_read(front: Front) -> None:
    ended = front("run", "-o", "r.json", "--", "sh", "-c", "exit 7", fake="full")
    assert ended.returncode == 7
    assert "cost of watching" in ended.stderr
    assert "trainprobe: " not in ended.stderr
    path = front.directory / "r.json"
    (run,) = published.of_file(path).runs
    assert [len(rank.stalls) for rank in run.ranks] == [200] * 64
    assert len(report_file.steps_of(path.read_bytes())) == 64
    assert main(["advise", str(path)]) == 0


def test_a_report_that_was_cut_short_is_told_and_not_left(front: Front) -> None:
    ended = front("run", "-o", "r.json", "--", "sh", "-c", "exit 7", fake="cut")
    assert ended.returncode == 7
    assert "cost of watching" in ended.stderr
    assert "the report could not be written: the half that loads eBPF programs ended early\n" in ended.stderr
    assert [path.name for path in front.directory.iterdir()] == ["order.json"]


@pytest.mark.parametrize(
    ("verb", "what", "fake", "code"),
    [("run", "true", "refuse", 125), ("run", "./script", "", 126), ("attach", "1", "refuse", 1)],
)
def test_what_is_not_watched_costs_no_earlier_recording(
    front: Front, verb: str, what: str, fake: str, code: int
) -> None:
    script, old = front.directory / "script", front.directory / "old.jsonl"
    script.write_text("exit 0\n")  # exec alone finds out that it has no interpreter
    script.chmod(0o755)
    old.write_text("earlier\n")
    assert front(verb, "--record", "old.jsonl", what, fake=fake).returncode == code
    assert old.read_text() == "earlier\n"
    assert front(verb, "--record", "new.jsonl", what, fake=fake).returncode == code
    assert not (front.directory / "new.jsonl").exists()


@pytest.mark.parametrize("name", ["r.jsonl", "r.jsonl.gz"])
def test_a_recording_takes_the_place_of_an_earlier_one(front: Front, name: str) -> None:
    (front.directory / name).write_text("earlier\n" * 1000)
    assert front("run", "--record", name, "--", "true").returncode == 0
    data = (front.directory / name).read_bytes()
    lines = gzip.decompress(data) if name.endswith("gz") else data
    assert lines == b'{"trainprobe_recording":1}\n{"at":[1,2]}\n'


@pytest.mark.parametrize(("verb", "what", "code"), [("run", "true", 125), ("attach", "1", 2)])
@pytest.mark.parametrize("name", ["r.json", "link"])
def test_one_file_for_report_and_recording_is_refused(front: Front, verb: str, what: str, code: int, name: str) -> None:
    (front.directory / "link").symlink_to("r.json")
    ended = front(verb, "-o", "r.json", "--record", name, what)
    assert (ended.stderr, ended.returncode) == ("trainprobe: -o and --record name the same file\n", code)
    assert not (front.directory / "r.json").exists()


def test_what_is_no_ordinary_file_takes_both(front: Front) -> None:
    ended = front("run", "-o", "/dev/stdout", "--record", "/dev/stdout", "--", "true")
    assert ended.stdout.startswith('{"trainprobe_recording":1}\n{"at":[1,2]}\n{"version": 1')


def test_a_report_can_go_to_a_pipe(front: Front) -> None:
    ended = front("run", "-o", "/dev/stdout", "--", "true")
    assert json.loads(ended.stdout)["version"] == 1


def test_when_we_are_killed_the_command_goes_on(front: Front) -> None:
    child = front.start("run", "--", "sh", "-c", "touch up; sleep 0.5; touch done")
    wait_for(front.directory / "up")
    child.kill()
    child.communicate(timeout=30)
    wait_for(front.directory / "done")


def test_attach_ends_with_what_it_watches(front: Front) -> None:
    ended = front("attach", str(os.getpid()), "-o", "r.json")
    assert ended.returncode == 0
    assert front.order()["command"] == []
    assert (front.directory / "r.json").exists()


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("attach", "999999999"), 1),
        (("attach", "one"), 2),
        (("attach", "1", "--config", "missing.yaml"), 2),
        (("attach",), 2),
        ((), 2),
        (("dance",), 2),
        (("--version",), 0),
        (("--help",), 0),
    ],
)
def test_exit_codes_elsewhere(front: Front, arguments: tuple[str, ...], code: int) -> None:
    ended = front(*arguments)
    assert ended.returncode == code
    assert "Traceback" not in ended.stderr
