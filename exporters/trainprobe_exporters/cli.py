"""trainprobe-exporter: reads what the daemon publishes, serves it to Prometheus; needs no rights of its own."""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import signal
import sqlite3
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import trainprobe
from trainprobe.config.load import EXPORTER_PATH, load
from trainprobe.config.parse import ConfigError, Problem
from trainprobe.config.schema import ExporterConfig
from trainprobe.model.dataclass import dataclass
from trainprobe.text import command_line
from trainprobe.text.catalogue import LANGUAGES, chosen
from trainprobe.text.saying import saying, word
from trainprobe.wire.report import decode
from trainprobe_exporters import grafana
from trainprobe_exporters.access import runtime_directory, tell_address, token_in
from trainprobe_exporters.admission import Admission
from trainprobe_exporters.console import speak, tell
from trainprobe_exporters.families import SeriesTable
from trainprobe_exporters.history import HISTORY_PATH, History
from trainprobe_exporters.hosts import Hosts
from trainprobe_exporters.http import Server
from trainprobe_exporters.notify import notify
from trainprobe_exporters.protection import Protection, protection, reason
from trainprobe_exporters.publication import Publication
from trainprobe_exporters.routes import Routes
from trainprobe_exporters.source import SnapshotReader
from trainprobe_exporters.spool import Spool

OK, FAILED, USAGE, NOT_PERMITTED = 0, 1, 2, 3
SNAPSHOT_PATH = Path("/run/trainprobe/report.json")
SOCKET_NAME = "exporter.sock"

_ADDRESS = re.compile(r"(\[(?P<v6>[0-9A-Fa-f:.%\w]+)\]|(?P<host>[^\[\]:\s]+)):(?P<port>[0-9]{1,5})")

_EPILOG = word("""\
what it serves (default http://127.0.0.1:19752):
  /metrics         all metrics, as Prometheus text or OpenMetrics     curl -s localhost:19752/metrics
  /-/healthy       200 while the exporter runs
  /-/ready         200 while all is well, else 503 with the reasons   curl -s localhost:19752/-/ready
  /                the live page, with the token; `trainprobe page` prints its address
  /api/v1/report   the daemon's whole report, JSON, with the token that the exporter writes to its runtime
                   directory:  curl -H "Authorization: Bearer $(cat /run/trainprobe-exporter/token)" …
  /api/v1/stalls?since=UNIX_SECONDS   the stalls of it, also run= and rank=
  /api/v1/steps?run=NAME&rank=0&since=UNIX_SECONDS&points=1000   what its steps took, by state
  all of it without a token to the group of its unix socket:
                   curl -s --unix-socket /run/trainprobe-exporter/exporter.sock http://localhost/api/v1/report

in Prometheus:
  scrape_configs: [{job_name: trainprobe, static_configs: [{targets: ["localhost:19752"]}]}]

The daemon (`trainprobe daemon`) publishes /run/trainprobe/report.json for the group trainprobe; run the exporter in it.
The configuration is read again on SIGHUP. Exit codes: 0 ended by a signal, 1 failed (the port is taken, say),
2 wrong arguments or configuration, 3 not permitted.""")


@dataclass(frozen=True)
class Arguments:
    config: Path | None
    listen: tuple[str, int] | None
    snapshot: Path
    web_config: Path | None = None
    history: Path = HISTORY_PATH


def main(arguments: Sequence[str] | None = None) -> int:
    parsed = _parse(arguments)
    try:
        config = configuration(parsed.config)
        protected = protection(config, parsed.web_config)
    except ConfigError as error:
        tell(*error.as_sayings)
        return USAGE
    try:
        return asyncio.run(_run(parsed, config, protected))
    except PermissionError as error:
        tell(saying("not permitted: {why} (ports below 1024 need CAP_NET_BIND_SERVICE)", why=reason(error)))
        return NOT_PERMITTED
    except OSError as error:
        why = saying(os.strerror(error.errno)) if error.errno else reason(error)
        tell(saying("cannot listen: {why}", why=why))
        return FAILED


