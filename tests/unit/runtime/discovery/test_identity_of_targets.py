"""Names of runs, as the contract words them."""

from __future__ import annotations

import pwd
import re
from pathlib import Path

import pytest

from tests.unit.collect.fake_proc import FakeProc
from trainprobe.collect.cgroup_path import CgroupPlace
from trainprobe.runtime.discovery.identity import (
    IdentityInput,
    job,
    labels,
    meeting,
    name,
    rank,
    restart,
    restarts,
    sanitised,
)
from trainprobe.runtime.discovery.launch import Launches
from trainprobe.runtime.publishing.publish import uid_of
from trainprobe.wire.history import fit_run

LOCAL = IdentityInput(script="train.py", boot_id="b", launcher_pid=7, launcher_ticks=100)


def facts(environ: dict[str, str] | None = None, place: CgroupPlace | None = None, **other: object) -> IdentityInput:
    fields = {"script": "train.py", "boot_id": "b", "launcher_pid": 7, "launcher_ticks": 100} | other
    return IdentityInput(environ=environ or {}, place=place or CgroupPlace(), **fields)  # type: ignore[arg-type]


def base(of: IdentityInput) -> str:
    return name(of).rpartition("-")[0]


def test_the_form() -> None:
    assert re.fullmatch(r"train\.py-[0-9a-f]{8}", name(LOCAL))
    assert name(LOCAL) == name(facts())


SLURM = {"SLURM_JOB_ID": "12", "SLURM_STEP_ID": "3"}
TORCHRUN = {"TORCHELASTIC_RUN_ID": "exp1"}


@pytest.mark.parametrize(
    ("of", "expected"),
    [
        (facts(SLURM | TORCHRUN, CgroupPlace(pod_uid="p", unit="u.service")), "12.3"),
        (facts({"SLURM_JOB_ID": "12"}, CgroupPlace(slurm_job="12", slurm_step="batch")), "12.batch"),
        (facts({"SLURM_JOB_ID": "12"}), "12"),
        (facts(place=CgroupPlace(slurm_job="4", slurm_step="0")), "4.0"),
        (facts(TORCHRUN, CgroupPlace(pod_uid="p-1", unit="u.service")), "p-1"),
        (facts(TORCHRUN, CgroupPlace(unit="u.service")), "exp1"),
        (facts({"TORCHELASTIC_RUN_ID": "none"}, CgroupPlace(unit="u.service")), "u.service"),
        (facts({"TORCHELASTIC_RUN_ID": ""}), "train.py"),
        (facts(torchrun="exp2"), "exp2"),
        (facts(place=CgroupPlace(unit="u.service", container="c")), "u.service"),
        (facts(script=""), "python"),
    ],
)
def test_the_base_is_the_first_that_is_known(of: IdentityInput, expected: str) -> None:
    assert base(of) == expected


@pytest.mark.parametrize("environ", [SLURM, TORCHRUN])
def test_an_id_that_spans_hosts_gives_one_name_on_all_of_them(environ: dict[str, str]) -> None:
    assert name(facts(environ)) == name(facts(environ, boot_id="c", launcher_pid=8, launcher_ticks=5))
    assert name(facts(environ)) != name(facts(environ, script="eval.py"))


@pytest.mark.parametrize("environ", [SLURM, TORCHRUN, {}])
@pytest.mark.parametrize("place", [CgroupPlace(), CgroupPlace(pod_uid="p"), CgroupPlace(unit="u.service")])
def test_runs_of_two_users_never_have_one_name(environ: dict[str, str], place: CgroupPlace) -> None:
    assert len({name(facts(environ, place, uid=uid)) for uid in (0, 1000, 1001)}) == 3


@pytest.mark.parametrize("count", ["SLURM_RESTART_COUNT", "TORCHELASTIC_RESTART_COUNT"])
@pytest.mark.parametrize("environ", [SLURM, TORCHRUN, {}])
def test_a_requeue_or_elastic_restart_is_a_new_run(environ: dict[str, str], count: str) -> None:
    assert name(facts(environ | {count: "0"})) == name(facts(environ))
    assert len({name(facts(environ | {count: str(n)})) for n in range(3)}) == 3


@pytest.mark.parametrize("other", [{"boot_id": "c"}, {"launcher_pid": 8}, {"launcher_ticks": 5}])
def test_a_local_launch_is_told_by_boot_launcher_and_start(other: dict[str, object]) -> None:
    for place in (CgroupPlace(), CgroupPlace(pod_uid="p"), CgroupPlace(unit="u.service")):
        assert name(facts(place=place)) != name(facts(place=place, **other))


@pytest.mark.parametrize("count", ["SLURM_RESTART_COUNT", "TORCHELASTIC_RESTART_COUNT"])
@pytest.mark.parametrize("environ", [SLURM, TORCHRUN, {}])
def test_all_attempts_are_of_one_job(environ: dict[str, str], count: str) -> None:
    assert {job(facts(environ | {count: str(n)})) for n in range(3)} == {name(facts(environ))}
    assert [restarts(environ | {count: str(n)}) for n in range(3)] == [0, 1, 2]


