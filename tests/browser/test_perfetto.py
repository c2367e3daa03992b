"""The trace in Perfetto's own UI and trace processor (its WebAssembly build), and in Chrome's trace viewer."""

from __future__ import annotations

import json
import random
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.browser.chromium import Chromium, Tab
from tests.browser.trainings import RUN, Training, training
from trainprobe.model.steprow import StepRow
from trainprobe.views import perfetto
from trainprobe.wire import history

UI = Path(__file__).parents[2] / ".tools" / "perfetto"

pytestmark = pytest.mark.skipif(not (UI / ".complete").exists(), reason="no .tools/perfetto (make test fetches it)")

QUERY = """(async () => {
  const result = await app.trace.engine.query(%s);
  const columns = result.columns();
  const rows = [];
  for (const it = result.iter({}); it.valid(); it.next()) rows.push(columns.map((name) => {
    const value = it.get(name); return typeof value === 'bigint' ? Number(value) : value; }));
  return rows;
})()"""


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """The test says what it needs."""


@dataclass
class Viewer:
    """Perfetto's UI on a server of our own, in a tab that may complain: it is not our page."""

    tab: Tab
    url: str
    folder: Path

    def load(self, made: dict[str, Any]) -> None:
        (self.folder / "trace.json").write_text(json.dumps(made))
        self.tab.open("about:blank")
        self.tab.open(f"{self.url}/#!/?url={self.url}/trace.json")
        self.tab.wait_for("window.app?.trace?.engine !== undefined", seconds=90)

    def ask(self, sql: str) -> list[list[Any]]:
        """The rows that the trace processor answers."""
        rows: list[list[Any]] = self.tab.evaluate(QUERY % json.dumps(sql))
        return rows


@pytest.fixture(scope="module")
def viewer(browser: Chromium, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Viewer]:
    folder = tmp_path_factory.mktemp("site")
    for entry in UI.iterdir():
        (folder / entry.name).symlink_to(entry)
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        with browser.tab() as tab:
            yield Viewer(tab, f"http://127.0.0.1:{server.server_address[1]}", folder)
    finally:
        server.shutdown()
        thread.join(10)
        server.server_close()


@pytest.fixture(scope="module")
def told(seed: int) -> Training:
    draw = random.Random(seed)
    made = training(draw, end=1_795_000_000.0, steps=800, stalls=30, ended=True)
    lines = [history.header(history.STEPS), *map(history.step_line, made.rows)]
    made.rows = list(history.read_steps(line.encode() for line in lines))  # rounded, as what is kept is
    return made


@pytest.fixture(scope="module")
def loaded(viewer: Viewer, told: Training) -> Viewer:
    viewer.load(perfetto.trace(told.report, {(RUN, "0"): told.rows}))
    return viewer


SLICES = "from slice join thread_track on slice.track_id = thread_track.id join thread using (utid)"


def test_the_trace_processor_finds_every_slice_and_the_same_totals(loaded: Viewer, told: Training) -> None:
    errors = loaded.ask("select name, value from stats where severity in ('error', 'data_loss') and value > 0")
    assert errors == []
    rank = told.rank
    threads = dict(loaded.ask(f"select thread.name, count(*) {SLICES} group by 1"))
    assert threads["steps"] == len(told.rows)
    assert threads["stalls"] == len(rank.stalls)
    assert threads["in flight during stalls"] == sum(len(stall.chain) for stall in rank.stalls)
    assert threads["phases"] == 1
    assert threads["workers"] == threads["events"] == 1
    assert sum(count for name, count in threads.items() if name.startswith("checkpoints")) == len(rank.checkpoints)

    totals = loaded.ask(f"select slice.name, sum(dur) / 1e9 {SLICES} where thread.name = 'stalls' group by 1")
    assert dict(totals) == {cause: pytest.approx(seconds, abs=1e-4) for cause, seconds in rank.lost.items()}
    [[steps, first]] = loaded.ask("select sum(dur) / 1e9, min(ts) / 1e9 from slice where name = 'step'")
    assert steps == pytest.approx(sum(row.seconds for row in told.rows), abs=1e-3)
    assert first + perfetto.base_time_ns(told.report) / 1e9 == pytest.approx(told.rows[0].start, abs=1e-4)
    nested = loaded.ask(f"select max(depth) {SLICES} where thread.name in ('steps', 'stalls', 'phases')")
    assert nested == [[0]], "what follows upon each other is not drawn as if one were part of the other"


