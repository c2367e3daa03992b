from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.builders.users import mounted, reachable
from trainprobe.cli import cells, check, checks, main
from trainprobe.cli.checks import Finding
from trainprobe.cli.style import Style
from trainprobe.model.report import Report, Source
from trainprobe.runtime.session import privileges
from trainprobe.text.render import Speaker
from trainprobe.text.saying import saying
from trainprobe.wire import report as wire

STATUS = "Name:\tx\nCapEff:\t{:016x}\n"


def test_rights_are_named() -> None:
    assert privileges.missing(STATUS.format(0)) == [
        "CAP_BPF", "CAP_PERFMON", "CAP_SYS_PTRACE", "CAP_DAC_READ_SEARCH"
    ]  # fmt: skip
    assert privileges.missing(STATUS.format((1 << 41) - 1)) == []
    assert privileges.missing(STATUS.format(1 << 39 | 1 << 38 | 1 << 19 | 1 << 2)) == []
    assert privileges.missing(STATUS.format(1 << 21 | 1 << 2)) == ["CAP_SYS_PTRACE"]


def test_btf(tmp_path: Path) -> None:
    assert checks.btf(tmp_path / "vmlinux").state == checks.MISSING
    assert "CONFIG_DEBUG_INFO_BTF" in checks.btf(tmp_path / "vmlinux").remedy


def test_tracefs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text("none /sys/kernel/tracing tracefs rw 0 0\n")
    assert checks.tracefs(mounts) == Finding(
        "tracefs", checks.OK, saying("mounted on {place}", place="/sys/kernel/tracing"), checks.tracefs(mounts).why
    )
    mounts.write_text("proc /proc proc rw 0 0\n")
    monkeypatch.setattr(privileges, "missing", list)
    assert checks.tracefs(mounts).state == checks.OK
    monkeypatch.setattr(privileges, "missing", lambda: ["CAP_BPF"])
    assert checks.tracefs(mounts).remedy == "mount -t tracefs none /sys/kernel/tracing"


def test_lockdown(tmp_path: Path) -> None:
    path = tmp_path / "lockdown"
    assert checks.lockdown(path).state == checks.OK
    path.write_text("none [integrity] confidentiality\n")
    assert checks.lockdown(path).state == checks.OK
    path.write_text("none integrity [confidentiality]\n")
    assert checks.lockdown(path).state == checks.MISSING


SHOWN = "{} T shmem_fault\n{} t do_swap_page\n{} T unmap_page_range\n"


def kallsyms(path: Path, *addresses: int) -> str:
    path.write_text(SHOWN.format(*(f"{address:016x}" for address in addresses)))
    return str(path)


def test_hidden_kernel_addresses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(privileges, "missing", list)
    shown = kallsyms(tmp_path / "shown", 0xFFFFFFFF81000000, 0xFFFFFFFF81000400, 0xFFFFFFFF81000800)
    assert checks.kallsyms(shown).state == checks.OK
    hidden = kallsyms(tmp_path / "hidden", 0, 0, 0)
    for path in (hidden, str(tmp_path / "absent")):
        finding = checks.kallsyms(path)
        assert finding.state == checks.DEGRADED
        assert "counts as swap" in str(finding.what)
        assert "kernel.kptr_restrict" in str(finding.remedy)
    monkeypatch.setattr(privileges, "missing", lambda: ["CAP_BPF"])
    assert checks.kallsyms(hidden).remedy == "sudo trainprobe check", "the kernel hides them from users"


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
def test_a_file_system_without_acls() -> None:
    with reachable() as directory, mounted("ramfs", directory / "run") as run:
        finding = checks.acls((directory, run / "trainprobe"))
        assert finding.state == checks.DEGRADED
        assert f"{run}/trainprobe" in str(finding.what)
        assert finding.remedy
        assert checks.acls((directory / "not yet" / "made",)).state == checks.OK


def test_another_pid_namespace(tmp_path: Path) -> None:
    """A container's /proc has no kernel threads; the host's has, also where the process itself is in a container."""
    assert checks.pid_namespace(str(tmp_path)).state == checks.MISSING
    (tmp_path / "2").mkdir()
    (tmp_path / "2/stat").write_text(f"2 (python) S 1 {'0 ' * 49}")
    assert checks.pid_namespace(str(tmp_path)).state == checks.MISSING
    (tmp_path / "2/stat").write_bytes(Path("/proc/2/stat").read_bytes())
    assert checks.pid_namespace(str(tmp_path)).state == checks.OK


def test_psi(tmp_path: Path) -> None:
    assert checks.psi(tmp_path / "io").remedy == "boot with psi=1"


def test_a_host_without_swap_says_so_in_chinese(tmp_path: Path) -> None:
    (tmp_path / "swaps").write_text("Filename Type Size Used Priority\n")
    found = checks.swap(tmp_path / "swaps")
    assert (found.state, found.what, Speaker("zh").text(found.what)) == (checks.OK, "none", "没有")


