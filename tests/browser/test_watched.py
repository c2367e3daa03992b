"""The whole way, all of it real: a training that stalls, eBPF, the daemon, the exporter, the page in Chromium."""

from __future__ import annotations

import json
import secrets
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from benchmarks.programs import Daemon
from tests.browser.chromium import Tab
from tests.unit.exporters.programs import exporter
from trainprobe.model.cause import Cause
from trainprobe.views import palette

TRAINING = Path(__file__).parents[1] / "observability" / "stalling_training.py"
PLAN = ("checkpoint=1.5", "cpu_bound=1.0", "checkpoint=0.8")
SECONDS = 24
SLACK = 1.0

REGIONS = """((wanted) => {
  const canvas = document.getElementById('canvas');
  const { from, to } = document.getElementById('timeline').dataset;
  const copy = new OffscreenCanvas(canvas.width, 1).getContext('2d', { willReadFrequently: true });
  copy.drawImage(canvas, 0, 25, canvas.width, 1, 0, 0, canvas.width, 1);
  const pixels = copy.getImageData(0, 0, canvas.width, 1).data;
  const found = [];
  for (let x = 0; x < canvas.width; x++) {
    if (!wanted.every((value, channel) => Math.abs(pixels[4 * x + channel] - value) < 4)) continue;
    const time = Number(from) + (x / canvas.width) * (to - from);
    if (found.length && time - found.at(-1)[1] < 0.5) found.at(-1)[1] = time;
    else found.push([time, time]);
  }
  return found;
})"""


@pytest.mark.training
@pytest.mark.timeout(180)
def test_planted_stalls_of_a_real_training_are_regions_of_the_page(tab: Tab, tmp_path: Path, torch_python: str) -> None:
    with (
        Daemon(tmp_path) as daemon,
        exporter(daemon.directory, "--history", str(daemon.state / "published")) as running,
    ):
        # The daemon finds every training of this host; by its name this one is told from others of its kind.
        program = shutil.copy(TRAINING, tmp_path / f"stalling_{secrets.token_hex(4)}.py")
        command = [torch_python, str(program), str(tmp_path), str(SECONDS), *PLAN]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as training:
            run = _run_of(daemon, training.pid)
            token = (daemon.directory / "token").read_text().strip()
            tab.open(f"{running.url}/?token={token}#run={run}")
            tab.wait_for(f"document.title.endsWith({json.dumps(run)})")
            output, _ = training.communicate(timeout=120)
        planted = [json.loads(line) for line in output.splitlines()][:-1]
        assert [stall["cause"] for stall in planted] == [entry.partition("=")[0] for entry in PLAN]
        tab.wait_for("document.querySelector('.pill').textContent === 'ended'", seconds=20)
        tab.evaluate("document.getElementById('timeline').focus()")
        tab.press("Escape")
        tab.press("0")
        tab.evaluate("new Promise((done) => setTimeout(done, 200))")
        report = daemon.rank_of(training.pid)
        assert report is not None
        stalls = report[1]["stalls"]
        for stall in planted:
            told = max(stalls, key=lambda one: min(one["end"], stall["end"]) - max(one["start"], stall["start"]))
            # With other work on this machine, a part of it (even the larger one) is the wait for a CPU.
            assert stall["cause"] in told["shares"]
            near = [
                (first, last)
                for first, last in _regions(tab, told["cause"])
                if abs(first - stall["start"]) < SLACK and abs(last - stall["end"]) < SLACK
            ]
            assert len(near) == 1, (stall, told["cause"], _regions(tab, told["cause"]))
        rows = tab.evaluate("Number(document.getElementById('timeline').dataset.rows)")
        assert rows > 100, "each step is there, from the daemon's history"
        causes = {stall["cause"] for stall in stalls}
        advice = tab.text("#advice").lower()
        assert [cause for cause in causes if palette.CAUSES[Cause(cause)].title.lower() not in advice] == []
        if "cpu_bound" in causes:
            assert f"cpu_bound ({Path(program).name}:" in advice, "the line of the training is named"


def _run_of(daemon: Daemon, pid: int) -> str:
    until = time.monotonic() + 60
    while time.monotonic() < until:
        if (found := daemon.rank_of(pid)) is not None:
            return str(found[0]["run"])
        time.sleep(0.2)
    raise AssertionError(f"the daemon has not found the training: {daemon.said()}")


def _regions(tab: Tab, cause: str) -> list[tuple[float, float]]:
    """Where the lane of the stalls has the colour of this cause."""
    light = palette.CAUSES[Cause(cause)].light
    rgb = [int(light[i : i + 2], 16) for i in (1, 3, 5)]
    return [(start, end) for start, end in tab.evaluate(f"{REGIONS}({rgb})")]
