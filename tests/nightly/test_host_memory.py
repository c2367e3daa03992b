"""A machine of its own runs out of memory: no cgroup limits anything, the host's end is told as the host's."""

from __future__ import annotations

import json
import re

import pytest

from tests.nightly import machine
from tests.nightly.test_stock_kernels import PYTHON, kernel

__all__ = ["kernel"]
REPORT = "report="


@pytest.mark.timeout(1000)
def test_a_host_that_runs_out_of_memory_is_told_as_the_host(kernel: machine.Kernel) -> None:
    told = "-o /tmp/report.json --record /tmp/recording"
    watching = f"{PYTHON} -m trainprobe.cli run {told} -- {PYTHON} tests/nightly/allocator.py 0.2"
    keeping = "echo recording=$(gzip -9 < /tmp/recording | base64 -w 0)"  # for tests/replay
    telling = f"{PYTHON} -c \"import json; print('{REPORT}' + json.dumps(json.load(open('/tmp/report.json'))))\""
    done = machine.run(kernel, f"{watching}; echo ended with $?; {telling}; {keeping}", memory="1G", timeout=900)
    print(done.output[-20_000:])
    assert "ended with 137" in done.output
    line = re.search(rf"^{REPORT}(.*)$", done.output, re.MULTILINE)
    assert line, "no report"
    (run,) = json.loads(line[1])["runs"]
    (rank,) = run["ranks"]
    assert (rank["verdict"]["kind"], rank["verdict"]["cause"]) == ("end", "oom_kill"), rank["verdict"]
    assert rank["memory"]["limit_scope"] == "host"
    assert run["oom_kills"] == {"host": 1}
    (after,) = [w for w in rank["warnings"] if w["cause"] == "oom_kill" and w["eta_seconds"] is None][-1:]
    assert "killed for want of memory: the host" in after["summary"], after
