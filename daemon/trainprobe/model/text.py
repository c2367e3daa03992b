"""Enumerations whose members are their own text (StrEnum needs Python 3.11; 3.10 is supported)."""

from __future__ import annotations

from enum import Enum


class StrEnum(str, Enum):
    """A member is its value wherever text is wanted: f-strings, JSON, labels."""

    __str__ = str.__str__
    __format__ = str.__format__  # type: ignore[assignment]
