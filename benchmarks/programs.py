"""The programs under test, started as a user starts them, with directories of their own, and ended again."""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
Json = dict[str, Any]


class ProgramError(Exception):
    """A program did not start, or ended when it should not; the text holds what it said."""


def environment(**more: str) -> dict[str, str]:
    """Ours, with the two source roots where the programs are not installed, and bytecode, as installed ones have it."""
    paths = [str(ROOT / "daemon"), str(ROOT / "exporters"), *filter(None, [os.environ.get("PYTHONPATH")])]
    ours = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return ours | {"PYTHONPATH": os.pathsep.join(paths)} | more


def make_bytecode() -> None:
    """As an installation does, so that the first start does not."""
    command = [sys.executable, "-m", "compileall", "-q", str(ROOT / "daemon"), str(ROOT / "exporters")]
    subprocess.run(command, check=True, env=environment(), stdout=subprocess.DEVNULL)


def trainprobe(*arguments: str) -> list[str]:
    """The command line of ``trainprobe``."""
    return [sys.executable, "-m", "trainprobe.cli", *arguments]


class Daemon:
    """``trainprobe daemon`` that publishes below ``directory``; ``ready_seconds`` is how long it took to. ``more``:
    of its environment."""

    def __init__(self, directory: Path, configuration: str = "", **more: str) -> None:
        self.directory = directory / "published"
        self.state = directory / "state"
        self._config = directory / "trainprobe.yaml"
        self._log = directory / "daemon.log"
        self._configuration, self._more = configuration, more
        self.process: subprocess.Popen[bytes]
        self.ready_seconds = 0.0

    def __enter__(self) -> Daemon:
        self._config.write_text(self._configuration)
        begin = time.monotonic()
        state = ("--state", str(self.state))
        with open(self._log, "wb") as log:
            self.process = subprocess.Popen(
                trainprobe("daemon", "--config", str(self._config), "--directory", str(self.directory), *state),
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment(**self._more),
            )  # fmt: skip
        try:
            while not (self.directory / "report.json").exists():
                if self.process.poll() is not None or time.monotonic() - begin > 60:
                    raise ProgramError(f"the daemon did not become ready: {self.said()}")
                time.sleep(0.01)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        self.ready_seconds = time.monotonic() - begin
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        end(self.process)

    def said(self) -> str:
        return self._log.read_text(errors="replace").strip()

    def report(self) -> Json:
        """What is published now."""
        report: Json = json.loads((self.directory / "report.json").read_bytes())
        return report

    def rank_of(self, pid: int) -> tuple[Json, Json] | None:
        """(run, rank) of a process, once it is known."""
        for run in self.report()["runs"]:
            for rank in run["ranks"]:
                if rank["pid"] == pid:
                    return run, rank
        return None


class Exporter:
    """``trainprobe-exporter`` on a port that the kernel chooses, beside a ``Daemon`` of the same directory."""

    def __init__(self, directory: Path, snapshot: Path) -> None:
        self._directory, self._snapshot = directory, snapshot
        self.process: subprocess.Popen[bytes]
        self.url = ""

    def __enter__(self) -> Exporter:
        config, runtime = self._directory / "exporter.yaml", self._directory / "exporter"
        config.write_text("")
        runtime.mkdir(mode=0o700, exist_ok=True)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "trainprobe_exporters.cli", "--config", str(config),
             "--snapshot", str(self._snapshot), "--history", str(self._directory / "state" / "published"),
             "--listen", "127.0.0.1:0"],
            stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment(RUNTIME_DIRECTORY=str(runtime)),
        )  # fmt: skip
        try:
            self.url = self._address(time.monotonic() + 30)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        end(self.process)
        if self.process.stderr is not None:
            self.process.stderr.close()

    def token(self) -> str:
        """What opens the API."""
        return (self._directory / "exporter" / "token").read_text().strip()

    def page(self) -> str:
        """What `trainprobe page` prints: the address of the live page with its token."""
        command = trainprobe("page", "--directory", str(self._directory / "exporter"))
        return subprocess.run(command, check=True, capture_output=True, text=True, env=environment()).stdout.strip()

    def get(self, path: str) -> str:
        with urllib.request.urlopen(self.url + path, timeout=10) as answer:
            body: bytes = answer.read()
        return body.decode()

    def _address(self, deadline: float) -> str:
        assert self.process.stderr is not None
        said = b""
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stderr, selectors.EVENT_READ)
            while time.monotonic() < deadline and selector.select(max(deadline - time.monotonic(), 0)):
                data = os.read(self.process.stderr.fileno(), 4096)
                said += data
                for line in said.decode(errors="replace").splitlines():
                    if line.startswith("listening on "):
                        return line.removeprefix("listening on ").strip()
                if not data:
                    break
        raise ProgramError(f"the exporter did not start: {said.decode(errors='replace').strip()}")


@contextmanager
def rivals(count: int) -> Iterator[None]:
    """So many programs that compute all the time, each a session of its own: where the kernel schedules by sessions
    (autogroup), those of one session are one load, which it may keep away from others altogether."""
    started = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"], start_new_session=True) for _ in range(count)
    ]
    try:
        yield
    finally:
        for one in started:
            one.kill()
        for one in started:
            one.wait()


def end(process: subprocess.Popen[bytes], patience: float = 10.0) -> int:
    """SIGTERM, and SIGKILL for one that does not hear it. Returns its exit code."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(patience)
        except subprocess.TimeoutExpired:
            process.kill()
    return process.wait()


def resident(pid: int) -> int:
    """Resident bytes of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def cpu_seconds(pid: int, *, children: bool = False) -> float:
    """Processor time of a process, with ``children`` that of those it has waited for as well."""
    fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    return sum(int(field) for field in fields[11 : 15 if children else 13]) / os.sysconf("SC_CLK_TCK")
