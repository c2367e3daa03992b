"""Which library reads the maps."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace

import pytest

from trainprobe.bpf.errors import ProbesUnavailable
from trainprobe.bpf.load import maps


class Library:
    """Has whatever function it is asked for."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __getattr__(self, function: str) -> SimpleNamespace:
        return SimpleNamespace()


@pytest.mark.parametrize(
    ("there", "taken"),
    [
        (("libbpf.so.1", "libbcc_bpf.so.0"), "libbpf.so.1"),
        (("libbpf.so.0", "libbcc_bpf.so.0"), "libbpf.so.0"),
        (("libbcc_bpf.so.0",), "libbcc_bpf.so.0"),
        ((), None),
    ],
)
def test_bccs_own_library_is_the_last_choice(
    monkeypatch: pytest.MonkeyPatch, there: tuple[str, ...], taken: str | None
) -> None:
    """It brings along the libraries of C++, of which 1.9 MB stay in memory."""

    def load(name: str, use_errno: bool) -> Library:
        if name not in there:
            raise OSError(f"{name}: no such file")
        return Library(name)

    monkeypatch.setattr(ctypes, "CDLL", load)
    if taken is None:
        with pytest.raises(ProbesUnavailable, match=r"libbpf\.so\.1: no such file"):
            maps.library()
    else:
        assert maps.library().name == taken
