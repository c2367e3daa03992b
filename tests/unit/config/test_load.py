"""Reading a file: bounded, plain YAML only, and every refusal says what is wrong and where."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trainprobe.config.load import SIZE_LIMIT, load
from trainprobe.config.parse import ConfigError
from trainprobe.config.plain_yaml import DEPTH_LIMIT
from trainprobe.config.schema import DaemonConfig, ExporterConfig
from trainprobe.config.web import WebConfig
from trainprobe.text.render import Speaker


def refusal(path: Path, text: str | bytes) -> str:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    os.utime(path, (0, 0))  # not just now: that is waited for
    with pytest.raises(ConfigError) as caught:
        load(DaemonConfig, path)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    return message[len(f"{path}: ") :]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "trainprobe.yaml"


def test_a_file_is_read(file: Path) -> None:
    file.write_text("targets:\n  exclude:\n    commands: ['*jupyter*']\nprivacy: {paths: false}\n")
    config = load(DaemonConfig, file)
    assert config.targets.exclude.commands == ("*jupyter*",)
    assert not config.privacy.paths


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n", "targets:\n"])
def test_an_empty_file_is_all_defaults(file: Path, text: str) -> None:
    file.write_text(text)
    assert load(DaemonConfig, file) == DaemonConfig()


def test_a_missing_file_is_the_defaults_unless_it_was_named(file: Path) -> None:
    assert load(DaemonConfig, file, required=False) == DaemonConfig()
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        load(DaemonConfig, file)


class Writing:
    """Somebody writes a file, a part whenever the reader waits, by a clock of their own."""

    def __init__(self, file: Path, parts: list[str]) -> None:
        self.file, self.parts, self.now = file, parts, time.time_ns()
        file.write_text("")
        self.write()

    def write(self) -> None:
        if self.parts:
            with self.file.open("a") as out:
                out.write(self.parts.pop(0))
            os.utime(self.file, ns=(self.now, self.now))

    def time_ns(self) -> int:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += int(seconds * 1e9) + 1
        self.write()


def test_a_file_that_is_being_written_is_read_when_it_is_whole(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An editor empties it and writes it in parts: each of them would be a configuration."""
    parts = ["", "thresholds:\n", "  stall_factor: 3.0\n", "privacy:\n  paths: false\n"]
    monkeypatch.setattr("trainprobe.config.load.time", Writing(file, parts))
    config = load(DaemonConfig, file)
    assert (config.thresholds.stall_factor, config.privacy.paths) == (3.0, False)


def test_a_file_that_is_written_to_all_the_time_is_read_all_the_same(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writing = Writing(file, ["privacy: {paths: false}\n", *["# and more\n"] * 1000])
    monkeypatch.setattr("trainprobe.config.load.time", writing)
    assert not load(DaemonConfig, file).privacy.paths
    assert len(writing.parts) > 900


def test_a_folder_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        load(DaemonConfig, tmp_path, required=False)


def test_all_errors_of_the_file_are_told(file: Path) -> None:
    lines = refusal(file, "tresholds: {}\nprivacy: {stacks: 3}\n").splitlines()
    assert lines == [
        "tresholds: unknown key; did you mean thresholds?",
        f"{file}: privacy.stacks: must be true or false, not 3",
    ]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("- a\n- b\n", "must hold keys and values, not a list"),
        ("targets: {auto: true}\nprivacy: {}\ntargets: {}\n", "line 3, column 1: key 'targets' stands twice"),
        ("privacy: {paths: true, paths: false}\n", "line 1, column 24: key 'paths' stands twice"),
        ("targets: {auto: true\n", "line 2, column 1: while parsing a flow mapping, expected ',' or '}'"),
        ("a: &x [1]\nb: *x\n", "anchors and aliases are not supported"),
        ("record: {path: !!python/object/apply:os.getcwd []}\n", "tags are not supported"),
        ("retention: {days: 2001-99-99}\n", "no valid YAML"),
        ("a: 1\n---\nb: 2\n", "expected a single document in the stream, but found another document"),
        ("? [1, 2]\n: 3\n", "found unhashable key"),
        (b"privacy: \xff\n", "not UTF-8 at byte 9"),
        ("a: \x07\n", "no valid YAML"),
        ("[" * 1000, f"nested deeper than {DEPTH_LIMIT}"),
        ("#" * (SIZE_LIMIT + 1), f"larger than {SIZE_LIMIT} bytes"),
    ],
)
def test_what_is_no_plain_yaml_is_refused_with_the_reason(file: Path, text: str | bytes, says: str) -> None:
    assert says in refusal(file, text)


