"""Parsing: all of it right, or every error at once with the dotted path of its key."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainprobe.config.parse import ConfigError, Problem, parse
from trainprobe.config.schema import DaemonConfig, ExporterConfig


def problems(kind: type, data: object) -> dict[str, str]:
    with pytest.raises(ConfigError) as caught:
        parse(kind, data)
    return {problem.path: str(problem.text) for problem in caught.value.problems}


@pytest.mark.parametrize("empty", [None, {}, {"targets": None}, {"thresholds": {}}])
def test_what_is_not_there_has_its_default(empty: object) -> None:
    assert parse(DaemonConfig, empty) == DaemonConfig()


def test_defaults_are_those_of_the_contract() -> None:
    daemon, exporter = DaemonConfig(), ExporterConfig()
    assert daemon.targets.auto
    assert (daemon.thresholds.stall_factor, daemon.thresholds.stall_minimum_seconds) == (1.5, 0.05)
    assert not daemon.privacy.labels
    assert exporter.listen == "127.0.0.1:19752"
    assert exporter.run_linger_seconds == 300
    assert (exporter.grafana.url, exporter.tls.certificate, exporter.basic_auth.username) == ("", "", "")


def test_values_are_taken_with_their_types() -> None:
    config = parse(
        DaemonConfig,
        {
            "targets": {"auto": False, "include": {"commands": ["*train*.py*"], "uids": [1000, 0]}},
            "thresholds": {"stall_factor": 2},
            "python_stack": {"path": "/opt/py-spy"},
        },
    )
    assert config.targets.include.commands == ("*train*.py*",)
    assert config.targets.include.uids == (1000, 0)
    assert not config.targets.auto
    assert type(config.thresholds.stall_factor) is float
    assert config.thresholds.stall_factor == 2.0
    assert config.python_stack.path == "/opt/py-spy"


def test_every_error_is_told_at_once_with_its_path() -> None:
    found = problems(
        DaemonConfig,
        {
            "target": {},
            "targets": {"auto": "yes", "include": {"uids": [1, "root", -3], "command": ["x"]}},
            "thresholds": {"stall_factor": 1.0, "stall_minimum_seconds": None},
            "privacy": ["stacks"],
            "python_stack": {"path": "py-spy"},
            "retention": {"days": math.inf, "bytes": 1.5},
        },
    )
    assert found == {
        "target": "unknown key; did you mean targets?",
        "targets.auto": "must be true or false, not 'yes'",
        "targets.include.uids[1]": "must be a whole number, not 'root'",
        "targets.include.uids[2]": "must be at least 0, not -3",
        "targets.include.command": "unknown key; did you mean commands?",
        "thresholds.stall_factor": "must be above 1, not 1.0",
        "thresholds.stall_minimum_seconds": "must be a number, not nothing",
        "privacy": "must hold keys and values, not a list",
        "python_stack.path": "must be a path from /, not 'py-spy'",
        "retention.days": "must be a number, not inf",
        "retention.bytes": "must be a whole number, not 1.5",
    }


def test_an_unknown_key_like_no_other_is_answered_with_those_known() -> None:
    assert problems(DaemonConfig, {"checkpoints": {"zzzz": 1}}) == {
        "checkpoints.zzzz": "unknown key; known here: patterns"
    }


@pytest.mark.parametrize("data", ["text", 3, [], [{}]])
def test_a_file_that_is_no_mapping_is_one_error(data: object) -> None:
    assert list(problems(DaemonConfig, data)) == [""]


def test_true_is_no_number_and_text_is_no_list() -> None:
    assert set(problems(DaemonConfig, {"thresholds": {"stall_factor": True}, "checkpoints": {"patterns": "*.pt"}})) == {
        "thresholds.stall_factor",
        "checkpoints.patterns",
    }


@pytest.mark.parametrize("listen", ["127.0.0.1:9000", "[::1]:1", "localhost:65535"])
def test_listen_takes_address_and_port(listen: str) -> None:
    assert parse(ExporterConfig, {"listen": listen}).listen == listen


@pytest.mark.parametrize(
    "listen", ["19752", ":19752", "host:", "host:0", "host:65536", "host:٣", "host:1" + "0" * 5000]
)
def test_listen_refuses_what_names_no_address_and_port(listen: str) -> None:
    assert set(problems(ExporterConfig, {"listen": listen})) == {"listen"}


@pytest.mark.parametrize(
    ("data", "path"),
    [
        ({"tls": {"certificate": "/c.pem"}}, "tls.key"),
        ({"tls": {"key": "/k.pem"}}, "tls.certificate"),
        ({"basic_auth": {"username": "ada"}}, "basic_auth.password_file"),
        ({"grafana": {"token_file": "/t"}}, "grafana.url"),
        ({"grafana": {"url": "https://ann:secret@g", "token_file": "/t"}}, "grafana.url"),
        ({"grafana": {"url": "https://g?orgId=1", "token_file": "/t"}}, "grafana.url"),
        ({"grafana": {"url": "ftp://g", "token_file": "/t"}}, "grafana.url"),
    ],
)
def test_keys_that_go_together_are_asked_for_together(data: object, path: str) -> None:
    assert set(problems(ExporterConfig, data)) == {path}


def test_an_error_names_the_file_on_every_line() -> None:
    error = ConfigError([Problem("a.b", "wrong"), Problem("", "worse")], "x.yaml")
    assert str(error) == "x.yaml: a.b: wrong\nx.yaml: worse"


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8) | st.integers(), inner, max_size=3),
    max_leaves=8,
)
names = st.sampled_from(
    ["targets", "include", "uids", "commands", "thresholds", "stall_factor", "listen", "tls", "key"]
)


@given(st.dictionaries(names, plain | st.dictionaries(names, plain, max_size=3), max_size=4))
def test_whatever_comes_is_a_configuration_or_an_error(data: dict[str, object]) -> None:
    for kind in (DaemonConfig, ExporterConfig):
        try:
            assert isinstance(parse(kind, data), kind)
        except ConfigError as error:
            assert error.problems
            assert all(problem.text for problem in error.problems)
