# SPDX-License-Identifier: Apache-2.0
"""Marks on CUDA: where a training waits for its GPU, and where it asks for memory of it.

Probes on the first instruction of the calls serve every process that maps the library. Where such a call returns to is
a place in the program that made it; the kernel side tells each one once (``Site``), and a probe goes there for that
process alone: what a stranger has made of his own stack can then hurt nobody else. No uretprobes: see ``gpu.bpf.c``.
"""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from ctypes import c_uint8
from itertools import islice

from trainprobe.bpf import abi
from trainprobe.bpf.abi import SiteState
from trainprobe.bpf.attach.closing import close_all, close_in_background
from trainprobe.bpf.attach.gpu_clocks import GpuClocks
from trainprobe.bpf.attach.mapped_files import MappedCode, executable_maps, file_of, open_mapping, through_descriptor
from trainprobe.bpf.attach.mark_table import RELEASES, Mark
from trainprobe.bpf.attach.marks import INTERPRETER, INTERPRETERS
from trainprobe.bpf.attach.user_quota import ROOT, UserQuota
from trainprobe.bpf.load.kernel_calls import UprobeRefused
from trainprobe.bpf.load.maps import Map
from trainprobe.bpf.read.paths import ProcessFiles
from trainprobe.model.vocabulary import MODEL_LIBRARIES

AT_ONCE, OF_ONE, OF_ROOT = 16, 4, 12  # processes that are looked at; of one user: files may lie on a disk that hangs
MAX_SITES, MAX_IN_ALL = 128, 512
"""Of one process; of all of them: each is a descriptor of ours. Once half of these are taken, a user but root gets no
more than one process may have."""
WAITS, COPIES, ALLOCATES, FREES = "gpu_wait", "gpu_copy", "gpu_allocate", "gpu_free"


def _mark(name: str, *functions: str) -> Mark:
    return Mark(name, f"on_{name}", tuple(f"={function}".encode() for function in functions))


IN_RUNTIME = (
    _mark(WAITS, "cudaStreamSynchronize", "cudaStreamSynchronize_ptsz", "cudaDeviceSynchronize",
          "cudaEventSynchronize", "cudaMemcpy", "cudaMemcpy_ptds", "cudaMemcpy2D", "cudaMemcpy2D_ptds"),
    _mark(COPIES, "cudaMemcpyAsync", "cudaMemcpyAsync_ptsz"),
    _mark(ALLOCATES, "cudaMalloc"),
    _mark(FREES, "cudaFree"),
)  # fmt: skip
"""What a training calls a few times a step. Not cudaLaunchKernel: a thousand probes a step would be dear."""
RARE = (
    Mark("gpu_graph", "on_gpu_graph",
         (b"=cudaGraphLaunch", b"=cudaGraphLaunch_ptsz", b"=cuGraphLaunch", b"=cuGraphLaunch_ptsz")),
    Mark("gpu_upload", "on_gpu_upload",
         (b"=cuMemcpyHtoD_v2", b"=cuMemcpyHtoD_v2_ptds", b"=cuMemcpyHtoDAsync_v2", b"=cuMemcpyHtoDAsync_v2_ptsz")),
)  # fmt: skip
"""What else may come once a step, for a training without other marks."""
OFTEN = (
    Mark("gpu_kernel", "on_gpu_kernel",
         (b"=cudaLaunchKernel", b"=cudaLaunchKernel_ptsz", b"=cuLaunchKernel", b"=cuLaunchKernel_ptsz")),
    Mark("gpu_kernel_configured", "on_gpu_kernel_configured",
         (b"=cudaLaunchKernelExC", b"=cudaLaunchKernelExC_ptsz", b"=cuLaunchKernelEx", b"=cuLaunchKernelEx_ptsz")),
)  # fmt: skip
"""Launches of kernels: see gpu_clocks.py for when they have probes."""
IN_DRIVER = (_mark(ALLOCATES, "cuMemCreate"), _mark(FREES, "cuMemRelease"))
"""What PyTorch's expandable segments call past the runtime."""
IN_DRIVER_ALONE = (
    _mark(WAITS, "cuStreamSynchronize", "cuStreamSynchronize_ptsz", "cuCtxSynchronize", "cuEventSynchronize",
          "cuMemcpyDtoH_v2", "cuMemcpyDtoH_v2_ptds", "cuMemcpyDtoHAsync_v2", "cuMemcpyDtoHAsync_v2_ptsz"),
    _mark(ALLOCATES, "cuMemAlloc_v2", "cuMemCreate"),
    _mark(FREES, "cuMemFree_v2", "cuMemRelease"),
)  # fmt: skip
"""Where no runtime is mapped, as when it was linked statically; or what calls past it, as XLA does."""
RUNTIME = re.compile(rb"libcudart([-.].*)?\.so(\.[\d.]+)?$")
DRIVER = re.compile(rb"libcuda\.so(\.[\d.]+)?$")

