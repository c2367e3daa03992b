"""What the capabilities of a process allow."""

from __future__ import annotations

import os

from trainprobe.runtime.session import privileges

CHOWN, BPF, PERFMON, SYS_PTRACE, DAC_READ_SEARCH, SYS_ADMIN = 0, 39, 38, 19, 2, 21


def status(*bits: int) -> str:
    return f"Name:\tx\nCapEff:\t{sum(1 << bit for bit in bits):016x}\n"


def test_each_capability_that_is_missing_is_named() -> None:
    assert privileges.missing(status(SYS_PTRACE, PERFMON)) == ["CAP_BPF", "CAP_DAC_READ_SEARCH"]
    assert privileges.missing(status(SYS_PTRACE, DAC_READ_SEARCH, SYS_ADMIN)) == [], "it covers the two of eBPF"
    assert privileges.missing("Name:\tx\n") == list(privileges.NEEDED)


def test_reports_are_given_to_a_group_by_its_member_or_with_chown() -> None:
    other = next(gid for gid in range(60_000, 60_100) if gid not in (os.getegid(), *os.getgroups()))
    assert privileges.missing_to_publish(-1, status()) == [], "there is no such group"
    assert privileges.missing_to_publish(os.getegid(), status()) == []
    assert privileges.missing_to_publish(other, status(CHOWN)) == []
    [told] = privileges.missing_to_publish(other, status(SYS_ADMIN))
    assert "CAP_CHOWN" in told


def test_only_sys_admin_sets_uprobes() -> None:
    assert "CAP_SYS_ADMIN" in str(privileges.marks_refused(status(BPF, PERFMON, SYS_PTRACE, DAC_READ_SEARCH)))
    assert privileges.marks_refused(status(SYS_ADMIN)) is None
