"""What watching adds to a call, counted by guests with the distribution's kernels, is within its limits."""

from __future__ import annotations

import shutil

import pytest

from benchmarks.instructions.__main__ import main
from benchmarks.instructions.limits import KERNELS


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kernel", KERNELS)
def test_no_call_takes_more_instructions_than_its_limit(kernel: str, capsys: pytest.CaptureFixture[str]) -> None:
    if shutil.which("qemu-system-x86_64") is None:
        pytest.fail("no qemu-system-x86_64; as root run: apt-get install -y qemu-system-x86")
    code = main(["--kernel", kernel])
    told = capsys.readouterr()
    assert code == 0, told.out + told.err
