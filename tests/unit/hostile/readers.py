"""Everything of ours that reads what strangers may have written: a name, right inputs, the call, what it may raise."""

from __future__ import annotations

import atexit
import gzip
import io
import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.unit.bpf.attach.test_symbols import PREFIX, elf
from tests.unit.bpf.compile.test_btf import sample as btf_sample
from trainprobe.bpf import abi
from trainprobe.bpf.attach import symbols
from trainprobe.bpf.compile.btf import Btf, BtfError
from trainprobe.bpf.read import decode
from trainprobe.collect import cgroup, cgroup_path, command, mapping, peer, procfs, psi, pystack
from trainprobe.config.load import load
from trainprobe.config.parse import ConfigError
from trainprobe.config.schema import DaemonConfig, ExporterConfig
from trainprobe.model.moment import Moment
from trainprobe.pipeline import Pipeline
from trainprobe.wire import history, recording
from trainprobe.wire import report as wire_report
from trainprobe.wire.bounded import BoundedReport
from trainprobe.wire.codec import WireError
from trainprobe_exporters.admission import Admission
from trainprobe_exporters.families import SeriesTable
from trainprobe_exporters.publication import Publication
from trainprobe_exporters.request import BadRequestError, parse_head
from trainprobe_exporters.routes import Routes
from trainprobe_exporters.source import SnapshotReader

RECORDINGS = Path(__file__).parents[2] / "replay" / "recordings"


@dataclass(frozen=True)
class Reader:
    """``read`` takes bytes, and raises nothing but ``refusals``. ``cost``: how many ordinary ones a case costs."""

    name: str
    seeds: Callable[[], Sequence[bytes]]
    read: Callable[[bytes], object]
    refusals: tuple[type[Exception], ...] = ()
    cost: int = 1


def _messages() -> list[bytes]:
    shapes = (
        abi.FileMessage, abi.NamedFileMessage, abi.ProcessMessage, abi.CandidateMessage, abi.FailureMessage,
    )  # fmt: skip
    kinds = [int(kind).to_bytes(4, "little") for kind in abi.RingMessage]
    longest = max(len(bytes(shape())) for shape in shapes)
    return [kind + filling * (longest + 4096) for kind in kinds for filling in (b"\0", b"\1")]


def _elves() -> list[bytes]:
    names = [(PREFIX + b"7executeE", 0x10100, 2), (PREFIX + b"8executeE", 0x10200, 2), (b"other", 0x10300, 1)]
    return [elf(names, kind=kind) for kind in (2, 11)]


def _read_btf(data: bytes) -> None:
    with Btf(data) as btf:
        btf.offset("dentry.d_name.name")
        btf.offset("dentry.bit")
        btf.tracepoint_arguments("sched_switch")
        btf.struct("dentry")
        btf.tracepoint("sched_switch")
        btf.function("bpf_rdonly_cast")


def _configurations() -> list[bytes]:
    return [
        b"targets:\n  auto: true\n  include: {commands: ['*train*'], uids: [1, 2]}\nprivacy: {paths: false}\n",
        b"listen: '127.0.0.1:1'\nrun_linger_seconds: 1.5\ntls: {certificate: /a, key: /b}\n",
        b"thresholds:\n  stall_factor: 2.0\n  stall_minimum_seconds: .5\nretention: {days: 3, bytes: 5000000}\n",
    ]


@cache
def _scratch() -> Path:
    descriptor, path = tempfile.mkstemp(prefix="trainprobe-hostile-")
    os.close(descriptor)
    atexit.register(Path(path).unlink, missing_ok=True)
    return Path(path)


def _read_configuration(data: bytes) -> None:
    path = _scratch()
    path.write_bytes(data)
    os.utime(path, (0, 0))  # not just now: that is waited for
    refused = 0
    for kind in (DaemonConfig, ExporterConfig):
        try:
            load(kind, path)
        except ConfigError as error:
            refused += 1
            str(error)
    if refused == 2:
        raise ConfigError([])


