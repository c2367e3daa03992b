"""Every key of trainprobe.yaml and exporter.yaml: its type, default, bounds and meaning, written down once.

A section is a frozen dataclass; a field is a key. Types are bool, int, float, str, tuples of int or str, and sections.
The parser and docs/configuration.md are driven by these declarations, the programs read the values with their types.
Sizes are bytes, times are in the unit that the key names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import field
from typing import Any

from trainprobe.model.dataclass import dataclass
from trainprobe.text.saying import Saying, saying, word

_HTTP_URL = re.compile(r"https?://[^\s/?#@]+(/[^\s?#]*)?")

Problems = Iterator[tuple[str, "str | Saying"]]
"""(key below the section, what is wrong with it): what a section says of keys that must go together."""


def key(
    default: Any, meaning: str, *, minimum: float | None = None, above: float | None = None, absolute: bool = False
) -> Any:
    """A key of a section. ``minimum`` is allowed, ``above`` is not; ``absolute``: a path from /."""
    bounds = {"minimum": minimum, "above": above, "absolute": absolute}
    return field(default=default, metadata={"meaning": meaning, **bounds})


def section(kind: type, meaning: str) -> Any:
    """A key that holds further keys."""
    return field(default_factory=kind, metadata={"meaning": meaning})


@dataclass(frozen=True, slots=True)
class Matches:
    """Which processes are meant. A process matches when any entry of any key matches it."""

    commands: tuple[str, ...] = key((), "shell patterns (`*`, `?`, `[…]`) for the whole command line")
    uids: tuple[int, ...] = key((), "numbers of the users that own the process", minimum=0)
    cgroups: tuple[str, ...] = key((), "shell patterns for the cgroup path, as in /proc/PID/cgroup")

    def __bool__(self) -> bool:
        return bool(self.commands or self.uids or self.cgroups)


@dataclass(frozen=True, slots=True)
class TargetsConfig:
    auto: bool = key(True, "find trainings by themselves: processes that map libtorch and step")
    include: Matches = section(
        Matches, "watch these too, even before they step; with `auto: false` only these are watched"
    )
    exclude: Matches = section(Matches, "never watch these, whatever else matches")


@dataclass(frozen=True, slots=True)
class Thresholds:
    stall_factor: float = key(1.5, "a step is a stall when it takes longer than this many baselines", above=1.0)
    stall_minimum_seconds: float = key(0.05, "and is at least this much longer than the baseline", minimum=0.0)


@dataclass(frozen=True, slots=True)
class Checkpoints:
    patterns: tuple[str, ...] = key(
        (), "shell patterns of further files that are checkpoints, beside the names that trainprobe knows"
    )


@dataclass(frozen=True, slots=True)
class PythonStack:
    enabled: bool = key(True, "take the Python stack of a stalled training thread with py-spy")
    path: str = key("", "the py-spy program; empty: the one beside trainprobe, else on PATH", absolute=True)


@dataclass(frozen=True, slots=True)
class Record:
    path: str = key(
        "", "file that the daemon records every frame to, for `trainprobe replay`; empty: none", absolute=True
    )
    bytes: int = key(1_000_000_000, "the recording ends when the file has grown to this", minimum=1_000_000)


@dataclass(frozen=True, slots=True)
class Retention:
    days: float = key(30.0, "history older than this is deleted", above=0.0)
    bytes: int = key(1_000_000_000, "and so is the oldest, while the history takes more than this", minimum=1_000_000)


@dataclass(frozen=True, slots=True)
class Privacy:
    stacks: bool = key(True, "keep Python stacks in reports")
    command_lines: bool = key(True, "keep command lines in reports (arguments that look like secrets never are)")
    paths: bool = key(True, "keep paths of files in reports; otherwise their last part only")
    labels: bool = key(False, "put command, user and Slurm job name on `trainprobe_run_info`")


@dataclass(frozen=True, slots=True)
class BudgetConfig:
    cpu: float = key(
        0.05, "processors that the daemon may use over a minute; above it leaves things out; 0: any", minimum=0.0
    )


@dataclass(frozen=True, slots=True)
class DaemonConfig:
    """/etc/trainprobe/trainprobe.yaml"""

    targets: TargetsConfig = section(TargetsConfig, "which processes are watched")
    thresholds: Thresholds = section(Thresholds, "when a step counts as a stall; both limits must be passed")
    checkpoints: Checkpoints = section(Checkpoints, "what counts as a checkpoint")
    python_stack: PythonStack = section(PythonStack, "Python stacks of stalls")
    record: Record = section(Record, "recording of everything that the core is told")
    retention: Retention = section(Retention, "how long history is kept below /var/lib/trainprobe")
    privacy: Privacy = section(Privacy, "what may be kept and published")
    budget: BudgetConfig = section(BudgetConfig, "what watching may cost")


@dataclass(frozen=True, slots=True)
class Tls:
    certificate: str = key("", "PEM file with the certificate chain; empty: plain HTTP", absolute=True)
    key: str = key("", "PEM file with its private key", absolute=True)

    def problems(self) -> Problems:
        if bool(self.certificate) != bool(self.key):
            missing = "key" if self.certificate else "certificate"
            yield missing, word("certificate and key are given together or not at all")


@dataclass(frozen=True, slots=True)
class BasicAuth:
    username: str = key("", "name that opens the page and the API beside the token; empty: the token only")
    password_file: str = key("", "file that holds its password", absolute=True)

    def problems(self) -> Problems:
        if bool(self.username) != bool(self.password_file):
            missing = "password_file" if self.username else "username"
            yield missing, word("username and password_file are given together or not at all")


@dataclass(frozen=True, slots=True)
class Grafana:
    url: str = key("", "base URL of a Grafana server that stalls are written to as annotations; empty: off")
    token_file: str = key(
        "",
        "file that holds the service account's token; empty: the unit's credential `grafana_token` (LoadCredential=)",
        absolute=True,
    )
    ca_file: str = key("", "PEM file with the authority of its certificate; empty: the system's", absolute=True)
    minimum_seconds: float = key(1.0, "stalls shorter than this are not written", minimum=0.0)
    details: bool = key(
        False, "write the stall's whole sentence, which may name files and functions, not cause and seconds alone"
    )

    def problems(self) -> Problems:
        if self.token_file and not self.url:
            yield "url", word("must be given with token_file")
        if self.url and not _HTTP_URL.fullmatch(self.url):
            yield (
                "url",
                saying(
                    "must be http:// or https:// with a host, without name, query and fragment, not {value}",
                    value=repr(self.url),
                ),
            )


@dataclass(frozen=True, slots=True)
class ExporterConfig:
    """/etc/trainprobe/exporter.yaml"""

    listen: str = key("127.0.0.1:19752", "address and port of the HTTP server; `[::1]:19752` for IPv6")
    allowed_hosts: tuple[str, ...] = key(
        (),
        "further names (shell patterns) by which `/metrics` and health may be asked for: a proxy's, a service's;"
        " addresses, loopback names and this host's own names always may",
    )
    web_config: str = key(
        "",
        "file in the form of Prometheus's web configuration (TLS, names with bcrypt hashes), which then guards"
        " everything, `/metrics` too; instead of `tls` and `basic_auth`; `--web.config.file` is the same",
        absolute=True,
    )
    tls: Tls = section(Tls, "HTTPS instead of HTTP; a renewed certificate is taken without a restart")
    basic_auth: BasicAuth = section(
        BasicAuth, "a name and password that open the page and the API; `/metrics` stays open"
    )
    grafana: Grafana = section(Grafana, "annotations pushed to Grafana, exact to the millisecond; off without `url`")
    run_linger_seconds: float = key(300.0, "how long a run's series stay after its end", minimum=0.0)

    def problems(self) -> Problems:
        host, colon, port = self.listen.rpartition(":")
        if not colon or not host or not (port.isascii() and port.isdigit()) or not 0 < int(port[:6]) < 65536:
            what = saying("must be ADDRESS:PORT with a port of 1 to 65535, not {value}", value=repr(self.listen))
            yield "listen", what
        if self.web_config and (self.tls.certificate or self.basic_auth.username):
            yield "web_config", word("takes the place of tls and basic_auth: give one or the other")
