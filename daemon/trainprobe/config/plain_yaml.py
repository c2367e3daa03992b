"""YAML as plain data. The only place that knows YAML."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import yaml

from trainprobe.config.parse import ConfigError, Problem
from trainprobe.text.saying import Saying, saying, word

DEPTH_LIMIT = 16
PARSER = (
    word("while parsing a block mapping"),
    word("while parsing a block collection"),
    word("while parsing a flow mapping"),
    word("while parsing a flow sequence"),
    word("while parsing a flow node"),
    word("while constructing a mapping"),
    word("while scanning for the next token"),
    word("while scanning a simple key"),
    word("while scanning a quoted scalar"),
    word("could not find expected ':'"),
    word("found unexpected end of stream"),
    word("found character '\\t' that cannot start any token"),
    word("found unhashable key"),
    word("mapping values are not allowed here"),
    word("expected <block end>, but found '<scalar>'"),
    word("expected <block end>, but found '<block mapping start>'"),
    word("expected <block end>, but found '-'"),
    word("expected ',' or ']', but got '<stream end>'"),
    word("expected a single document in the stream"),
    word("but found another document"),
)
"""What PyYAML says most often: here for the translators. The rest of it stays English."""


def plain(text: str) -> object:
    """Mappings, lists and scalars. Raises ConfigError."""
    try:
        return yaml.load(text, Loader=_PlainLoader)
    except yaml.MarkedYAMLError as error:
        raise ConfigError([Problem("", _located(error))]) from None
    except (yaml.YAMLError, ValueError) as error:
        # ValueError: text of the form of a date that is none.
        raise ConfigError([Problem("", saying("no valid YAML: {error}", error=error))]) from None


def _located(error: yaml.MarkedYAMLError) -> Saying:
    said: object = error.problem  # ours are sayings
    problem = said if isinstance(said, Saying) else saying(str(said))
    what = saying("{context}, {problem}", context=saying(error.context), problem=problem) if error.context else problem
    if (mark := error.problem_mark) is None:
        return what
    return saying("line {line}, column {column}: {what}", line=mark.line + 1, column=mark.column + 1, what=what)


class _PlainLoader(yaml.SafeLoader):
    """Mappings, lists and scalars; no aliases, no tags, no key twice, not deeper than DEPTH_LIMIT."""

    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise yaml.composer.ComposerError(
                None, None, word("anchors and aliases are not supported"), event.start_mark
            )
        if getattr(event, "tag", None):
            raise yaml.composer.ComposerError(None, None, word("tags are not supported"), event.start_mark)
        if self.depth > DEPTH_LIMIT:
            problem: Any = saying("nested deeper than {levels}", levels=DEPTH_LIMIT)
            raise yaml.composer.ComposerError(None, None, problem, event.start_mark)
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
                problem: Any = saying("key {key} stands twice", key=repr(key))
                raise yaml.constructor.ConstructorError(None, None, problem, key_node.start_mark)
            seen.add(key if isinstance(key, Hashable) else id(key_node))
        return super().construct_mapping(node, deep)
