# SPDX-License-Identifier: Apache-2.0
"""Memory that a thread compacts for itself is time in which it waits for memory, not computing of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kernel.observing import observe
from trainprobe.bpf.probes import Probes
from trainprobe.model.cells import Leaf

TRIGGER = Path("/proc/sys/vm/compact_memory")
BODY = """
import time
begun = time.monotonic()
while time.monotonic() - begun < 0.5:
    with open("/proc/sys/vm/compact_memory", "w") as file:
        file.write("1")
"""


@pytest.mark.skipif(not TRIGGER.exists(), reason="this kernel compacts no memory")
def test_compaction_is_waiting_for_memory(probes: Probes) -> None:
    if any("compaction" in one for one in probes.missing()):
        pytest.skip("this kernel has no tracepoints of compaction")
    told = observe(probes, BODY)
    assert told.status == 0
    assert told.seconds(Leaf.RECLAIM) > 0.25
