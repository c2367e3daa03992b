"""GPU performance monitoring (GPM) through NVML, on Hopper and later: what a GPU did between two samples.

The counters run by themselves; a figure is the difference of two samples. Others may take samples at the same time. One
sample takes 0.14 ms, where the driver's utilisation samples and PCIe rates together take 4 ms of CPU (H100, 580.159).
"""

from __future__ import annotations

import math
from typing import Any

from trainprobe.model.dataclass import dataclass

MIB = 1 << 20


class Unsupported(Exception):
    """This GPU has no such counters."""


@dataclass(frozen=True, slots=True)
class Worked:
    """Between two samples: parts of the time in which a kernel ran, and in which tensor cores worked; bytes a second
    over PCIe. None: not told."""

    utilization: float | None = None
    tensor_active: float | None = None
    receive: int | None = None
    transmit: int | None = None


class GpmReader:
    """Of one GPU. What NVML refuses raises its own error."""

    def __init__(self, nvml: Any, handle: Any) -> None:
        """Raises Unsupported."""
        self._nvml, self._handle = nvml, handle
        if not nvml.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice:
            raise Unsupported
        self._next, self._last = nvml.nvmlGpmSampleAlloc(), nvml.nvmlGpmSampleAlloc()
        self._metrics = (
            nvml.NVML_GPM_METRIC_GRAPHICS_UTIL,
            nvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL,
            nvml.NVML_GPM_METRIC_PCIE_RX_PER_SEC,
            nvml.NVML_GPM_METRIC_PCIE_TX_PER_SEC,
        )
        self._taken = False

    def worked(self) -> Worked:
        """Since the last call; of the first one nothing is known."""
        nvml = self._nvml
        nvml.nvmlGpmSampleGet(self._handle, self._next)
        before, self._last, self._next = self._last, self._next, self._last
        if not self._taken:
            self._taken = True
            return Worked()
        asked = nvml.c_nvmlGpmMetricsGet_t(
            version=nvml.NVML_GPM_METRICS_GET_VERSION,
            numMetrics=len(self._metrics),
            sample1=before,
            sample2=self._last,
        )
        for place, metric in enumerate(self._metrics):
            asked.metrics[place].metricId = metric
        told = nvml.nvmlGpmMetricsGet(asked).metrics
        busy, tensor, receive, transmit = (self._value(told[place]) for place in range(len(self._metrics)))
        return Worked(_part(busy), _part(tensor), _bytes(receive), _bytes(transmit))

    def _value(self, told: Any) -> float | None:
        value: float = told.value
        return value if told.nvmlReturn == self._nvml.NVML_SUCCESS and math.isfinite(value) else None

    def close(self) -> None:
        for sample in (self._next, self._last):
            self._nvml.nvmlGpmSampleFree(sample)


def _part(percent: float | None) -> float | None:
    return None if percent is None else min(1.0, max(0.0, percent / 100))


def _bytes(mib: float | None) -> int | None:
    return None if mib is None else round(max(0.0, mib) * MIB)
