"""The exporter as a process, as users and systemd start it."""

from __future__ import annotations

import os
import re
import signal
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from tests.unit.exporters.told import Told, told
from trainprobe_exporters.cli import main

ROOT = Path(__file__).parents[3]
COMMAND = [sys.executable, "-m", "trainprobe_exporters.cli"]


@dataclass
class Exporter:
    process: subprocess.Popen[str]
    url: str
    tls: ssl.SSLContext | None = None

    def get(self, path: str, **headers: str) -> tuple[int, bytes]:
        request = urllib.request.Request(self.url + path, headers={k.replace("_", "-"): v for k, v in headers.items()})
        try:
            with urllib.request.urlopen(request, timeout=10, context=self.tls) as response:
                return response.status, response.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read()

    def metrics(self) -> Told:
        return told(self.get("/metrics")[1])

    def line(self) -> str:
        """The next line that it logs."""
        assert self.process.stderr is not None
        return self.process.stderr.readline()


def environment(directory: Path, **more: str) -> dict[str, str]:
    path = os.pathsep.join([str(ROOT / "daemon"), str(ROOT / "exporters")])
    return {**os.environ, "PYTHONPATH": path, "RUNTIME_DIRECTORY": str(directory), **more}


@contextmanager
def exporter(directory: Path, *arguments: str, **environ: str) -> Iterator[Exporter]:
    """A running exporter whose snapshot is ``directory``/report.json and whose port the kernel chose."""
    command = [*COMMAND, "--snapshot", str(directory / "report.json"), *arguments]
    if not {"--listen", "--config"} & set(arguments):
        command += ["--listen", "127.0.0.1:0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment(directory, **environ))
    try:
        assert process.stderr is not None
        line = process.stderr.readline()
        while "listening on" not in line:
            assert line, f"it ended with {process.wait(10)}"
            line = process.stderr.readline()
        found = re.search(r"https?://\S+", line)
        assert found is not None
        yield Exporter(process, found[0])
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        process.wait(10)
        process.stderr.close()  # type: ignore[union-attr]


def run(directory: Path, *arguments: str, through: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
    """An exporter that is expected to end by itself; ``through``: the command that starts it."""
    command = [*through, *COMMAND, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False, env=environment(directory))


def refusal(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """What it says of arguments or a configuration that it refuses, for which it needs no process of its own."""
    out, err = StringIO(), StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setenv("RUNTIME_DIRECTORY", str(directory))
        try:
            code: Any = main(arguments)
        except SystemExit as ended:
            code = ended.code
    return subprocess.CompletedProcess(arguments, code, out.getvalue(), err.getvalue())
