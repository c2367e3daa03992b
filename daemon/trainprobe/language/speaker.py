"""Saying things in a language. English is the key: a template such as "{lost} of {wall} lost" with named values.

What the programs say themselves goes through ``Speaker.say`` with its values. What a report says (summaries, advice,
chains, evidence) is finished English, because scripts and alerts read reports: ``Speaker.told`` finds the template that
a sentence was made from, and says it anew. What is in no catalogue stays English.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from string import Formatter

from trainprobe.language.chinese import CHINESE

LANGUAGES = ("en", "zh")
CATALOGUES: dict[str, Mapping[str, str]] = {"zh": CHINESE}
VARIABLES = ("LC_ALL", "LC_MESSAGES", "LANG")
LONGEST = 2000  # characters of a sentence that is looked up
FREE = ("_text", "_told")
_PLACE = re.compile(r"\\\{(\w+)\\\}")


def chosen(asked: str | None, environment: Mapping[str, str]) -> str:
    """The language that was asked for, else the environment's where there is a catalogue for it, else English."""
    if asked:
        return asked
    set_ = next((environment[name] for name in VARIABLES if environment.get(name)), "")
    return next((language for language in CATALOGUES if set_.lower().startswith(language)), "en")


def places(template: str) -> frozenset[str]:
    """The names of a template's values."""
    return frozenset(name for _, name, _, _ in Formatter().parse(template) if name)


@dataclass(frozen=True, slots=True)
class Pattern:
    """A template turned round: it reads its values out of a finished sentence."""

    expression: re.Pattern[str]
    template: str
    fixed: int  # characters that are no values: the more, the more specific

    @classmethod
    def of(cls, english: str, template: str) -> Pattern:
        expression = _PLACE.sub(_group, re.escape(english))
        return cls(re.compile(expression, re.DOTALL), template, len(_PLACE.sub("", re.escape(english))))


def _group(place: re.Match[str]) -> str:
    """A value is one word; one whose name ends in ``_text`` or ``_told`` may have several."""
    name = place[1]
    return f"(?P<{name}>.+?)" if name.endswith(FREE) else rf"(?P<{name}>\S+?)"


@dataclass(slots=True)
class Speaker:
    """One language. Values whose name ends in ``_told`` are sentences themselves."""

    language: str = "en"
    _catalogue: Mapping[str, str] = field(init=False)
    _patterns: list[Pattern] = field(default_factory=list)
    _known: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._catalogue = CATALOGUES.get(self.language, {})

    def say(self, template: str, **values: object) -> str:
        """The template in this language, with its values."""
        chosen_template = self._catalogue.get(template, template)
        return chosen_template.format(**values) if values else chosen_template

    def told(self, sentence: str) -> str:
        """A finished English sentence in this language, as far as the catalogue knows it."""
        if not self._catalogue or not sentence or len(sentence) > LONGEST:
            return sentence
        if sentence not in self._known:
            if len(self._known) > 2000:
                self._known.clear()
            self._known[sentence] = self._anew(sentence, 0)
        return self._known[sentence]

    def _anew(self, sentence: str, depth: int) -> str:
        exact = self._catalogue.get(sentence)
        if exact is not None and not places(sentence):
            return exact
        if depth > 4:
            return sentence
        for pattern in self._ordered():
            found = pattern.expression.fullmatch(sentence)
            if found:
                values = {
                    name: self._anew(value, depth + 1) if name.endswith("_told") else value
                    for name, value in found.groupdict().items()
                }
                return pattern.template.format(**values)
        return sentence

    def _ordered(self) -> list[Pattern]:
        if not self._patterns:
            made = [Pattern.of(english, other) for english, other in self._catalogue.items() if places(english)]
            self._patterns = sorted(made, key=lambda pattern: -pattern.fixed)
        return self._patterns
