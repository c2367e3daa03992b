"""YAML as plain data. The only place that knows YAML."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import yaml

from trainprobe.config.parse import ConfigError, Problem

DEPTH_LIMIT = 16


def plain(text: str) -> object:
    """Mappings, lists and scalars. Raises ConfigError."""
    try:
        return yaml.load(text, Loader=_PlainLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        what = ", ".join(part for part in (error.context, error.problem) if part)
        raise ConfigError([Problem("", f"{where}{what}")]) from None
    except (yaml.YAMLError, ValueError) as error:
        # ValueError: text of the form of a date that is none.
        raise ConfigError([Problem("", f"no valid YAML: {error}")]) from None


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
