"""Single panels where Prometheus holds more than trainprobe's steady counters, by promtool."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

import yaml

from tests.observability.dashboards import panel_queries, with_values
from tests.unit.exporters.reports import NOW, a_rank, a_report, a_run
from tests.unit.exporters.told import told_now
from trainprobe.model.report import Counters
from trainprobe_exporters.families import SeriesTable

VALUES = {"job": ".+", "host": ".+", "run": "r", "rank": ".+", "__rate_interval": "1m", "__range": "30m"}
OURS, FOREIGN = 'job="trainprobe",instance="gpu-1"', 'job="node",instance="gpu-1:9100"'


def asked(dashboard: str, of: str, **values: str) -> str:
    (query,) = [one for one in panel_queries() if (one.dashboard, one.of) == (f"trainprobe-{dashboard}", of)]
    return with_values(query.expr, VALUES | values)


def findings(directory: Path, series: Mapping[str, str], expected: Mapping[str, Mapping[str, float]]) -> str:
    """What promtool has against the answers at 20 minutes, of samples each 15 s; ``expected``: by query, by labels."""
    case = {
        "interval": "15s",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [
            {
                "expr": expr,
                "eval_time": "20m",
                "exp_samples": [{"labels": labels, "value": value} for labels, value in samples.items()],
            }
            for expr, samples in expected.items()
        ],
    }
    path = directory / "panels.yml"
    path.write_text(yaml.safe_dump({"evaluation_interval": "15s", "tests": [case]}))
    done = subprocess.run(["promtool", "test", "rules", path], capture_output=True, text=True, timeout=60, check=False)
    return "" if done.returncode == 0 else done.stdout + done.stderr


def test_what_else_prometheus_scrapes_is_on_no_panel(tmp_path: Path) -> None:
    """A node exporter that is down is no silent host of trainprobe's, and its memory not the exporter's."""
    series = {
        f"up{{{OURS}}}": "1x100",
        f"trainprobe_build_info{{{OURS}}}": "1x100",
        f'trainprobe_source_up{{{OURS},source="daemon"}}': "1x100",
        f"process_resident_memory_bytes{{{OURS}}}": "34x100",
        f"scrape_duration_seconds{{{OURS}}}": "2x100",
        f"up{{{FOREIGN}}}": "0x100",
        f"process_resident_memory_bytes{{{FOREIGN}}}": "99x100",
        f"scrape_duration_seconds{{{FOREIGN}}}": "9x100",
    }
    mine = '{instance="gpu-1"}'
    expected = {
        asked("fleet", "Silent hosts (A)"): {"{}": 0},
        asked("stalls", "Memory of the daemon and the exporter (B)"): {mine: 34},
        asked("stalls", "Time of a scrape, and of the daemon's readings (A)"): {mine: 2},
    }
    assert findings(tmp_path, series, expected) == ""


def test_a_silent_host_counts_whether_its_exporter_or_its_daemon_is_silent(tmp_path: Path) -> None:
    other = OURS.replace("gpu-1", "gpu-2")
    series = {
        f"up{{{OURS}}}": "0x100",
        f"up{{{other}}}": "1x100",
        f'trainprobe_source_up{{{other},source="daemon"}}': "0x100",
    }
    assert findings(tmp_path, series, {asked("fleet", "Silent hosts (A)"): {"{}": 2}}) == ""


def test_the_first_event_is_drawn_though_its_series_begins_with_it(tmp_path: Path) -> None:
    """The only Xid of a GPU, the only call without a descriptor, the first loss of a probe."""
    rank = f'{OURS},run="r",rank="0"'
    since = "_x77 1x22"  # 45 seconds before
    series = {
        f'trainprobe_source_up{{{OURS},source="daemon"}}': "1x100",
        f'trainprobe_run_gpu_info{{{rank},gpu="0",uuid="G0",mig=""}}': "1x100",
        f'trainprobe_gpu_errors_total{{{OURS},gpu="0",uuid="G0",kind="xid",code="79"}}': since,
        f'trainprobe_gpu_errors_total{{{OURS},gpu="0",uuid="G0",kind="xid",code="43"}}': "7x100",
        f'trainprobe_fd_errors_total{{{rank},errno="EMFILE"}}': since,
        f'trainprobe_events_lost_total{{{OURS},probe="ring"}}': since,
    }
    of_gpu = '{instance="gpu-1",gpu="0",kind="xid",code="%s"}'
    expected = {
        asked("stalls", "GPU errors (A)"): {of_gpu % 79: 1, of_gpu % 43: 0},
        asked("stalls", "Calls that failed for want of a descriptor (A)"): {'{errno="EMFILE"}': 1},
        asked("stalls", "Kernel events lost (A)"): {'{instance="gpu-1",probe="ring"}': 1},
    }
    assert findings(tmp_path, series, expected) == ""


def test_counters_that_look_new_behind_a_gap_are_no_events(tmp_path: Path) -> None:
    """Prometheus, or the daemon, has been away: what happened long before is not drawn again."""
    rank = f'{OURS},run="r",rank="0"'
    series = {
        f'trainprobe_source_up{{{OURS},source="daemon"}}': "_x77 1x22",
        f'trainprobe_fd_errors_total{{{rank},errno="EMFILE"}}': "_x77 5x22",
    }
    of_errors = asked("stalls", "Calls that failed for want of a descriptor (A)")
    assert findings(tmp_path, series, {of_errors: {'{errno="EMFILE"}': 0}}) == ""


def test_an_ended_run_counts_no_more_though_its_series_stay(tmp_path: Path) -> None:
    """Two ranks of one that lives, one of which is over; one that ended two minutes ago, stalled to the last."""
    ranks = {"lives": ("0", "1"), "ended": ("0",)}
    infos = {f'trainprobe_run_info{{{OURS},run="{run}",rank="{r}"}}': "1x100" for run, of in ranks.items() for r in of}
    stalled = f"run:trainprobe_stall_ratio:max_rate5m{{{OURS}"
    series = infos | {
        f'trainprobe_phase_active{{{OURS},run="lives",rank="0",phase="train"}}': "1x100",
        f'trainprobe_phase_active{{{OURS},run="lives",rank="0",phase="startup"}}': "0x100",
        f'trainprobe_phase_active{{{OURS},run="lives",rank="1",phase="train"}}': "1x40 0x60",
        f'trainprobe_phase_active{{{OURS},run="ended",rank="0",phase="train"}}': "1x72 0x28",
        f'{stalled},run="lives"}}': "0.7x100",
        f'{stalled},run="ended"}}': "0.9x100",
    }
    panels = [asked("fleet", of, run=".+") for of in ("Runs (A)", "Ranks (A)", "Runs stalled now (A)")]
    assert findings(tmp_path, series, {expr: {"{}": 1} for expr in panels}) == ""
    over = {name: values for name, values in series.items() if 'run="lives"' not in name}
    assert findings(tmp_path, over, {expr: {} for expr in panels}) == ""


def test_the_first_save_is_drawn_and_what_it_did_not_do_is_not(tmp_path: Path) -> None:
    """Three seconds of it, by the exporter's own series, which are scraped each 15 s: the last two times with it."""
    table = SeriesTable()
    scraped = []
    for counters in (Counters(), Counters(checkpoint_seconds={"write/true": 3.0})):
        table.fold(a_report(a_run("r", a_rank(counters=counters))))
        scraped.append(told_now(table, NOW).all("trainprobe_checkpoint_seconds_total"))
    before, after = scraped
    series = {
        f"trainprobe_checkpoint_seconds_total{{{OURS},{_written(labels)}}}": f"{before.get(labels, '_')}x78 {value}x20"
        for labels, value in after.items()
    }
    of_saves = asked("stalls", "Time in checkpoints, by operation (A)")
    assert findings(tmp_path, series, {of_saves: {'{operation="write",blocking="true"}': 0.05}}) == ""


def _written(labels: frozenset[tuple[str, str]]) -> str:
    return ",".join(f'{name}="{value}"' for name, value in sorted(labels))


def test_the_first_stall_of_a_cause_counts_where_its_zero_gave_way(tmp_path: Path) -> None:
    """A rank with many series has none of this counter before; its other counters by cause begin at 0."""
    rank = f'{OURS},run="r",rank="0"'
    series = {
        f'trainprobe_source_up{{{OURS},source="daemon"}}': "1x200",
        f'trainprobe_stalls_total{{{rank},cause="swap"}}': "_x60 1x140",
        f'trainprobe_stall_seconds_total{{{rank},cause="swap"}}': "0x60 4x140",
        f'trainprobe_phase_seconds_total{{{rank},phase="evaluation"}}': "_x60 9x140",
    }
    stalls = asked("stalls", "Stalls in the time range (B)", __range="18m")
    phases = asked("stalls", "Time in phases (A)", __range="18m")
    expected = {stalls: {'{rank="0",cause="swap"}': 1}, phases: {'{phase="evaluation"}': 9}}
    assert findings(tmp_path, series, expected) == ""