@given(st.text(alphabet="aprivcy:-[]{}&*!?|>'\"#%@`, \n\t012.~=<", max_size=60))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_text_is_a_configuration_or_a_refusal(file: Path, text: str) -> None:
    file.write_text(text)
    try:
        load(DaemonConfig, file)
    except ConfigError as error:
        assert error.problems


EACH_ERROR = {
    DaemonConfig: (
        "tresholds: {}\n",
        "surely_not_a_key: 1\n",
        "privacy: {stacks: 3}\nrecord: {path: x, bytes: 5}\nretention: {days: soon}\n",
        "targets: [a]\nthresholds: {stall_factor: 1.0}\n",
        "targets: {include: {commands: {a: b}}}\npython_stack: {path: 3}\n",
        "targets: {include: {uids: [-1, x, null, [1]]}}\n",
        "- a\n",
        "privacy: {paths: true, paths: false}\n",
        "a: &x [1]\n",
        "a: !!int 3\n",
        "privacy:\n\tpaths: true\n",
        "privacy: {paths: [1\n",
        "privacy\npaths: 1\n",
        "privacy: paths: 1\n",
        "privacy:\n  paths: 1\n stacks: 1\n",
        'a: "b\n',
        "a: 1\n---\nb: 2\n",
        "[" * 1000,
        "#" * (SIZE_LIMIT + 1),
    ),
    ExporterConfig: (
        "tls: {key: /a}\nbasic_auth: {username: x}\n",
        "grafana: {token_file: /a}\nlisten: nowhere\n",
        "grafana: {url: 'ftp://x'}\nrun_linger_seconds: -1\n",
        "web_config: /w.yml\ntls: {certificate: /c.pem, key: /k.pem}\n",
    ),
    WebConfig: (
        "tls_server_config: {cert_file: a, min_version: SSL3, client_auth_type: RequestClientCert}\n",
        "tls_server_config: {client_auth_type: RequireAndVerifyClientCert, client_ca_file: x}\n",
        "http_server_config: {headers: {Server: x, X-Frame-Options: 'é', X-XSS-Protection: 1}}\n",
        "basic_auth_users: {a: b, 'c:d': $2y$17$" + "a" * 53 + "}\n",
    ),
}


@pytest.mark.parametrize(("kind", "text"), [(kind, text) for kind, texts in EACH_ERROR.items() for text in texts])
def test_what_is_wrong_is_told_in_the_reader_s_language(file: Path, kind: type, text: str) -> None:
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load(kind, file)
    for problem in caught.value.as_sayings:
        told = Speaker("zh").text(problem).removeprefix(f"{file}：")
        assert re.search("[\u4e00-\u9fff]", told), told
        assert not re.search("[a-z]{2,} [a-z]{2,} [a-z]{2,}", told), told


def test_a_file_that_cannot_be_read_is_told_in_the_reader_s_language(file: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(DaemonConfig, file)
    assert [*map(Speaker("zh").text, caught.value.as_sayings)] == [f"{file}：无法读取：没有这个文件或目录"]
    file.write_bytes(b"privacy: \xff\n")
    with pytest.raises(ConfigError) as caught:
        load(DaemonConfig, file)
    assert [*map(Speaker("zh").text, caught.value.as_sayings)] == [f"{file}：第 9 个字节处不是 UTF-8"]
