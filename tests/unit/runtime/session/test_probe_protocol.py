"""The language between the two halves of `run`, and the pipe that it goes through."""

from __future__ import annotations

import json
import os
import threading

import pytest

from trainprobe.runtime.session import line_protocol, probe_protocol
from trainprobe.runtime.session.probe_protocol import Order
from trainprobe.wire.codec import WireError


def test_an_order_comes_as_it_was_given() -> None:
    given = Order(
        7, ["python", b"\xff".decode("utf-8", "surrogateescape")], True, False, {"targets": {"auto": True}}, "zh"
    )
    assert probe_protocol.decode(probe_protocol.encode(given)) == given


@pytest.mark.parametrize("line", [b"", b"{}", b'{"order": 2, "pid": 1}', b'{"order": 1}', b'{"order": 1, "pid": "x"}'])
def test_what_is_no_order_is_refused(line: bytes) -> None:
    with pytest.raises(WireError):
        probe_protocol.decode(line)


def test_a_frame_goes_through_unread() -> None:
    assert probe_protocol.frame_of(probe_protocol.frame_message('{"at":[1,2]}')) == b'{"at":[1,2]}'
    assert probe_protocol.frame_of(probe_protocol.message(probe_protocol.READY, True)) is None


def test_lines_come_whole_however_they_were_cut() -> None:
    reading, writing = os.pipe()
    reader = line_protocol.LineReader(reading)
    assert reader.read() == []
    seen = []
    for part in (b"on", b"e\ntw", b"o\n\nthree"):
        os.write(writing, part)
        seen.append(reader.read())
    assert seen == [[], [b"one"], [b"two", b""]]
    os.close(writing)
    assert reader.read() == []
    assert reader.ended
    os.close(reading)


def test_a_long_line_goes_through_a_short_pipe() -> None:
    reading, writing = os.pipe()
    reader, seen = line_protocol.LineReader(reading), []

    def read() -> None:
        while not seen:
            seen.extend(reader.read())

    thread = threading.Thread(target=read)
    thread.start()
    line_protocol.write(writing, b"x" * 1_000_000)
    thread.join(timeout=10)
    assert [len(line) for line in seen] == [1_000_000]
    os.close(reading)
    os.close(writing)


def test_what_comes_without_a_pause_is_taken_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else all that a fast writer has would be in memory at once."""
    monkeypatch.setattr(line_protocol, "AT_ONCE", 4)
    reading, writing = os.pipe()
    os.write(writing, b"one\ntwo\n")
    reader = line_protocol.LineReader(reading)
    assert [reader.read(), reader.read(), reader.read()] == [[b"one"], [b"two"], []]
    os.close(reading)
    os.close(writing)


def test_a_file_comes_in_bounded_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe_protocol, "PIECE", 3)
    sent = [json.loads(line) for line in probe_protocol.file_messages(["seven77", "", "é"])]
    assert sent == [{"file": "sev"}, {"file": "en7"}, {"file": "7"}, {"file": "é"}, {"whole": True}]


def test_a_line_without_end_ends_the_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_protocol, "LIMIT", 1000)
    reading, writing = os.pipe()
    os.write(writing, b"x" * 5000)
    reader = line_protocol.LineReader(reading)
    assert reader.read() == []
    assert reader.ended
    os.close(reading)
    os.close(writing)


def test_the_pid_of_the_child_follows_the_order() -> None:
    assert probe_protocol.child_of(probe_protocol.child(4711)) == 4711


def test_the_end_says_for_what_terminal_the_text_is() -> None:
    assert probe_protocol.end_of([probe_protocol.end({"width": 80}, file=True)]) == ({"width": 80}, True)


@pytest.mark.parametrize("lines", [[], [b""], [b"{}"], [b"[1]"], [b'{"end":true}'], [b"\xff"]])
def test_without_a_terminal_it_is_for_a_file(lines: list[bytes]) -> None:
    assert probe_protocol.end_of(lines) == ({}, False)


@pytest.mark.parametrize("line", [b"", b"{}", b'{"child":0}', b'{"child":true}', b'{"child":"7"}', b"[7]", b"\xff"])
def test_what_names_no_child_is_refused(line: bytes) -> None:
    with pytest.raises(WireError):
        probe_protocol.child_of(line)
