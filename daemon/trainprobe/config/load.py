"""A configuration file from disk. The only place that knows YAML: bounded, and plain data only comes out."""

from __future__ import annotations

import os
import time
from collections.abc import Hashable
from pathlib import Path
from typing import Any, TypeVar

import yaml

from trainprobe.config.parse import ConfigError, Problem, parse

Config = TypeVar("Config")

EXPORTER_PATH = Path("/etc/trainprobe/exporter.yaml")
SIZE_LIMIT = 64 * 1024
DEPTH_LIMIT = 16
ATTEMPTS, QUIET_SECONDS = 10, 0.02  # a file that was written to just now is read again


def load(kind: type[Config], path: Path, *, required: bool = True) -> Config:
    """The configuration in the file ``path``; the defaults where it is not there and not ``required``.

    Raises ConfigError: unreadable, no YAML, or anything that does not fit ``kind`` (all of that at once).
    """
    try:
        return parse(kind, _read(path))
    except FileNotFoundError as error:
        if required:
            raise ConfigError([Problem("", _reason(error))], str(path)) from None
        return parse(kind, {})
    except OSError as error:
        raise ConfigError([Problem("", _reason(error))], str(path)) from None
    except ConfigError as error:
        raise ConfigError(error.problems, str(path)) from None


def _settled(path: Path) -> bytes:
    """Its bytes, when it was not written to meanwhile: half a file may look like a whole one."""
    for _ in range(ATTEMPTS):
        with path.open("rb") as file:
            before = os.fstat(file.fileno())
            raw = file.read(SIZE_LIMIT + 1)
            after = os.fstat(file.fileno())
        if (before.st_mtime_ns, before.st_size) == (after.st_mtime_ns, after.st_size) and _is_old(after.st_mtime_ns):
            break
        time.sleep(QUIET_SECONDS)
    return raw


def _is_old(mtime_ns: int) -> bool:
    return abs(time.time_ns() - mtime_ns) > QUIET_SECONDS * 1e9


def _read(path: Path) -> object:
    raw = _settled(path)
    if len(raw) > SIZE_LIMIT:
        raise ConfigError([Problem("", f"larger than {SIZE_LIMIT} bytes")])
    try:
        return yaml.load(raw.decode(), Loader=_PlainLoader)
    except UnicodeDecodeError as error:
        raise ConfigError([Problem("", f"not UTF-8 at byte {error.start}")]) from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        what = ", ".join(part for part in (error.context, error.problem) if part)
        raise ConfigError([Problem("", f"{where}{what}")]) from None
    except (yaml.YAMLError, ValueError) as error:
        # ValueError: text of the form of a date that is none.
        raise ConfigError([Problem("", f"no valid YAML: {error}")]) from None


def _reason(error: OSError) -> str:
    return f"cannot be read: {error.strerror or error}"


class _PlainLoader(yaml.SafeLoader):
    """Mappings, lists and scalars; no aliases, no tags, no key twice, not deeper than DEPTH_LIMIT."""

    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise yaml.composer.ComposerError(None, None, "anchors and aliases are not supported", event.start_mark)
        if getattr(event, "tag", None):
            raise yaml.composer.ComposerError(None, None, "tags are not supported", event.start_mark)
        if self.depth > DEPTH_LIMIT:
            raise yaml.composer.ComposerError(None, None, f"nested deeper than {DEPTH_LIMIT}", event.start_mark)
        self.depth += 1
        try:
            return super().compose_node(parent, index)
        finally:
            self.depth -= 1

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[Hashable] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, Hashable) and key in seen:
                raise yaml.constructor.ConstructorError(None, None, f"key {key!r} stands twice", key_node.start_mark)
            seen.add(key if isinstance(key, Hashable) else id(key_node))
        return super().construct_mapping(node, deep)
