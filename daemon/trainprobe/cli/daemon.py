"""Finds the trainings of this host by itself, watches them and publishes what it knows below /run/trainprobe.

examples:
  trainprobe daemon --config /etc/trainprobe/trainprobe.yaml

This is what the systemd unit runs. It opens no network port. SIGHUP reads the configuration again (a file with
errors is refused and the old one stays in force), SIGTERM ends it and leaves nothing behind."""

from __future__ import annotations

import argparse
import os
from contextlib import closing
from pathlib import Path

from trainprobe.bpf.errors import ProbesUnavailable
from trainprobe.bpf.load.loader import Compiling
from trainprobe.cli import FAILED, FORBIDDEN, OK, WRONG, Refusal, configuration, loaded
from trainprobe.config.parse import ConfigError
from trainprobe.config.schema import TargetsConfig
from trainprobe.runtime.publishing import rundir
from trainprobe.runtime.session import privileges
from trainprobe.text.saying import saying, word


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", type=Path, metavar="FILE", help="another file than /etc/trainprobe/trainprobe.yaml")
    parser.add_argument(
        "--state",
        type=Path,
        default=_state_directory(),
        metavar="DIR",
        help="keep the history there (default: the unit's state directory, else /var/lib/trainprobe)",
    )
    parser.add_argument(
        "--directory", type=Path, default=rundir.DIRECTORY, metavar="DIR", help="publish there (default: %(default)s)"
    )


def act(args: argparse.Namespace) -> int:
    if missing := privileges.missing() + privileges.missing_to_publish(rundir.group_id()):
        reason = saying("the daemon needs {names}", names=", ".join(missing))
        raise Refusal(FORBIDDEN, reason, word("run it as root: systemctl start trainprobe"))
    try:
        config = configuration.of_daemon(args.config)
    except ConfigError as error:
        raise Refusal(WRONG, word("the configuration has errors:"), details=error.as_sayings) from None
    with closing(Compiling(auto=hears_of_others(config.targets))) as compiling:
        # Two thirds of what is imported is wanted only behind the compiler, which takes longer.
        host_watch = loaded("trainprobe.cli.host_watch")
        try:
            host_watch.watch(args.config, config, args.directory, args.state, compiling)
        except ProbesUnavailable as error:
            raise Refusal(FAILED, error.reason, error.remedy) from None
    return OK


def hears_of_others(targets: TargetsConfig) -> bool:
    """Whether the kernel should tell of processes that are not watched: some of them may have to be."""
    return bool(targets.auto or targets.include)


def _state_directory() -> Path:
    """Where systemd says, else the usual place."""
    return Path(os.environ.get("STATE_DIRECTORY", "").partition(":")[0] or rundir.STATE)