@cache
def _recordings() -> list[bytes]:
    seeds = []
    for name in ("checkpoint", "worker_death"):
        with gzip.open(RECORDINGS / f"{name}.jsonl.gz") as lines:
            head = lines.readline()
            body = [line for line in lines if len(line) < 20_000]
        seeds += [head + b"".join(body[at : at + 2]) for at in range(0, len(body), max(1, len(body) // 12))]
    return seeds


def _read_recording(data: bytes) -> None:
    lines = io.BytesIO(data)
    recording.read_header(lines)
    for _ in recording.read_frames(lines):
        pass


@cache
def _reports() -> list[bytes]:
    pipeline, last = Pipeline(), Moment(0, 0)
    with gzip.open(RECORDINGS / "worker_death.jsonl.gz") as lines:
        recording.read_header(lines)
        for frame in recording.read_frames(lines):
            pipeline.step(frame)
            last = frame.at
    return [BoundedReport(pipeline.report(last)).encode(16_000)]


@cache
def _routes() -> Routes:
    missing = Path("/nonexistent/report.json")
    publication = Publication(SnapshotReader(missing, wire_report.decode), SeriesTable(linger_seconds=1), "0")
    return Routes(publication, Admission(token="t" * 43))


def _requests() -> list[bytes]:
    return [
        b"GET /metrics HTTP/1.1\r\nHost: a\r\nAccept: application/openmetrics-text;version=1.0.0,*/*;q=0.1\r\n\r\n",
        b"GET /api/v1/steps?run=a-1&rank=0&since=1.5&points=10 HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer "
        + b"t" * 43 + b"\r\nConnection: close\r\n\r\n",
        b"GET /api/v1/stalls?since=1&token=x HTTP/1.0\r\nCookie: token=abc; other=1\r\nAccept-Encoding: gzip\r\n\r\n",
        b"HEAD / HTTP/1.1\r\nHost: a\r\nAuthorization: Basic YTpi\r\nContent-Length: 0\r\n\r\n",
    ]  # fmt: skip


def _read_request(data: bytes) -> None:
    _routes().answer(parse_head(data))


def _history() -> list[bytes]:
    numbers = b'[1.5, 0.25, 1, 0.2, 0.3, {"compute": 0.2}]\n'
    return [history.header(kind).encode() + numbers * 3 for kind in (history.STEPS, history.STALLS)]


def _read_history(data: bytes) -> None:
    lines = data.splitlines(keepends=True)
    refused = 0
    for read in (history.read_steps, history.read_stalls):
        try:
            list(read(lines))
        except WireError:
            refused += 1
    if refused == 2:
        raise WireError("neither")


def _own(name: str) -> Callable[[], list[bytes]]:
    return lambda: [Path(f"/proc/self/{name}").read_bytes()]


def _text(read: Callable[[str], object]) -> Callable[[bytes], object]:
    return lambda data: read(data.decode(errors="replace"))


def _mount_table(text: str) -> None:
    mounts = cgroup.parse_mounts(text)
    for controller in ("memory", "cpu", ""):
        cgroup.directory(mounts, controller, "/a/b")


def _command(data: bytes) -> None:
    words = data.decode(errors="surrogateescape").split("\0")
    command.understand(words)
    command.redact(words)
    command.mentioned_script(words)
    command.torchrun_id(words)
    command.torchrun_meeting(words)


def _commands() -> list[bytes]:
    return [
        b"python\0-X\0dev\0-m\0torch.distributed.run\0--rdzv-id=7\0--nproc-per-node\02\0train.py\0--token\0abc",
        b"/usr/bin/python3\0-c\0import train; train.main('key=1')\0--lr=0.1\0PASSWORD=x",
    ]


def _dumps() -> list[bytes]:
    frames = b'[{"name": "f", "filename": "/a/b.py", "line": 3}, {"name": "g", "filename": "c.py", "line": 9}]'
    return [b'[{"os_thread_id": 7, "thread_name": "MainThread", "frames": ' + frames + b"}]"]


READERS = (
    Reader("ring messages", _messages, decode.message, (decode.Malformed,)),
    Reader("ELF", _elves, lambda data: symbols.find(data, [PREFIX, b"oth"])),
    Reader("BTF", lambda: [btf_sample()], _read_btf, (BtfError,)),
    Reader("configuration", _configurations, _read_configuration, (ConfigError,), cost=20),
    Reader("recording", _recordings, _read_recording, (WireError,), cost=4),
    Reader("report", _reports, wire_report.decode, (WireError,), cost=10),
    Reader("history", _history, _read_history, (WireError,)),
    Reader("HTTP request", _requests, _read_request, (BadRequestError,), cost=2),
    Reader("py-spy's answer", _dumps, lambda data: pystack.read_dump(data, 0, 7, 7)),
    Reader("/proc/PID/maps", _own("maps"), mapping.find_library),
    Reader("/proc/PID/stat", _own("stat"), _text(procfs.parse_stat)),
    Reader("/proc/PID/status", _own("status"), _text(procfs.parse_status)),
    Reader("/proc/PID/cgroup", _own("cgroup"), _text(lambda text: cgroup_path.place(cgroup_path.parse_cgroups(text)))),
    Reader("/proc/PID/mountinfo", _own("mountinfo"), _text(_mount_table)),
    Reader(
        "/proc/PID/net/tcp",
        _own("net/tcp"),
        _text(lambda text: (peer.in_table(text, "1"), peer.in_unix_table(text, "1"))),
    ),
    Reader(
        "pressure",
        lambda: [b"some avg10=0.00 avg60=0.12 avg300=0.05 total=17\nfull avg10=0 total=3\n"],
        _text(psi.parse),
    ),
    Reader("command line", _commands, _command),
)
