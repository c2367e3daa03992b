"""GPU performance monitoring (GPM) through NVML, on Hopper and later: how much of the time the tensor cores worked.

The counters run by themselves; a figure is the difference of two samples. Others may take samples at the same time.
"""

from __future__ import annotations

import math
from typing import Any


class Unsupported(Exception):
    """This GPU has no such counters."""


class TensorCores:
    """Of one GPU. What NVML refuses raises its own error."""

    def __init__(self, nvml: Any, handle: Any) -> None:
        """Raises Unsupported."""
        self._nvml, self._handle = nvml, handle
        if not nvml.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice:
            raise Unsupported
        self._next, self._last = nvml.nvmlGpmSampleAlloc(), nvml.nvmlGpmSampleAlloc()
        self._taken = False

    def active(self) -> float | None:
        """The part of the time since the last call in which they worked; None for the first call."""
        nvml = self._nvml
        nvml.nvmlGpmSampleGet(self._handle, self._next)
        before, self._last, self._next = self._last, self._next, self._last
        if not self._taken:
            self._taken = True
            return None
        asked = nvml.c_nvmlGpmMetricsGet_t(
            version=nvml.NVML_GPM_METRICS_GET_VERSION, numMetrics=1, sample1=before, sample2=self._last
        )
        asked.metrics[0].metricId = nvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL
        told = nvml.nvmlGpmMetricsGet(asked).metrics[0]
        percent: float = told.value
        if told.nvmlReturn != nvml.NVML_SUCCESS or not math.isfinite(percent):
            return None
        return min(1.0, max(0.0, percent / 100))

    def close(self) -> None:
        for sample in (self._next, self._last):
            self._nvml.nvmlGpmSampleFree(sample)