AttachAt = Callable[[int, MappedCode, tuple[Mark, ...]], dict[str, bool]]
"""(pid, where it maps the library, marks) -> which were found. Raises OSError."""
AttachSite = Callable[[int, str, int, int, int], int]
"""(program, path, offset, 0, pid) -> descriptor. Raises UprobeRefused."""

RETURN = "on_gpu_return"


class Cuda:
    """Finds the libraries of CUDA in processes that train, and the places that their calls return to.

    Files may lie on a disk that hangs: a thread for each process does the looking, and nobody waits for it.
    """

    def __init__(
        self,
        attach_at: AttachAt,
        attach_site: AttachSite,
        programs: Mapping[str, int],
        sites: Map[abi.GpuSite, c_uint8],
        clocks: GpuClocks,
        proc: ProcessFiles,
    ) -> None:
        self._attach_at, self._attach_site, self._programs, self._sites = attach_at, attach_site, programs, sites
        self._clocks, self._proc = clocks, proc
        self._quota = UserQuota(owner=proc.owner)
        self._lock = threading.Lock()  # for all below
        self._unmarked: set[int] = set()  # processes that nothing else marks the steps of
        self._waiting: dict[int, deque[int | None]] = {}  # by pid: sites to arm; None: look for libraries
        self._owners: dict[int, int] = {}  # by pid, of those that were asked for
        self._known: set[tuple[int, int, tuple[Mark, ...]]] = set()
        self._armed: dict[int, dict[int, int]] = {}  # by pid: descriptor by address
        self._closed = False

    def attach_marks(self, pid: int) -> None:
        """Put marks on what the process has of CUDA; again where it may have loaded more."""
        self._ask(pid, None)

    def give_clock(self, pid: int) -> None:
        """Nothing else marks the steps of this process. Looks at what it has of CUDA, again at each call."""
        with self._lock:
            self._unmarked.add(pid)
        self.attach_marks(pid)

    def take_clock(self, pid: int) -> None:
        """It has better marks."""
        with self._lock:
            self._unmarked.discard(pid)
        self._clocks.end(pid)

    def look_after(self, now_ns: int) -> None:
        """Once a second, in the loop."""
        for pid in self._clocks.look_after(now_ns):
            self.attach_marks(pid)

    def arm(self, pid: int, address: int) -> None:
        """Watch a place that calls of CUDA return to."""
        if not self._ask(pid, address):
            self._sites.delete(_key(pid, address))  # the next call from there tells it again

    def forget(self, pid: int) -> None:
        """The process has ended, or runs another program."""
        self.take_clock(pid)
        with self._lock:
            armed = self._armed.pop(pid, {})
            self._owners.pop(pid, None)
        for address in armed:
            self._sites.delete(_key(pid, address))
        close_in_background([list(armed.values())])

    def close(self) -> None:
        self._clocks.close()
        with self._lock:
            self._closed = True
            armed, self._armed = self._armed, {}
        for descriptors in armed.values():
            close_all(list(descriptors.values()))

    def _ask(self, pid: int, what: int | None) -> bool:
        try:
            owner = self._quota.owner(pid)
        except OSError:
            return False
        with self._lock:
            if pid in self._waiting:
                self._waiting[pid].append(what)
                return True
            own = sum(self._owners.get(other) == owner for other in self._waiting)
            full = len(self._waiting) >= AT_ONCE or own >= (OF_ROOT if owner == ROOT else OF_ONE)
            if self._closed or full:
                return False
            self._owners[pid] = owner
            self._waiting[pid] = deque([what])
        threading.Thread(target=self._work, args=(pid,), name="cuda-marks", daemon=True).start()
        return True

    def _work(self, pid: int) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # they are the loop's
        while True:
            with self._lock:
                if self._closed or not self._waiting[pid]:
                    del self._waiting[pid]
                    return
                what = self._waiting[pid].popleft()
            if what is None:
                self._attach_missing(pid)
            else:
                self._arm(pid, what)

    def _attach_missing(self, pid: int) -> None:
        runtime = driver = False
        try:
            every = list(executable_maps(pid, self._proc))
        except OSError:
            return
        places = [place for place in every if _is_cuda(place)]
        models = [place for place in every if MODEL_LIBRARIES.search(place.path)]
        with self._lock:  # who ends meanwhile needs no clock
            if (places or models) and pid in self._unmarked:
                self._clocks.begin(pid, models, alone=not places)
        for place in places:
            if RUNTIME.fullmatch(os.path.basename(place.path)):
                runtime = self._mark(pid, place, IN_RUNTIME) or runtime
        for place in places:
            if DRIVER.fullmatch(os.path.basename(place.path)):
                past = IN_DRIVER if runtime and pid not in self._clocks else IN_DRIVER_ALONE
                driver = self._mark(pid, place, past) or driver
        for place in places if pid in self._clocks else ():
            self._clocks.probe(pid, place, RARE, OFTEN)
        if models and pid in self._clocks:
            likely = (place for place in every if INTERPRETER.fullmatch(os.path.basename(place.path)))
            for place in islice(likely, INTERPRETERS):
                self._clocks.probe(pid, place, (), RELEASES)

    def _mark(self, pid: int, place: MappedCode, marks: tuple[Mark, ...]) -> bool:
        """Whether the library has its marks by now; a uprobe on an inode serves every process that maps it."""
        try:
            key = (*file_of(pid, place, self._proc), marks)
            uid = self._quota.owner(pid)
        except OSError:
            return False
        with self._lock:
            if key in self._known:
                return True
            if self._quota.refusal(uid):
                return False
            self._known.add(key)
        began = time.monotonic()
        try:
            found = self._attach_at(pid, place, marks)
        except OSError:
            with self._lock:
                self._known.discard(key)
            return False
        with self._lock:
            self._quota.took(uid, time.monotonic() - began, useful=any(found.values()))
            if not any(found.values()):
                self._known.discard(key)  # perhaps it took too long to read: looks are few
        return any(found.values())

    def _arm(self, pid: int, address: int) -> None:
        with self._lock:
            if address in self._armed.get(pid, {}):  # told again: its entry made room for another one
                self._sites.put(_key(pid, address), c_uint8(SiteState.ARMED))
                return
        try:
            descriptor = self._attach(pid, address)
        except (OSError, UprobeRefused):
            self._sites.put(_key(pid, address), c_uint8(SiteState.REFUSED))
            return
        with self._lock:
            if not self._closed:
                self._armed.setdefault(pid, {})[address] = descriptor
                self._sites.put(_key(pid, address), c_uint8(SiteState.ARMED))
                return
        os.close(descriptor)

    def _attach(self, pid: int, address: int) -> int:
        with self._lock:
            armed, owner = self._armed.get(pid, {}), self._owners.get(pid, ROOT)
            every = sum(map(len, self._armed.values()))
            own = sum(len(of) for other, of in self._armed.items() if self._owners.get(other) == owner)
            crowded = every >= MAX_IN_ALL or (every >= MAX_IN_ALL // 2 and own >= MAX_SITES and owner != ROOT)
            if len(armed) >= MAX_SITES or crowded:
                raise UprobeRefused("too many places")
        place = next((p for p in executable_maps(pid, self._proc) if p.start <= address < p.end), None)
        if place is None:
            raise UprobeRefused("no file is mapped there")
        descriptor = open_mapping(pid, place.start, place.end)
        try:
            offset = address - place.start + place.offset
            return self._attach_site(self._programs[RETURN], through_descriptor(descriptor), offset, 0, pid)
        finally:
            os.close(descriptor)


def _is_cuda(place: MappedCode) -> bool:
    name = os.path.basename(place.path)
    return bool(RUNTIME.fullmatch(name) or DRIVER.fullmatch(name))


def _key(pid: int, address: int) -> abi.GpuSite:
    return abi.GpuSite(tgid=pid, address=address)
