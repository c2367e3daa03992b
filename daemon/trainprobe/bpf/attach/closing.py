# SPDX-License-Identifier: Apache-2.0
"""Closing probes: the kernel takes its time to let go of each."""

from __future__ import annotations

import os
import threading


def close_in_background(descriptors: list[list[int]]) -> None:
    """Without waiting."""
    every = [one for some in descriptors for one in some]
    if every:
        threading.Thread(target=close_all, args=(every,), name="closing-probes", daemon=True).start()


def close_all(descriptors: list[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
