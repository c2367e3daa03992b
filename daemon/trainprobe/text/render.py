"""What the programs say, and what reports say, in the reader's language. What has no translation stays English."""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

from trainprobe.model.dataclass import dataclass
from trainprobe.model.message import Message, text_of
from trainprobe.model.report import SENTENCES
from trainprobe.text.catalogue import catalogue
from trainprobe.text.saying import Saying, Text, filled

Part = TypeVar("Part")


@dataclass(frozen=True, slots=True)
class Speaker:
    language: str = "en"

    def say(self, template: str, **values: object) -> str:
        """A sentence of the program, given in English, with its values."""
        text = template if self.language == "en" else catalogue(self.language).programs.get(template, template)
        return filled(text, {name: self.localized(value) for name, value in values.items()})

    def localized(self, what: object) -> object:
        """A value of a sentence: a sentence, or an error that says one, in this language; others as they are."""
        what = getattr(what, "as_saying", what)
        return self.say(what.template, **what.values) if isinstance(what, Saying) else what

    def text(self, what: Text) -> str:
        if isinstance(what, Message):
            return self.message(what, str(what))
        return self.say(what) if isinstance(what, str) else self.say(what.template, **what.values)

    def message(self, message: Message, otherwise: str) -> str:
        """A message of a report; ``otherwise`` where it has no text in this language: it is of another version."""
        return text_of(message, otherwise, catalogue(self.language).messages.get)

    def report(self, part: Part) -> Part:
        """A report, or a part of one, whose sentences are in this language."""
        return part if self.language == "en" else self._localized_value(part)

    def _localized_value(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._localized_value(one) for one in value]
        if isinstance(value, dict):
            return {key: self._localized_value(one) for key, one in value.items()}
        if not dataclasses.is_dataclass(value) or isinstance(value, (type, Message)):
            return value
        made = {field.name: self._localized_value(getattr(value, field.name)) for field in dataclasses.fields(value)}
        for text, source in SENTENCES.get(value.__class__, {}).items():
            if isinstance(made[text], str):
                made[text] = made[text] if made[source] is None else self.message(made[source], made[text])
            elif len(made[source]) == len(made[text]):
                made[text] = [self.message(*pair) for pair in zip(made[source], made[text])]
        return value.__class__(**made)
