"""What the capabilities of a process allow."""

from __future__ import annotations

from trainprobe.runtime import privileges

BPF, PERFMON, SYS_PTRACE, DAC_READ_SEARCH, SYS_ADMIN = 39, 38, 19, 2, 21


def status(*bits: int) -> str:
    return f"Name:\tx\nCapEff:\t{sum(1 << bit for bit in bits):016x}\n"


def test_each_capability_that_is_missing_is_named() -> None:
    assert privileges.missing(status(SYS_PTRACE, PERFMON)) == ["CAP_BPF", "CAP_DAC_READ_SEARCH"]
    assert privileges.missing(status(SYS_PTRACE, DAC_READ_SEARCH, SYS_ADMIN)) == [], "it covers the two of eBPF"
    assert privileges.missing("Name:\tx\n") == list(privileges.NEEDED)


def test_only_sys_admin_sets_uprobes() -> None:
    assert "CAP_SYS_ADMIN" in privileges.marks_refused(status(BPF, PERFMON, SYS_PTRACE, DAC_READ_SEARCH))
    assert privileges.marks_refused(status(SYS_ADMIN)) == ""
