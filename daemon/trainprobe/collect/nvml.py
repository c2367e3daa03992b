"""NVIDIA GPUs by NVML, read beside the loop: calls on a lost GPU may never return.

A thread reads all GPUs about once a second. One whose call does not come back is left behind with that thread, another
thread goes on with the others. Every figure is optional: what a GPU does not support is None. Handles die when a
container's devices are set up anew (systemctl daemon-reload): then everything is opened again, with growing pauses.
"""

from __future__ import annotations

import ctypes
import signal
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import field
from typing import Any

from trainprobe.collect.gpm import GpmReader, Unsupported, Worked
from trainprobe.collect.source import Failed, Unavailable
from trainprobe.model.dataclass import dataclass
from trainprobe.model.message import template
from trainprobe.model.moment import NS
from trainprobe.model.sample import GpuHolder, GpuSample

LIBRARY = "libnvidia-ml.so.1"
EVERY_NS = NS
HUNG_NS = 3 * NS
LOOK_NS = 60 * NS
LEFT_BEHIND = 4
SELDOM = 30  # readings
PCIE_EVERY = 5
PAUSES_NS = (NS, 2 * NS, 5 * NS, 15 * NS, 60 * NS)
GPUS_LIMIT = 64
FRESH = 8 * GPUS_LIMIT  # readings that wait for a loop that is late
HOLDERS_LIMIT = 256
NO_DRIVER = template("source.no_driver", "no NVIDIA driver")
NO_ANSWER = template("source.no_answer", "NVML does not answer")
SEE_DRIVER = template(
    "source.see_driver", "see what the driver says (dmesg | grep -i NVRM); where nvidia-smi hangs too, reset or reboot"
)
MHZ, KB = 1_000_000, 1024
_REASONS = {
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal",
    0x40: "hw_thermal",
    0x80: "hw_power_brake",
}
_REOPEN = frozenset((1, 2, 4, 9, 999))  # uninitialized, invalid argument, no permission, driver not loaded, unknown
_NO_SAMPLES = frozenset((0, 6))  # NVML_SUCCESS, which pynvml raises where there are none; not found
_LOST = 15  # NVML_ERROR_GPU_IS_LOST
_NOT_THERE = frozenset((3, 6, 13))  # not supported, not found, function not found
_VERSION = 25  # NVML_ERROR_ARGUMENT_VERSION_MISMATCH


class _Reopen(Exception):
    """The handles are dead."""


@dataclass(slots=True)
class _Reader:
    """One thread's state; the loop reads it and never writes anything but ``stopped``."""

    skip: frozenset[int]
    busy_with: int | None = None  # the GPU that is being read; -1: opening
    busy_ns: int = 0
    stopped: bool = False
    ended: bool = False
    outcome: Unavailable | Failed | None = None
    trouble: str = ""  # why nothing is read for now, though it is tried again
    samples: dict[int, GpuSample] = field(default_factory=dict)  # the latest of each GPU
    fresh: deque[GpuSample] = field(default_factory=lambda: deque(maxlen=FRESH))  # not polled yet


