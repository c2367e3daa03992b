"""Saying things in a language. English is the key: a template such as "{lost} of {wall} lost" with named values.

What the programs say themselves goes through ``Speaker.say`` with its values. What a report says (summaries, advice,
chains, evidence) is finished English, because scripts and alerts read reports: ``Speaker.told`` finds the templates
that a sentence was made from, and says it anew. What is in no catalogue stays English.
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
LONGEST = 1000  # characters of a sentence that is looked up
DEEPEST = 4  # sentences within sentences
KNOWN = 4000  # sentences kept
TAIL = re.compile(r"[,;:(]| (?:\(|on |in |by |to |from )")
AMOUNT = r"\d[\d.,]*(?: [A-Za-z%]+(?: \d\d [a-z]+)?)?"  # 12, 1.2 GB, 5 min 12 s
FREE = ("_path", "_text", "_told")
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
    with_tail: re.Pattern[str]
    template: str
    fixed: int  # characters that are no values: the more, the surer

    @classmethod
    def of(cls, english: str, template: str) -> Pattern:
        expression = _PLACE.sub(_group, re.escape(english))
        tail = rf"{expression}(?P<tail>(?:{TAIL.pattern}).+)"
        fixed = len(_PLACE.sub("", re.escape(english)).replace("\\", ""))
        return cls(re.compile(expression, re.DOTALL), re.compile(tail, re.DOTALL), template, fixed)


def _group(place: re.Match[str]) -> str:
    """A value is one word; one whose name ends in one of FREE may have several, an amount has a unit, a path begins
    as paths do."""
    name = place[1]
    if name.endswith("_amount"):
        return rf"(?P<{name}>{AMOUNT})"
    if name.endswith("_path"):
        return f"(?P<{name}>[/~.<].*?)"
    return f"(?P<{name}>.+?)" if name.endswith(FREE) else rf"(?P<{name}>\S+?)"


@dataclass(frozen=True, slots=True)
class Reading:
    """A sentence in the other language, and how many of its characters were known."""

    text: str
    fixed: int


@dataclass(slots=True)
class Speaker:
    """One language. Values whose name ends in ``_told`` are sentences themselves, or parts of one."""

    language: str = "en"
    _catalogue: Mapping[str, str] = field(init=False)
    _heads: list[Pattern] = field(default_factory=list)
    _tails: list[Pattern] = field(default_factory=list)
    _known: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._catalogue = CATALOGUES.get(self.language, {})

    def say(self, template: str, **values: object) -> str:
        """The template in this language, with its values."""
        return self._catalogue.get(template, template).format(**values) if values else self.word(template)

    def word(self, text: str) -> str:
        """A text without values in this language."""
        return self._catalogue.get(text, text)

    def told(self, sentence: str) -> str:
        """A finished English sentence in this language, as far as the catalogue knows it."""
        if not self._catalogue or not sentence or len(sentence) > LONGEST:
            return sentence
        if sentence not in self._known:
            if len(self._known) >= KNOWN:
                self._known.clear()
            reading = self._read(sentence, 0)
            self._known[sentence] = reading.text if reading is not None else sentence
        return self._known[sentence]

    def _read(self, sentence: str, depth: int, *, tail: bool = False) -> Reading | None:
        """The reading that knows most of the sentence; None where it is not known at all."""
        exact = self._catalogue.get(sentence)
        if exact is not None and not places(sentence):
            return Reading(exact, len(sentence))
        if depth > DEEPEST:
            return None
        best: Reading | None = None
        for pattern in self._patterns(tail):
            for reading in self._readings(pattern, sentence, depth):
                if best is None or reading.fixed > best.fixed:
                    best = reading
        return best

    def _readings(self, pattern: Pattern, sentence: str, depth: int) -> list[Reading]:
        out = []
        whole = pattern.expression.fullmatch(sentence)
        if whole:
            out.append(self._filled(pattern, whole.groupdict(), depth))
        parts = pattern.with_tail.fullmatch(sentence)
        if parts:
            values = parts.groupdict()
            tail = self._read(values.pop("tail"), depth + 1, tail=True)
            if tail is not None:
                head = self._filled(pattern, values, depth)
                out.append(Reading(head.text + tail.text, head.fixed + tail.fixed))
        return out

    def _filled(self, pattern: Pattern, values: dict[str, str], depth: int) -> Reading:
        fixed, filled = pattern.fixed, {}
        for name, value in values.items():
            inner = self._read(value, depth + 1) if name.endswith("_told") else None
            filled[name] = value if inner is None else inner.text
            fixed += 0 if inner is None else inner.fixed
        return Reading(pattern.template.format(**filled), fixed)

    def _patterns(self, tail: bool) -> list[Pattern]:
        if not self._heads:
            for english, other in self._catalogue.items():
                if any(mark.isalpha() for mark in english):
                    made = Pattern.of(english, other)
                    (self._tails if TAIL.match(english) else self._heads).append(made)
        return self._tails if tail else self._heads
