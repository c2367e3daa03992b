# SPDX-License-Identifier: Apache-2.0
"""What a drained ring costs: requests to helpers are counted."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from trainprobe.bpf import abi
from trainprobe.bpf.probes import Probes
from trainprobe.bpf.read.paths import Paths
from trainprobe.collect.procfs import Proc
from trainprobe.model.event import ProcessEvent

FORKS = 50


def forked(pid: int) -> bytes:
    kind, message = abi.ProcessKind.FORK.value, abi.RingMessage.PROCESS.value
    return bytes(abi.ProcessMessage(message=message, kind=kind, at=pid, tgid=pid, parent=7, comm=b"python"))


def test_a_crowd_of_forks_costs_few_requests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for pid in (7, *range(100, 100 + FORKS)):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "cwd").symlink_to(f"/{pid}")
    proc = Proc(str(tmp_path))
    requests: list[Any] = []
    ask = proc.pool.ask
    monkeypatch.setattr(proc.pool, "ask", lambda reads: requests.append(reads) or ask(reads))
    crowd = [forked(pid) for pid in range(100, 100 + FORKS)]
    probes: Any = object.__new__(Probes)
    probes._paths, probes._malformed = Paths(proc), 0
    probes._attachments = SimpleNamespace(look_after=lambda: None)
    probes._ring = SimpleNamespace(drain=lambda: [*crowd, b"", b"no message"])
    probes._held = SimpleNamespace(read=lambda: None, rest=list)
    probes._files = SimpleNamespace(take_late=list)
    told = probes.drain()
    assert [one.pid for one in told if isinstance(one, ProcessEvent)] == [*range(100, 100 + FORKS)]
    assert probes._malformed == 2
    assert len(requests) <= 2, "the folders of all, and the mount namespace of their parent"
    assert probes._paths._directories[120] == "/120"