STATIC = {"MASTER_ADDR": "node0", "MASTER_PORT": "29500", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2"}
ELSEWHERE: dict[str, object] = {"boot_id": "c", "launcher_pid": 8, "launcher_ticks": 5}


def test_a_static_rendezvous_without_id_gives_one_name_on_all_hosts() -> None:
    none = STATIC | {"TORCHELASTIC_RUN_ID": "none"}
    assert name(facts(none)) == name(facts(none, **ELSEWHERE))
    assert base(facts(none)) == "train.py"
    asked = facts(meeting=("NODE0", "29500", "4"))  # by torchrun's command line, before there are workers
    assert name(asked) == name(facts(none))
    others = ({"MASTER_ADDR": "node1"}, {"MASTER_PORT": "1"}, {"WORLD_SIZE": "8"}, {"TORCHELASTIC_RESTART_COUNT": "1"})
    assert len({name(facts(none | other)) for other in others} | {name(facts(none, uid=7)), name(facts(none))}) == 6


@pytest.mark.parametrize(
    "other",
    [{"MASTER_ADDR": "localhost"}, {"MASTER_ADDR": "127.0.0.1"}, {"MASTER_ADDR": "::1"}, {"LOCAL_WORLD_SIZE": "4"},
     {"MASTER_ADDR": ""}, {"MASTER_PORT": ""}, {"WORLD_SIZE": "x"}, {"WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": ""}],
)  # fmt: skip
def test_a_rendezvous_on_one_host_joins_nothing(other: dict[str, str]) -> None:
    assert meeting(facts(STATIC | other)) is None
    assert name(facts(STATIC | other)) != name(facts(STATIC | other, **ELSEWHERE))


def test_names_are_safe() -> None:
    assert sanitised("../../etc/passwd\n") == "etc-passwd"
    assert sanitised("é" * 100) == "python"
    assert len(sanitised("x" * 500)) == 64
    assert re.fullmatch(r"[A-Za-z0-9._-]+", name(facts({"TORCHELASTIC_RUN_ID": "a b\x00/\udcff"})))


def test_labels_hold_only_what_is_known() -> None:
    assert labels(LOCAL) == {}
    place = CgroupPlace(container="c" * 64, pod_uid="p", unit="u.service")
    assert labels(facts(SLURM | TORCHRUN, place)) == {
        "slurm_job": "12", "pod_uid": "p", "container": "c" * 64, "unit": "u.service", "torchrun": "exp1",
    }  # fmt: skip
    array = {"SLURM_JOB_ID": "14", "SLURM_JOB_NAME": "sweep", "SLURM_ARRAY_JOB_ID": "12", "SLURM_ARRAY_TASK_ID": "3"}
    assert labels(facts(array)) == {"slurm_job": "14", "slurm_job_name": "sweep", "slurm_array_task": "12_3"}
    assert labels(facts({"SLURM_JOB_NAME": "left over", "SLURM_ARRAY_TASK_ID": "3"})) == {}
    assert labels(facts({"TORCHELASTIC_RUN_ID": "a\nb" + "x" * 500}))["torchrun"] == "a?b" + "x" * 125


def test_ranks() -> None:
    assert rank({"RANK": "3", "WORLD_SIZE": "8", "SLURM_PROCID": "1"}) == (3, 8)
    assert rank({"SLURM_PROCID": "2", "SLURM_NTASKS": "4", "SLURM_STEP_ID": "0"}) == (2, 4)
    assert rank({"SLURM_PROCID": "0", "SLURM_NTASKS": "1", "SLURM_STEP_ID": "0"}) == (None, None)
    assert rank({"SLURM_PROCID": "0", "SLURM_NTASKS": "4"}) == (None, None)
    assert rank({"RANK": "-1", "WORLD_SIZE": "x"}) == (None, None)
    assert rank({"RANK": "9" * 18}) == (None, None)


def test_restart_counts_that_are_no_numbers_count_as_none() -> None:
    assert restart({"SLURM_RESTART_COUNT": "x", "TORCHELASTIC_RESTART_COUNT": "-1"}) == "0.0"


def test_no_directory_service_is_asked_for_a_user_without_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop waits for it, and a user has as many ids without a name as he was lent."""
    monkeypatch.setattr(pwd, "getpwnam", lambda name: pytest.fail(name))
    assert uid_of("165537") == 165537
    assert uid_of("9" * 11) is None


def test_a_name_of_digits_is_nobody_elses_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    proc = FakeProc(tmp_path).proc
    names = {1000: b"ann", 5000: b"1001"}
    monkeypatch.setattr(proc, "user", names.get)
    launches = Launches(proc, 1)
    assert [launches.user(uid) for uid in (1000, 5000, 1001)] == ["ann", "5000", "1001"]


@pytest.mark.parametrize("script", ["__main__.py", "_train.py", "..", "-x", "_"])
def test_the_history_keeps_runs_of_any_script(script: str) -> None:
    assert fit_run(name(facts(script=script)))