class Gpus:
    """``poll`` never waits."""

    def __init__(self, clock: Callable[[], int] = time.monotonic_ns, every_ns: int = EVERY_NS) -> None:
        self._clock = clock
        self._every_ns = every_ns
        self._reader: _Reader | None = None
        self._there = False
        self._look_ns = 0
        self._behind: dict[int, _Reader] = {}  # by the GPU whose call hangs

    def present(self, now_ns: int) -> bool:
        """Whether this machine has a driver; looked for once a minute until it has."""
        if not self._there and now_ns >= self._look_ns:
            self._look_ns = now_ns + LOOK_NS
            self._there = available()
        return self._there

    def poll(self, now_ns: int) -> tuple[GpuSample, ...] | Unavailable | Failed:
        """All that was read since the last call, by GPU and in order of time (empty: nothing yet)."""
        reader = self._reader
        back = [index for index, behind in self._behind.items() if behind.ended]
        for index in back:
            del self._behind[index]
        if back and reader is not None:
            reader.stopped = True  # the next one takes them in again
        if reader is None or reader.ended:
            if reader is None and not available():
                return Unavailable(NO_DRIVER())
            if reader is not None and reader.outcome is not None:
                self._reader = None
                return reader.outcome
            reader = self._start()
        if reader.busy_with is not None and now_ns - reader.busy_ns > HUNG_NS:
            return self._leave_behind(reader, reader.busy_with)
        fresh = [reader.fresh.popleft() for _ in range(len(reader.fresh))]
        if not fresh:
            return Failed(f"NVML: {reader.trouble}") if reader.trouble else ()
        fresh += [GpuSample(index, hung=True) for index in self._behind if index not in reader.samples]
        return tuple(sorted(fresh, key=lambda one: one.index))

    def close(self) -> None:
        """The thread ends after the call that it is in."""
        if self._reader is not None:
            self._reader.stopped = True

    def _start(self) -> _Reader:
        self._reader = reader = _Reader(frozenset(self._behind))
        threading.Thread(target=self._run, args=(reader,), name="nvml", daemon=True).start()
        return reader

    def _leave_behind(self, reader: _Reader, index: int) -> tuple[GpuSample, ...] | Failed:
        reader.stopped = True
        self._behind[index] = reader
        if index < 0 or len(self._behind) >= LEFT_BEHIND:
            return Failed(NO_ANSWER(), SEE_DRIVER())
        known = reader.samples.get(index)
        self._start()
        return (GpuSample(index, known.uuid if known else "", known.bus_id if known else "", hung=True),)

    # ---- in the thread ----

    def _run(self, reader: _Reader) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # they are the loop's
        try:
            self._go_on(reader)
        except Exception as error:  # a binding that does not fit this driver must not end the daemon
            reader.outcome = Failed(f"{type(error).__name__}: {error}")
        finally:
            reader.ended = True

    def _go_on(self, reader: _Reader) -> None:
        import pynvml

        reader.busy_with, reader.busy_ns = -1, self._clock()
        failures = 0
        devices: list[_Device] | None = None
        while not reader.stopped:
            try:
                if devices is None:
                    reader.busy_with, reader.busy_ns = -1, self._clock()
                    devices = _open(pynvml, reader.skip)
                seen = []
                for device in devices:
                    reader.busy_with, reader.busy_ns = device.index, self._clock()
                    reader.samples[device.index] = sample = device.read(self._clock())
                    seen.append(sample)
                reader.fresh.extend(seen)
                reader.busy_with = None
                reader.trouble, failures = "", 0
                time.sleep(self._every_ns / NS)
            except _Reopen as dead:
                devices, reader.busy_with = None, None
                if failures:  # handles that died are mostly opened again at once
                    reader.trouble = str(dead.__cause__)
                _shut(pynvml)
                time.sleep(PAUSES_NS[min(failures, len(PAUSES_NS) - 1)] * self._every_ns / NS / NS)
                failures += 1
            except pynvml.NVMLError as error:
                reader.outcome = Failed(f"NVML: {error}")
                return


def available(library: str = LIBRARY) -> bool:
    """Whether this machine has NVML at all."""
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def _open(nvml: Any, skip: frozenset[int]) -> list[_Device]:
    try:
        nvml.nvmlInit()
        count = min(nvml.nvmlDeviceGetCount(), GPUS_LIMIT)
    except nvml.NVMLError as error:
        if error.value in _REOPEN:
            raise _Reopen from error
        raise
    return [_Device(nvml, index) for index in range(count) if index not in skip]


def _shut(nvml: Any) -> None:
    try:
        nvml.nvmlShutdown()
    except nvml.NVMLError:
        pass  # it was not open