def test_pypis_bcc_is_not_taken_for_the_real_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bcc").mkdir()
    (tmp_path / "bcc" / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(__import__("sys").modules, "bcc", raising=False)
    finding = checks.bcc()
    assert finding.state == checks.MISSING
    assert "another program" in str(finding.what)


def test_every_check_that_is_not_ok_says_what_mends_it() -> None:
    for finding in checks.all_checks():
        assert finding.state in (checks.OK, checks.DEGRADED, checks.MISSING)
        assert finding.state == checks.OK or finding.remedy, finding


@pytest.fixture
def degraded(monkeypatch: pytest.MonkeyPatch) -> list[Finding]:
    findings = [
        Finding("BTF", checks.OK, "there", "needed"),
        Finding("PSI", checks.DEGRADED, "not counted", "pressure", "boot with psi=1"),
    ]
    monkeypatch.setattr(checks, "all_checks", lambda: findings)
    monkeypatch.setattr(check, "probes", lambda: Finding("eBPF programs", checks.OK, "loaded", "all"))
    return findings


def test_strict_fails_on_anything_degraded(degraded: list[Finding]) -> None:
    assert main(["check"]) == 0
    assert main(["check", "--strict"]) == 1
    degraded.pop()
    assert main(["check", "--strict"]) == 0


def test_it_fails_where_nothing_can_be_watched(degraded: list[Finding]) -> None:
    degraded.append(Finding("BTF", checks.MISSING, "", ""))
    assert main(["check"]) == 1


def test_it_speaks_the_readers_language(degraded: list[Finding], capsys: pytest.CaptureFixture[str]) -> None:
    degraded.append(Finding("PSI", checks.MISSING, saying("{path} does not exist", path="/x"), "", "boot with psi=1"))
    main(["check", "--lang", "zh"])
    told = capsys.readouterr().out
    for text in ("缺失", "/x 不存在", "解决办法：用 psi=1 启动内核", "无法观测：PSI"):
        assert text in told
    main(["check", "--json", "--lang", "zh"])
    assert json.loads(capsys.readouterr().out)[-2]["what"] == "/x does not exist"


def test_an_error_and_its_remedy_are_in_the_readers_language(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "--input", "/nowhere.json", "--lang", "zh"]) == 1
    assert "解决办法：可用 trainprobe run -o REPORT.json" in capsys.readouterr().err


def test_json(degraded: list[Finding], capsys: pytest.CaptureFixture[str]) -> None:
    main(["check", "--json"])
    assert [entry["name"] for entry in json.loads(capsys.readouterr().out)] == ["BTF", "PSI", "eBPF programs"]


def test_a_line_each_and_the_remedy_below(degraded: list[Finding]) -> None:
    assert check.findings_text(degraded, Style()).splitlines()[:4] == [
        "ok        BTF             there",
        "degraded  PSI             not counted",
        "                          needed: pressure",
        "                          to mend it: boot with psi=1",
    ]


def test_the_last_line_says_what_to_do_next(degraded: list[Finding]) -> None:
    well = [finding for finding in degraded if finding.state == checks.OK]
    assert check.concluded(well, Style()) == (
        "Everything works. To begin: trainprobe run -- python train.py, or for all trainings of this host: "
        "systemctl start trainprobe"
    )
    assert check.concluded(degraded, Style()).startswith("It works, without what these would give: ")
    missing = [*degraded, Finding("BTF", checks.MISSING, "", "")]
    assert check.concluded(missing, Style()) == "Nothing can be watched before this is mended: BTF."


def test_whoever_has_no_room_with_a_running_daemon_is_told(tmp_path: Path) -> None:
    assert checks.shares(tmp_path).state == checks.OK
    report = Report(sources={"slots": Source("unavailable", "more than 64 runs of user 1000", "exclude them")})
    (tmp_path / "report.json").write_text(wire.encode(report))
    found = checks.shares(tmp_path)
    assert (found.state, found.what, found.remedy) == (
        checks.DEGRADED,
        "more than 64 runs of user 1000",
        "exclude them",
    )


def test_each_source_of_a_running_daemon_that_failed_is_told(tmp_path: Path) -> None:
    assert checks.failed_sources(tmp_path) == []
    report = Report(
        sources={
            "slots": Source("error", "no room"),
            "nvml": Source("unavailable", "no NVIDIA GPU here"),
            "history": Source("error", "No space left on device", "make room on it"),
            "psi": Source("up"),
        }
    )
    (tmp_path / "report.json").write_text(wire.encode(report))
    [found] = checks.failed_sources(tmp_path)
    assert (found.name, found.state, found.what, found.remedy) == (
        "history",
        checks.DEGRADED,
        "No space left on device",
        "make room on it",
    )


def test_the_names_of_checks_are_in_the_reader_s_language() -> None:
    found = [Finding(name, checks.DEGRADED, "no", "all") for name in ("rights", "pid namespace", "shares", "BTF")]
    style = Style(speaker=Speaker("zh"))
    text = check.findings_text(found, style)
    names = ["权限", "PID 命名空间", "用户配额", "BTF"]
    assert [name for name in names if name not in text] == []
    assert "，".join(names) in check.concluded(found, style)
    columns = {cells.width(line[: line.index(what)]) for line in text.splitlines() if (what := " no") in line}
    assert len(columns) == 1
