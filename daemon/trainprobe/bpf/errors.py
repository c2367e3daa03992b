# SPDX-License-Identifier: Apache-2.0
"""Why there are no probes."""

from __future__ import annotations


class ProbesUnavailable(Exception):
    """The kernel cannot be watched: ``reason`` in one sentence, ``remedy`` what a person can do about it."""

    def __init__(self, reason: str, remedy: str) -> None:
        super().__init__(f"{reason} ({remedy})" if remedy else reason)
        self.reason = reason
        self.remedy = remedy