class _Device:
    """One GPU: its handle, and what was read before."""

    def __init__(self, nvml: Any, index: int) -> None:
        self.index = index
        self._nvml = nvml
        self._handle: Any = None
        self._counters: GpmReader | None = None
        self._no_counters = False
        self._no_reserved = False
        self._uuid = self._bus = ""
        self._seen_us = self._used_us = 0
        self._at_ns = 0
        self._missing: set[str] = set()
        self._readings = 0
        self._kept: dict[str, Any] = {}  # answers since the last thirtieth reading

    def read(self, now_ns: int) -> GpuSample:
        """Raises _Reopen where the handles are dead; a lost GPU is a sample that says so."""
        nvml = self._nvml
        self._missing = set()
        if self._handle is None or self._readings >= SELDOM:
            self._readings, self._kept = 0, {}
        self._readings += 1
        try:
            if self._handle is None:
                self._handle = nvml.nvmlDeviceGetHandleByIndex(self.index)
                self._uuid = str(self._ask("uuid", lambda: nvml.nvmlDeviceGetUUID(self._handle)) or "")
                pci = self._ask("bus_id", lambda: nvml.nvmlDeviceGetPciInfo(self._handle))
                self._bus = _text(pci.busId) if pci is not None else ""
            return self._sample(now_ns)
        except nvml.NVMLError as error:
            self._handle = None
            self._forget_counters()
            if error.value == _LOST:
                return GpuSample(self.index, self._uuid, self._bus, lost=True)
            if error.value in _REOPEN:
                raise _Reopen from error
            return GpuSample(self.index, self._uuid, self._bus, missing=("handle",))

    def _sample(self, now_ns: int) -> GpuSample:
        nvml, handle, ask, ask_seldom = self._nvml, self._handle, self._ask, self._ask_seldom
        memory = ask("memory", self._memory)
        power = ask("power", lambda: nvml.nvmlDeviceGetPowerUsage(handle))
        clock = ask("sm_clock", lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM))
        top = ask_seldom("sm_clock_max", lambda: nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_SM))
        mig = ask_seldom("mig", lambda: nvml.nvmlDeviceGetMigMode(handle))
        reasons = ask("throttle_reasons", lambda: nvml.nvmlDeviceGetCurrentClocksEventReasons(handle))
        rows = ask_seldom("remapped_rows", lambda: nvml.nvmlDeviceGetRemappedRows(handle))
        worked = ask("tensor_active", self._worked) or Worked()
        since, self._at_ns = self._at_ns, now_ns
        return GpuSample(
            index=self.index,
            uuid=self._uuid,
            bus_id=self._bus,
            at_ns=now_ns,
            since_ns=since,
            mig=bool(mig and mig[0]),
            utilization=self._utilization() if worked.utilization is None else worked.utilization,
            tensor_active=worked.tensor_active,
            memory_used_bytes=memory.used if memory is not None else None,
            memory_total_bytes=memory.total if memory is not None else None,
            power_watts=power / 1000 if power is not None else None,
            temperature_celsius=ask("temperature", lambda: nvml.nvmlDeviceGetTemperature(handle, 0)),
            sm_clock_hertz=clock * MHZ if clock is not None else None,
            sm_clock_max_hertz=top * MHZ if top is not None else None,
            pcie_receive_bytes_per_second=self._pcie("receive", worked.receive),
            pcie_transmit_bytes_per_second=self._pcie("transmit", worked.transmit),
            reasons=None if reasons is None else tuple(name for bit, name in _REASONS.items() if reasons & bit),
            ecc_errors=ask("ecc", lambda: nvml.nvmlDeviceGetTotalEccErrors(handle, 1, 0)),
            remapped_rows=rows[1] if rows is not None else None,
            holders=self._holders(),
            missing=tuple(sorted(self._missing)),
        )

    def _memory(self) -> Any:
        """What is used is what ``nvidia-smi`` calls so: without the driver's own part, where it tells that apart."""
        nvml = self._nvml
        if not self._no_reserved:
            try:
                return nvml.nvmlDeviceGetMemoryInfo(self._handle, nvml.nvmlMemory_v2)
            except nvml.NVMLError as error:
                if error.value not in (*_NOT_THERE, _VERSION):
                    raise
            except (AttributeError, TypeError):  # a binding that is older
                pass
            self._no_reserved = True
        return nvml.nvmlDeviceGetMemoryInfo(self._handle)

    def _worked(self) -> Worked | None:
        if self._no_counters:
            self._missing.add("tensor_active")
            return None
        try:
            self._counters = self._counters or GpmReader(self._nvml, self._handle)
            return self._counters.worked()
        except (Unsupported, self._nvml.NVMLError) as error:
            known = isinstance(error, Unsupported) or error.value in _NOT_THERE
            if not known:
                raise
            self._no_counters = True  # for good: asking again costs and tells nothing new
            self._missing.add("tensor_active")
            return None

    def _pcie(self, way: str, told: int | None) -> int | None:
        """``told``: by the counters. NVML's own call for it measures for 20 ms, and is made seldom."""
        if told is not None:
            return told
        nvml = self._nvml
        if self._readings % PCIE_EVERY == 1:
            self._kept.pop(f"pcie_{way}", None)
        kind = nvml.NVML_PCIE_UTIL_RX_BYTES if way == "receive" else nvml.NVML_PCIE_UTIL_TX_BYTES
        rate = self._ask_seldom(f"pcie_{way}", lambda: nvml.nvmlDeviceGetPcieThroughput(self._handle, kind))
        return None if rate is None else rate * KB

    def _forget_counters(self) -> None:
        counters, self._counters, self._no_counters = self._counters, None, False
        try:
            if counters is not None:
                counters.close()
        except self._nvml.NVMLError:
            pass  # with the library it went

    def _ask(self, what: str, call: Callable[[], Any]) -> Any:
        """The answer; None where this GPU or driver has none. What concerns the whole GPU goes on."""
        try:
            return call()
        except self._nvml.NVMLError as error:
            if error.value == _LOST or (error.value in _REOPEN and error.value != 4):
                raise
            self._missing.add(what)
        except AttributeError:  # a binding that is older than the function
            self._missing.add(what)
        return None

    def _ask_seldom(self, what: str, call: Callable[[], Any]) -> Any:
        """The same for what hardly ever changes."""
        if what not in self._kept and (answer := self._ask(what, call)) is not None:
            self._kept[what] = answer
        return self._kept.get(what)

    def _utilization(self) -> float | None:
        """Mean of the driver's samples since the last time; where it keeps none, its own last figure."""
        nvml = self._nvml
        seen = self._ask(
            "samples", lambda: nvml.nvmlDeviceGetSamples(self._handle, nvml.NVML_GPU_UTILIZATION_SAMPLES, self._seen_us)
        )
        if seen is not None:
            fresh = [(s.timeStamp, s.sampleValue.uiVal) for s in seen[1] if s.timeStamp > self._seen_us]
            if fresh:
                self._seen_us = max(at for at, _ in fresh)
                return min(1.0, float(sum(value for _, value in fresh)) / len(fresh) / 100)
        rates = self._ask("utilization", lambda: nvml.nvmlDeviceGetUtilizationRates(self._handle))
        return None if rates is None else min(1.0, int(rates.gpu) / 100)

    def _holders(self) -> tuple[GpuHolder, ...] | None:
        found = self._ask("processes", lambda: self._nvml.nvmlDeviceGetComputeRunningProcesses(self._handle))
        if found is None:
            return None
        used = self._used() if len(found) > 1 else None
        return tuple(
            GpuHolder(int(p.pid), p.usedGpuMemory, None if used is None else used.get(int(p.pid), 0.0))
            for p in found[:HOLDERS_LIMIT]
        )

    def _used(self) -> dict[int, float] | None:
        """By process, how busy its kernels kept the GPU since the last time; one that ran none is not named."""
        since, seen = self._used_us, self._ask("process_utilization", self._process_samples)
        if seen is None:
            return None
        by_pid: dict[int, list[int]] = {}
        for one in seen:
            if one.timeStamp > since:
                by_pid.setdefault(int(one.pid), []).append(int(one.smUtil))
                self._used_us = max(self._used_us, int(one.timeStamp))
        return {pid: min(1.0, sum(shares) / len(shares) / 100) for pid, shares in by_pid.items()}

    def _process_samples(self) -> Any:
        try:
            return self._nvml.nvmlDeviceGetProcessUtilization(self._handle, self._used_us)
        except self._nvml.NVMLError as error:
            if error.value in _NO_SAMPLES:
                return ()
            raise


def _text(value: Any) -> str:
    return value.decode("ascii", "replace") if isinstance(value, bytes) else str(value)
