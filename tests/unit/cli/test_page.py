"""`trainprobe page`: the address of the live page, with the token that the exporter made."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from trainprobe.cli import main
from trainprobe.cli import page as verb
from trainprobe_exporters.access import tell_address, token_in


def call(directory: Path, *arguments: str) -> int:
    return main(["page", "--directory", str(directory), *arguments])


@pytest.mark.parametrize(
    ("told", "shown"),
    [
        ("http://127.0.0.1:4711", "http://127.0.0.1:4711/?token="),
        ("https://[::1]:19752", "https://[::1]:19752/?token="),
        ("http://0.0.0.0:80", "http://127.0.0.1:80/?token="),
        ("http://[::]:80", "http://127.0.0.1:80/?token="),
        ("javascript:alert(1)", "http://127.0.0.1:19752/?token="),
    ],
)
def test_the_address_is_the_exporters_with_its_token(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, told: str, shown: str
) -> None:
    monkeypatch.setattr(verb, "_answers", lambda address: True)
    token = token_in(tmp_path)
    tell_address(tmp_path, told)
    assert call(tmp_path) == 0
    assert capsys.readouterr().out == f"{shown}{token}\n"


def test_an_exporter_that_is_gone_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    token_in(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as server:
        tell_address(tmp_path, f"http://127.0.0.1:{server.getsockname()[1]}")
        assert call(tmp_path) == 0
    capsys.readouterr()
    assert call(tmp_path) == 1
    told = capsys.readouterr()
    assert told.out == ""
    assert "the exporter is gone" in told.err
    assert "systemctl restart trainprobe-exporter" in told.err


def test_behind_a_proxy_the_address_is_the_proxys(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    token = token_in(tmp_path)
    for url in ("https://host/node7/trainprobe", "https://host/node7/trainprobe/"):
        assert call(tmp_path, "--url", url) == 0
        assert capsys.readouterr().out == f"https://host/node7/trainprobe/?token={token}\n"


@pytest.mark.parametrize("url", ["host", "ftp://host/", "https://host/?a=b", "https://ho st/"])
def test_what_is_no_address_is_refused(tmp_path: Path, url: str) -> None:
    with pytest.raises(SystemExit) as ended:
        call(tmp_path, "--url", url)
    assert ended.value.code == 2


def test_without_an_exporter_it_says_how_to_get_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(tmp_path) == 1
    assert "systemctl start trainprobe-exporter" in capsys.readouterr().err


def test_who_may_not_read_the_token_is_told_who_may(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root may read everything, so the refusal is played."""

    def refusing(path: Path) -> str:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(verb, "_line", refusing)
    assert call(tmp_path) == 3
    assert "adduser NAME trainprobe" in capsys.readouterr().err
