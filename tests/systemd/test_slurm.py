"""Real Slurm: a controller with its database, two nodes, and our prolog and epilogs as docs/clusters.md has them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.systemd.slurm_cluster import Cluster, Machine
from tests.systemd.test_installed import DEPENDS

pytestmark = [pytest.mark.timeout(600), pytest.mark.training, pytest.mark.nightly]
REPORTS = "/var/lib/trainprobe-jobs"


@dataclass(frozen=True)
class Jobs:
    cluster: Cluster
    both: str
    """The job of two ranks, one on each node."""
    array: str
    """The array; its one task is 7."""

    def reports(self, job: str, command: str = "") -> list[dict[str, Any]]:
        """The runs that the nodes know of a job, one a node."""
        command = command or f"cat {REPORTS}/{job}.json"
        found = [node.run(command) for node in self.cluster.nodes]
        return [run for done in found if done.returncode == 0 for run in json.loads(done.stdout)["runs"]]

    def comment(self, job: str) -> str:
        return self.cluster.controller.wait_for(f"sacct -nPX -j {job} -o admincomment | grep .", 20)


@pytest.fixture(scope="module")
def jobs(torch_python: str) -> Iterator[Jobs]:
    if sys.base_prefix != "/usr" or shutil.which("ip") is None:
        pytest.skip("the nodes run the packages of Debian's own Python, and need iproute2")
    python = Path(torch_python)
    asked = [torch_python, "-c", "import sys; print(sys.base_prefix, *sys.version_info[:2])"]
    if subprocess.run(asked, capture_output=True, text=True, check=True).stdout != "/usr 3 11\n":
        pytest.skip("the nodes are Debian 12, whose Python is not that of the trainings")
    with Cluster(DEPENDS, (python.parents[1],)) as cluster:
        for node in cluster.nodes:
            node.told("install -d -o alice /work")
        training = f"{python} /opt/train.py /work"
        both = submitted(
            cluster, "-N2 -n2 --gres=gpu:1", f"MASTER_ADDR=n1 MASTER_PORT=29733 srun --kill-on-bad-exit {training} 8 3"
        )
        for node in cluster.nodes:
            node.wait_for(f"grep -x {both} /run/gpu-jobs/0 && grep -x '{both} 61190' /run/gpustat/0", 20)
        array = submitted(cluster, "-N1 -n1 --array=7", f"{training} 6 1.5")
        cluster.controller.wait_for('test -z "$(squeue -h)"', 90)
        yield Jobs(cluster, both, array)


def submitted(cluster: Cluster, options: str, command: str) -> str:
    script = f"cd /home/alice && sbatch --parsable -J {options[1:3]} {options} --wrap 'cd /tmp; {command}'"
    return cluster.controller.told(script, user="alice").partition(";")[0]


def test_a_step_over_two_nodes_is_one_run(jobs: Jobs) -> None:
    first, second = jobs.reports(jobs.both)
    assert first["run"] == second["run"]
    assert re.fullmatch(rf"{jobs.both}\.0-[0-9a-f]{{8}}", first["run"])
    assert {run["labels"]["slurm_job"] for run in (first, second)} == {jobs.both}
    assert [rank["rank"] for run in (first, second) for rank in run["ranks"]] == [0, 1]
    assert [rank["world_size"] for run in (first, second) for rank in run["ranks"]] == [2, 2]
    assert "checkpoint" in first["ranks"][0]["lost"]
    assert "collective_wait" in second["ranks"][0]["lost"]


def test_a_task_of_an_array_has_the_arrays_name(jobs: Jobs) -> None:
    (run,) = jobs.reports(jobs.array, f"trainprobe report --slurm-job {jobs.array}_7 --format json")
    assert run["labels"]["slurm_array_task"] == f"{jobs.array}_7"
    assert jobs.reports(jobs.array, f"trainprobe report --slurm-job {jobs.array}_8 --format json") == []


def test_what_was_lost_stands_in_the_jobs_record(jobs: Jobs) -> None:
    for job in (jobs.both, f"{jobs.array}_7"):
        comment = jobs.comment(job)
        assert re.fullmatch(r"lost \d+ %: \w+ \d+ %(, \w+ \d+ %)*", comment), comment
        assert "checkpoint" in comment, comment


def test_the_owner_reads_the_report_and_others_do_not(jobs: Jobs) -> None:
    node: Machine = jobs.cluster.nodes[0]
    kept, asked = f"cat {REPORTS}/{jobs.both}.json", f"trainprobe report --slurm-job {jobs.both}"
    for command in (kept, asked):
        assert "checkpoint" in node.told(command, user="alice")
        stranger = node.run(command, user="bob")
        assert stranger.returncode != 0
        assert "checkpoint" not in stranger.stdout + stranger.stderr


def test_the_files_of_the_gpus_are_gone_after_the_job(jobs: Jobs) -> None:
    for node in jobs.cluster.nodes:
        assert node.told("ls /run/gpu-jobs /run/gpustat").split() == ["/run/gpu-jobs:", "/run/gpustat:"]