def test_shares_of_states_are_counters_that_add_up_to_one(loaded: Viewer) -> None:
    counters = "from counter join counter_track on counter.track_id = counter_track.id"
    which = "name like 'share of step%'"
    sums = loaded.ask(f"select ts, sum(value) {counters} where {which} group by ts order by ts limit 200")
    assert len(sums) == 200
    assert all(total == pytest.approx(1.0, abs=1e-3) for _, total in sums)


def test_memory_and_workers_are_counters(loaded: Viewer, told: Training) -> None:
    counters = "from counter join counter_track on counter.track_id = counter_track.id"
    highest = dict(loaded.ask(f"select name, max(value) {counters} where name not like 'share%' group by 1"))
    samples = told.rank.samples
    assert {name.split()[0]: value for name, value in highest.items() if value} == {
        "memory": max(value or 0 for value in samples.pss_bytes),
        "live": max(samples.workers),
    }


def test_it_is_drawn(loaded: Viewer) -> None:
    wanted = json.dumps(f"trainprobe: {RUN}")
    loaded.tab.wait_for(f"document.body.innerText.includes({wanted})", seconds=30)


def test_chromes_own_viewer_takes_it(loaded: Viewer, told: Training) -> None:
    """Catapult, which chrome://tracing is; Perfetto ships it for old traces."""
    [viewer] = UI.glob("v*/assets/catapult_trace_viewer.html")
    loaded.tab.open(f"{loaded.url}/{viewer.relative_to(UI)}")
    loaded.tab.wait_for("typeof tr !== 'undefined' && tr.importer?.Import !== undefined", seconds=30)
    warnings, steps = loaded.tab.evaluate(
        f"(async () => {{ const text = await (await fetch('{loaded.url}/trace.json')).text();"
        " const model = new tr.Model(); const importer = new tr.importer.Import(model);"
        " importer.importTraces([text]); return [model.importWarnings.map((one) => one.message),"
        " [...model.getDescendantEvents()].filter((one) => one.title === 'step').length]; })()"
    )
    assert warnings == []
    assert steps == len(told.rows)


PROFILED = """
import sys, time, torch
from torch.profiler import ProfilerActivity, profile, record_function
with profile(activities=[ProfilerActivity.CPU]) as made:
    begun = time.time()
    with record_function("marked"):
        torch.randn(64, 64) @ torch.randn(64, 64)
        time.sleep(0.05)
made.export_chrome_trace(sys.argv[1])
print(begun)
"""


@pytest.mark.training
def test_it_lies_on_the_axis_of_pytorchs_own_profiler(viewer: Viewer, tmp_path: Path, torch_python: str) -> None:
    """A real profile and a step at the same moment: the trace processor puts one within the other."""
    command = [torch_python, "-c", PROFILED, str(tmp_path / "profile.json")]
    begun = float(subprocess.run(command, capture_output=True, text=True, check=True, timeout=100).stdout)
    other = json.loads((tmp_path / "profile.json").read_text())
    told = training(random.Random(1), end=begun + 1.0, steps=60, stalls=1, ended=True)
    row = StepRow(begun - 0.01, 0.5, 1, 0.5, 0.5, {"compute": 0.5})
    ours = perfetto.trace(told.report, {(RUN, "0"): [row]}, perfetto.base_of(other))
    assert perfetto.base_time_ns(told.report) == perfetto.base_of(other), "without asking, it is the profiler's base"
    viewer.load(perfetto.merged(ours, other))
    [[step_start, step_end]] = viewer.ask("select ts, ts + dur from slice where name = 'step'")
    [[mark_start, mark_end]] = viewer.ask("select ts, ts + dur from slice where name = 'marked'")
    assert step_start < mark_start < mark_end < step_end
    assert (mark_start - step_start) / 1e9 == pytest.approx(0.01, abs=0.05)
