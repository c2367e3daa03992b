"""Results that are kept until what they were made of changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

Made = TypeVar("Made")


class Memo:
    """One result of each function. Code that changes their inputs clears it."""

    def __init__(self) -> None:
        self._made: dict[Callable[..., Any], Any] = {}
        self.edition = 0
        """How often it was cleared."""

    def get(self, make: Callable[..., Made], *arguments: Any) -> Made:
        """The kept result of ``make``, or a new one."""
        if make not in self._made:
            self._made[make] = make(*arguments)
        made: Made = self._made[make]
        return made

    def clear(self) -> None:
        self._made.clear()
        self.edition += 1
