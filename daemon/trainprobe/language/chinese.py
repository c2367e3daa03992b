"""English templates and what they are in Chinese."""

from __future__ import annotations

CHINESE: dict[str, str] = {}
