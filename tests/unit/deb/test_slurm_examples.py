"""What the controller's epilog makes of the nodes' metrics. With a real Slurm: tests/systemd/test_slurm.py."""

from __future__ import annotations

import importlib.machinery
import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

PROGRAM = Path(__file__).parents[3] / "systemd/slurm/epilog-slurmctld"
NODE = """# TYPE trainprobe_run_info gauge
trainprobe_run_info{{run="1.0-aa",rank="{rank}",slurm_job="1",pod_uid=""}} 1.0
trainprobe_run_info{{run="2.0-bb",rank="0",slurm_job="2",pod_uid=""}} 1.0
trainprobe_run_wall_seconds_total{{run="1.0-aa",rank="{rank}"}} 100.0
trainprobe_run_wall_seconds_total{{run="2.0-bb",rank="0"}} 500.0
trainprobe_lost_seconds_total{{run="1.0-aa",rank="{rank}",cause="checkpoint"}} {lost}
trainprobe_lost_seconds_total{{run="1.0-aa",rank="{rank}",cause="data_cpu"}} 5.0
trainprobe_lost_seconds_total{{run="1.0-aa",rank="{rank}",cause="swap"}} 0.1
trainprobe_lost_seconds_total{{run="2.0-bb",rank="0",cause="swap"}} 400.0
"""


@pytest.fixture(scope="module")
def epilog(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    loader = importlib.machinery.SourceFileLoader("epilog_slurmctld", str(PROGRAM))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    nodes = tmp_path_factory.mktemp("nodes")
    for rank, (node, lost) in enumerate({"n1": 14.0, "n2": 0.0}.items()):
        (nodes / node).write_text(NODE.format(rank=rank, lost=lost))
    module.URL = f"file://{nodes}/{{node}}"
    return module


@pytest.mark.parametrize(
    ("job", "nodes", "text"),
    [
        ("1", ["n1", "n2"], "lost 12 %: checkpoint 7 %, data_cpu 5 %"),
        ("1", ["n1", "n3"], "lost 19 %: checkpoint 14 %, data_cpu 5 % (1 of 2 nodes silent)"),
        ("7", ["n1", "n2"], ""),
        ("1", ["n3"], ""),
    ],
)
def test_the_line_of_a_job(epilog: ModuleType, job: str, nodes: list[str], text: str) -> None:
    assert epilog.line(job, [epilog.samples(node) for node in nodes]) == text
