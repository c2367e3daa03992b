"""Stalls as annotations in Grafana: taken from each report, spooled, sent one by one, again where it must be."""

from __future__ import annotations

import asyncio
import os
import random
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from trainprobe.config.schema import Grafana
from trainprobe.model.report import Report
from trainprobe.text.saying import Saying, saying, word
from trainprobe_exporters.annotation import annotations_of
from trainprobe_exporters.catalogue import ANNOTATION_OUTCOMES, BY_NAME, PREFIX
from trainprobe_exporters.console import tell
from trainprobe_exporters.grafana_api import GrafanaApi, RefusedError, UnreachableError
from trainprobe_exporters.readings import Reading
from trainprobe_exporters.spool import Spool, SpoolEntry

SOURCE = "grafana"
CREDENTIAL = "grafana_token"
SPOOL_NAME = "annotations.sqlite"
LOOK_SECONDS = 5.0
FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 300.0


def state_directory() -> Path:
    """The exporter's own: the unit's StateDirectory, else /var/lib/trainprobe-exporter."""
    named = os.environ.get("STATE_DIRECTORY", "").split(":")[0]
    return Path(named or "/var/lib/trainprobe-exporter")


def token_path(config: Grafana) -> Path | None:
    """Where the token lies: the file of the configuration, else the unit's credential ``grafana_token``."""
    if config.token_file:
        return Path(config.token_file)
    credentials = os.environ.get("CREDENTIALS_DIRECTORY", "")
    return Path(credentials) / CREDENTIAL if credentials else None


def api(config: Grafana) -> GrafanaApi:
    """Raises OSError when a file that the configuration names cannot be used."""
    path = token_path(config)
    if path is None:
        raise OSError(0, word("no token: set token_file, or LoadCredential=grafana_token:… in the unit"))

    def token() -> str:
        return path.read_text(encoding="ascii", errors="replace").strip()

    token()
    return GrafanaApi(config.url, token, config.ca_file)


def failed() -> Iterator[Reading]:
    """What there is to tell when it could not even begin."""
    yield Reading(BY_NAME[PREFIX + "source_up"], (SOURCE,), 0)


class Pusher:
    """Sends what the reports tell until it is cancelled. ``report`` gives the latest one."""

    def __init__(self, config: Grafana, grafana: GrafanaApi, spool: Spool, report: Callable[[], Report | None]) -> None:
        self._config = config
        self._grafana = grafana
        self._spool = spool
        self._report = report
        self._generated = 0.0
        self._pause = FIRST_PAUSE_SECONDS
        self._problem: Saying | None = None
        self._errors = 0
        self._took: float | None = None

    async def run(self) -> None:
        try:
            while True:
                try:
                    self.spool_news()
                    wait = await self.send()
                except sqlite3.Error as error:
                    wait = self._failed(saying("the spool cannot be used: {error}", error=error), None)
                await self._idle(wait)
        finally:
            self._spool.close()

    async def _idle(self, seconds: float) -> None:
        """Wait that long before the next sending; what comes up meanwhile is spooled."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            await asyncio.sleep(min(left, LOOK_SECONDS))
            try:
                self.spool_news()
            except sqlite3.Error:
                return

    def spool_news(self) -> None:
        """Spool what is new in the latest report. Raises sqlite3.Error."""
        report = self._report()
        if report is None or report.generated == self._generated:
            return
        minimum, details = self._config.minimum_seconds, self._config.details
        self._spool.put(list(annotations_of(report, minimum_seconds=minimum, details=details)))
        self._generated = report.generated

    async def send(self) -> float:
        """Send all that is spooled, or what goes; returns the seconds to wait then. Raises sqlite3.Error."""
        while (entry := self._spool.next()) is not None:
            begun = time.monotonic()
            try:
                await self._send(entry)
            except UnreachableError as error:
                return self._failed(saying(str(error)), error.after)
            except RefusedError as error:
                tell(saying("Grafana refused an annotation, which is given up: {error}", error=error))
                self._errors += 1
                self._spool.finish(entry.annotation, entry.known_as, "refused")
            self._took = time.monotonic() - begun
            self._works()
        return LOOK_SECONDS

    def readings(self) -> Iterator[Reading]:
        labels = (SOURCE,)
        yield Reading(BY_NAME[PREFIX + "source_up"], labels, int(not self._problem))
        yield Reading(BY_NAME[PREFIX + "source_errors_total"], labels, self._errors)
        if self._took is not None:
            yield Reading(BY_NAME[PREFIX + "source_duration_seconds"], labels, round(self._took, 6))
        try:
            counts, pending = self._spool.counts, self._spool.pending
        except sqlite3.Error:
            return
        for outcome in ANNOTATION_OUTCOMES:
            yield Reading(BY_NAME[PREFIX + "annotations_total"], (outcome,), counts.get(outcome, 0))
        yield Reading(BY_NAME[PREFIX + "annotations_pending"], (), pending)

    async def _send(self, entry: SpoolEntry) -> None:
        loop, annotation = asyncio.get_running_loop(), entry.annotation
        number = entry.known_as
        if number is None and entry.sent_as is not None:
            number = await loop.run_in_executor(None, self._grafana.find, annotation, entry.sent_as)
        if number is None:
            self._spool.mark(annotation)
            number = await loop.run_in_executor(None, self._grafana.create, annotation)
            self._spool.finish(annotation, number, "sent")
            return
        is_there = await loop.run_in_executor(None, self._grafana.change, number, annotation)
        self._spool.finish(annotation, number if is_there else None, "changed" if is_there else "refused")

    def _failed(self, reason: Saying, after: float | None) -> float:
        """Note it and return how long to wait: twice as long each time, with chance in it, so that a fleet spreads."""
        self._errors += 1
        if reason != self._problem:
            tell(saying("Grafana: {why}; will try again, what is new is kept", why=reason))
        self._problem = reason
        pause = max(after or 0.0, self._pause * random.uniform(0.5, 1.0))
        self._pause = min(2 * self._pause, LONGEST_PAUSE_SECONDS)
        return min(pause, LONGEST_PAUSE_SECONDS)

    def _works(self) -> None:
        if self._problem:
            tell(word("Grafana takes annotations again"))
        self._problem, self._pause = None, FIRST_PAUSE_SECONDS