def configuration(path: Path | None) -> ExporterConfig:
    """The configuration in the file, the defaults where there is none. Raises ConfigError."""
    config = load(ExporterConfig, path or EXPORTER_PATH, required=path is not None)
    if config.grafana.url:
        try:
            grafana.api(config.grafana)
        except OSError as error:
            raise ConfigError([Problem("grafana", reason(error))], str(path or EXPORTER_PATH)) from None
    return config


def address(text: str) -> tuple[str, int]:
    """ADDRESS:PORT, [IPv6]:PORT; port 0 lets the kernel choose. Raises ValueError."""
    found = _ADDRESS.fullmatch(text)
    if found is None or int(found["port"]) > 65535:
        raise ValueError(f"must be ADDRESS:PORT, not {text!r}")
    return found["v6"] or found["host"], int(found["port"])


async def _run(arguments: Arguments, config: ExporterConfig, protected: Protection) -> int:
    loop = asyncio.get_running_loop()
    stop, reload = asyncio.Event(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    loop.add_signal_handler(signal.SIGHUP, reload.set)
    series = SeriesTable(linger_seconds=config.run_linger_seconds)
    publication = Publication(SnapshotReader(arguments.snapshot, decode), series, trainprobe.__version__)
    routes = Routes(publication, Admission(_token()), History(arguments.history))
    server = Server(routes.answer)
    _protect(protected, routes, server, _hosts(arguments, config, protected))
    await _listen_locally(server)
    await server.listen(*(arguments.listen or address(config.listen)))
    _tell_address(server)
    pushing = _push(config, publication)
    notify("READY=1")
    while not await _signalled(stop, reload):
        notify(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")
        former, config = config, await _reload(arguments, config, series, routes, server)
        if config.grafana != former.grafana:
            await _stop(pushing)
            pushing = _push(config, publication)
        notify("READY=1")
    notify("STOPPING=1")
    await _stop(pushing)
    await server.close()
    return OK


def _push(config: ExporterConfig, publication: Publication) -> asyncio.Task[None] | None:
    """Begin to write annotations, if the configuration asks for it."""
    publication.further = tuple
    if not config.grafana.url:
        return None
    path = grafana.state_directory() / grafana.SPOOL_NAME
    try:
        spool, api = Spool(path), grafana.api(config.grafana)
    except (OSError, sqlite3.Error) as error:
        tell(saying("no annotations for Grafana: {path}: {error}", path=path, error=error))
        publication.further = grafana.failed
        return None
    pusher = grafana.Pusher(config.grafana, api, spool, publication.report)
    publication.further = pusher.readings
    return asyncio.create_task(pusher.run())


async def _stop(pushing: asyncio.Task[None] | None) -> None:
    if pushing is not None:
        pushing.cancel()
        await asyncio.wait([pushing])


async def _signalled(stop: asyncio.Event, reload: asyncio.Event) -> bool:
    """Wait for a signal; whether it says stop."""
    waits = [asyncio.ensure_future(event.wait()) for event in (stop, reload)]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for wait in waits:
        wait.cancel()
    reload.clear()
    return stop.is_set()


async def _reload(
    arguments: Arguments, old: ExporterConfig, series: SeriesTable, routes: Routes, server: Server
) -> ExporterConfig:
    """The new configuration, in force; the old one where the file is refused or its address cannot be had."""
    try:
        new = configuration(arguments.config)
        protected = protection(new, arguments.web_config)
        moves = arguments.listen is None and new.listen != old.listen
        if moves:
            await server.listen(*address(new.listen))
    except (ConfigError, OSError) as error:
        tell(*(error.as_sayings if isinstance(error, ConfigError) else [reason(error)]))
        tell(word("not reloaded: the configuration in force stays"))
        return old
    was_encrypted = server.tls is not None
    _protect(protected, routes, server, _hosts(arguments, new, protected))
    if moves or was_encrypted != (server.tls is not None):
        _tell_address(server)
    series.slots.linger_seconds = new.run_linger_seconds
    tell(word("configuration reloaded"))
    return new


def _hosts(arguments: Arguments, config: ExporterConfig, protected: Protection) -> Hosts | None:
    """By which names this exporter may be asked; any by TLS, where the certificate says it."""
    if protected.tls is not None:
        return None
    host, _ = arguments.listen or address(config.listen)
    hosts = Hosts(host, config.allowed_hosts)
    if not host.startswith("127.") and host not in ("::1", "localhost"):
        threading.Thread(target=hosts.learn_name, daemon=True).start()  # nobody asks by it where loopback alone listens
    return hosts


def _protect(protected: Protection, routes: Routes, server: Server, hosts: Hosts | None) -> None:
    admission = Admission(routes.admission.token, protected.passwords, protected.guards_all, hosts)
    routes.admission, server.recognise = admission, admission.recognise
    server.tls, server.headers = protected.tls, protected.headers


def _tell_address(server: Server) -> None:
    host, port = server.address
    shown = f"[{host}]" if ":" in host else host
    scheme = "https" if server.tls else "http"
    url = f"{scheme}://{shown}:{port}"
    try:
        tell_address(runtime_directory(), url)
    except OSError as error:
        tell(saying("`trainprobe page` cannot be told where this is ({why})", why=reason(error)))
    tell(saying("listening on {url}", url=url))


async def _listen_locally(server: Server) -> None:
    path = runtime_directory() / SOCKET_NAME
    try:
        await server.listen_local(path)
    except OSError as error:
        tell(saying("no unix socket {path} ({why}): the rest is served", path=path, why=reason(error)))


def _token() -> str | None:
    directory = runtime_directory()
    try:
        return token_in(directory)
    except OSError as error:
        why = reason(error)
        tell(saying("no token in {directory} ({why}): /api is shut, /metrics is served", directory=directory, why=why))
        return None


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="trainprobe-exporter",
        description=word("Serves what the trainprobe daemon publishes: metrics for Prometheus, health, the report."),
        epilog=_EPILOG,
        formatter_class=command_line.HelpText,
        allow_abbrev=False,
    )
    made.add_argument(
        "--config", type=Path, metavar="FILE", help="configuration (default: /etc/trainprobe/exporter.yaml)"
    )
    made.add_argument(
        "--listen", type=_listen_address, metavar="ADDR", help="address and port, instead of the configuration's"
    )
    made.add_argument(
        "--snapshot",
        type=Path,
        metavar="PATH",
        default=SNAPSHOT_PATH,
        help="the daemon's report (default: %(default)s)",
    )
    made.add_argument(
        "--history",
        type=Path,
        metavar="DIR",
        default=HISTORY_PATH,
        help="the history that the daemon publishes (default: %(default)s)",
    )
    made.add_argument(
        "--web.config.file",
        dest="web_config",
        type=Path,
        metavar="FILE",
        help="TLS and passwords in the form of Prometheus's web configuration, instead of the configuration's",
    )
    made.add_argument(
        "--lang", choices=LANGUAGES, help="language of what is printed (default: LANG's, else English): %(choices)s"
    )
    made.add_argument("--version", action="version", version=f"%(prog)s {trainprobe.__version__}")
    return made


def _listen_address(text: str) -> tuple[str, int]:
    try:
        return address(text)
    except ValueError:
        raise command_line.invalid(saying("must be ADDRESS:PORT, not {text}", text=repr(text))) from None


def _parse(arguments: Sequence[str] | None) -> Arguments:
    language = chosen(command_line.asked_language(sys.argv[1:] if arguments is None else arguments), os.environ)
    speak(language)
    with command_line.spoken_in(language):
        given = parser().parse_args(arguments)
    return Arguments(given.config, given.listen, given.snapshot, given.web_config, given.history)


if __name__ == "__main__":
    sys.exit(main())
