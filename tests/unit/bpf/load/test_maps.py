"""Which library reads the maps."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
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


class Producing:
    """A libbpf whose ring gets another message as soon as one was taken."""

    def __init__(self) -> None:
        self.taken = 0

    def ring_buffer__new(self, descriptor: int, callback: Callable[..., int], *rest: object) -> int:
        self.callback = callback
        return 1

    def ring_buffer__consume(self, ring: object) -> int:
        message = ctypes.create_string_buffer(4096)
        while self.taken < 2000:
            self.taken += 1
            if (error := self.callback(None, ctypes.addressof(message), len(message))) < 0:
                return error
        return 0


def test_a_drain_ends_while_programs_go_on_and_nothing_is_lost() -> None:
    lib = Producing()
    ring = maps.Ring(lib, 3)  # type: ignore[arg-type]
    for turn in (1, 2):
        assert len(ring.drain()) == maps.DRAINED // 4096
        assert lib.taken == turn * maps.DRAINED // 4096


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
