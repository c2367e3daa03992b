# SPDX-License-Identifier: Apache-2.0
"""Generated (make generated) from src/include/layout.h: its structures, member by member."""

from ctypes import Structure, c_char, c_int16, c_int32, c_uint8, c_uint16, c_uint32, c_uint64


# fmt: off
class StepFileRecord(Structure):
    _fields_ = [
        ("ino", c_uint64), ("io_ns", c_uint64), ("gap_ns", c_uint64),
        ("bytes", c_uint64),
        ("dev", c_uint32), ("calls", c_uint32),
    ]


class FileKey(Structure):
    _fields_ = [
        ("tgid", c_uint32), ("dev", c_uint32),
        ("ino", c_uint64),
    ]


class Known(Structure):
    _fields_ = [
        ("inode", c_uint64), ("sb", c_uint64),
        ("key", FileKey),
        ("kind", c_uint8),
        ("leaf", c_uint8),
        ("regular", c_uint8),
        ("told", c_uint8),
        ("unused", c_uint32),
    ]


class CallRecord(Structure):
    _fields_ = [
        ("known", Known),
        ("number", c_uint32),
        ("fd", c_int32),
        ("flags", c_uint32),
        ("kind", c_uint8),
        ("unused", c_uint8 * 3),
        ("at", c_uint64),
        ("key", FileKey),
        ("last", FileKey),
        ("bytes", c_uint64),
        ("gap_ns", c_uint64),
        ("path", c_uint64), ("new_path", c_uint64),
        ("directory", c_int32), ("new_directory", c_int32),
    ]


class Ledger(Structure):
    _fields_ = [
        ("opened", c_uint64),
        ("at", c_uint64),
        ("since", c_uint64),
        ("delay", c_uint64),
        ("fault_at", c_uint64),
        ("call_ns", c_uint64),
        ("gap_mark", c_uint64),
        ("gap_ino", c_uint64),
        ("ino", c_uint64),
        ("dev", c_uint32),
        ("gap_dev", c_uint32),
        ("pool", c_uint32),
        ("call", c_int32),
        ("blocked_call", c_int32),
        ("blocked_fd", c_int32),
        ("region", c_uint8), ("leaf", c_uint8), ("run", c_uint8),
        ("call_leaf", c_uint8),
        ("cpu_leaf", c_uint8),
        ("wait_leaf", c_uint8),
        ("why", c_uint8),
        ("busy", c_uint8),
        ("reclaim", c_uint8),
        ("gpu", c_uint8),
        ("collecting", c_uint8),
        ("closing", c_uint8),
        ("fault_file", c_uint8),
        ("driver", c_uint8),
        ("grads_off", c_uint8),
        ("saw_ends", c_uint8),
        ("nested", c_uint8),
        ("waited_kind", c_uint8), ("waited_leaf", c_uint8),
        ("unused", c_uint8),
        ("regions", c_uint8 * 4),
        ("region_depth", c_int32 * 4),
        ("depth", c_int32),
        ("tid", c_uint32),
        ("flying", CallRecord),
        ("tgid", c_uint32),
        ("steps", c_uint32), ("fetches", c_uint32), ("inline_fetches", c_uint32),
        ("backwards", c_uint32), ("major_faults", c_uint32),
        ("swap_faults", c_uint32), ("spare", c_uint32),
        ("step_at", c_uint64),
        ("row_at", c_uint64),
        ("row_fetches", c_uint32), ("row_backwards", c_uint32),
        ("fetch_at", c_uint64),
        ("graph_task", c_uint64),
        ("gpu_mark", c_uint64),
        ("files", StepFileRecord * 4),
        ("no_grad", c_uint64 * 24),
        ("waited_file", c_uint64), ("waited_inode", c_uint64),
        ("acc", c_uint64 * 128),
    ]


class Row(Structure):
    _fields_ = [
        ("message", c_uint32), ("kind", c_uint32),
        ("at", c_uint64), ("opened", c_uint64),
        ("tid", c_uint32), ("tgid", c_uint32),
        ("steps", c_uint32), ("fetches", c_uint32), ("inline_fetches", c_uint32),
        ("backwards", c_uint32), ("major_faults", c_uint32), ("region", c_uint32),
        ("gpu_memory_ns", c_uint64),
        ("gpu_allocations", c_uint32), ("gpu_frees", c_uint32),
        ("collected_ns", c_uint64),
        ("ran_ns", c_uint64),
        ("files", StepFileRecord * 4),
        ("acc", c_uint64 * 128),
        ("pool", c_uint64 * 24),
        ("shared", c_uint64),
        ("began", c_uint64),
        ("lengths", c_uint32 * 32),
        ("held", c_uint32),
        ("swap_faults", c_uint32),
        ("name", c_char * 64),
    ]


class Held(Structure):
    _fields_ = [
        ("row", Row),
        ("fetches", c_uint32), ("backwards", c_uint32),
    ]


class FileUse(Structure):
    _fields_ = [
        ("opened", c_uint64), ("told", c_uint64),
        ("bytes", c_uint64), ("calls", c_uint64), ("write_ns", c_uint64),
        ("sync_ns", c_uint64), ("meta_ns", c_uint64), ("gap_ns", c_uint64),
        ("closed", c_uint64),
        ("generation", c_uint32),
        ("error", c_uint32),
        ("tid", c_uint32),
        ("fd", c_int32),
        ("descriptors", c_int16),
        ("created", c_uint8), ("append", c_uint8), ("small", c_uint8),
        ("shared", c_uint8),
        ("reader", c_uint16),
    ]


class FileMessage(Structure):
    _fields_ = [
        ("message", c_uint32), ("kind", c_uint32),
        ("at", c_uint64),
        ("key", FileKey),
        ("tid", c_uint32),
        ("fd", c_int32),
        ("use", FileUse),
    ]


class NamedFileMessage(Structure):
    _fields_ = [
        ("file", FileMessage),
        ("directory", c_int32), ("new_directory", c_int32),
        ("walked", c_uint32),
        ("unused", c_uint32),
        ("path", c_char * 512), ("new_path", c_char * 512),
    ]


class ProcessMessage(Structure):
    _fields_ = [
        ("message", c_uint32), ("kind", c_uint32),
        ("at", c_uint64),
        ("tgid", c_uint32), ("parent", c_uint32),
        ("code", c_int32),
        ("signal", c_int32),
        ("sender", c_uint32), ("unused", c_uint32),
        ("anonymous", c_uint64), ("shared", c_uint64),
        ("comm", c_char * 16), ("sender_comm", c_char * 16),
    ]


class CandidateMessage(Structure):
    _fields_ = [
        ("message", c_uint32), ("why", c_uint32),
        ("at", c_uint64),
        ("tgid", c_uint32), ("unused", c_uint32),
    ]


class StandstillMessage(Structure):
    _fields_ = [
        ("message", c_uint32), ("cpu", c_uint32),
        ("at", c_uint64), ("ns", c_uint64),
    ]


class FailureMessage(Structure):
    _fields_ = [
        ("message", c_uint32),
        ("number", c_int32),
        ("at", c_uint64),
        ("tgid", c_uint32), ("tid", c_uint32),
        ("error", c_int32), ("fd", c_int32),
        ("count", c_uint64), ("ino", c_uint64), ("magic", c_uint64),
        ("dev", c_uint32), ("unused", c_uint32),
        ("comm", c_char * 16), ("path", c_char * 512),
    ]


class Pool(Structure):
    _fields_ = [
        ("ns", c_uint64 * 24),
        ("shared", c_uint64),
    ]


class Process(Structure):
    _fields_ = [
        ("parent", c_uint32),
        ("pool", c_uint32),
        ("driver", c_uint32),
        ("writing", c_int32),
        ("gpu_allocations", c_uint32), ("gpu_frees", c_uint32),
        ("tentative", c_uint32),
        ("gpu_sites", c_uint32),
        ("gpu_memory_ns", c_uint64),
        ("drivers", c_int32),
        ("unused", c_uint32),
        ("collecting", c_uint64),
        ("collected_ns", c_uint64),
    ]


class GpuSite(Structure):
    _fields_ = [
        ("tgid", c_uint32), ("unused", c_uint32),
        ("address", c_uint64),
    ]


class GpuCaller(Structure):
    _fields_ = [
        ("tgid", c_uint32), ("tid", c_uint32),
        ("what", c_uint64),
        ("least", c_uint32), ("starting", c_uint32),
    ]


class GpuBeat(Structure):
    _fields_ = [
        ("count", c_uint64), ("last", c_uint64),
        ("kind", c_uint32), ("unused", c_uint32),
        ("intervals", c_uint32 * 48),
    ]


class SiteMessage(Structure):
    _fields_ = [
        ("message", c_uint32), ("tgid", c_uint32),
        ("at", c_uint64), ("address", c_uint64),
    ]


class Alarm(Structure):
    _fields_ = [
        ("limit", c_uint64),
        ("told", c_uint64),
        ("ended", c_uint32),
        ("together", c_uint32),
    ]


class StartSpan(Structure):
    _fields_ = [
        ("begin", c_uint64), ("end", c_uint64),
        ("kind", c_uint32), ("opens", c_uint32),
    ]


class StartFile(Structure):
    _fields_ = [
        ("opened", c_uint64), ("last", c_uint64), ("bytes", c_uint64),
        ("ino", c_uint64),
        ("dev", c_uint32),
        ("fd", c_int32),
        ("path", c_char * 256),
    ]


class Start(Structure):
    _fields_ = [
        ("began", c_uint64),
        ("spans_used", c_uint32), ("files_used", c_uint32),
        ("fd", c_int32),
        ("loops", c_uint32),
        ("spans", StartSpan * 128),
        ("files", StartFile * 8),
        ("path", c_char * 256),
    ]


class RequestKey(Structure):
    _fields_ = [
        ("dev", c_uint32), ("operation", c_uint32),
    ]


class RequestUse(Structure):
    _fields_ = [
        ("ns", c_uint64), ("count", c_uint64 * 12),
    ]


STRUCTURES: dict[str, type[Structure]] = {
    "step_file": StepFileRecord,
    "file_key": FileKey,
    "known": Known,
    "call": CallRecord,
    "ledger": Ledger,
    "row": Row,
    "held": Held,
    "file_use": FileUse,
    "file_message": FileMessage,
    "named_file_message": NamedFileMessage,
    "process_message": ProcessMessage,
    "candidate_message": CandidateMessage,
    "standstill_message": StandstillMessage,
    "failure_message": FailureMessage,
    "pool": Pool,
    "process": Process,
    "gpu_site": GpuSite,
    "gpu_caller": GpuCaller,
    "gpu_beat": GpuBeat,
    "site_message": SiteMessage,
    "alarm": Alarm,
    "start_span": StartSpan,
    "start_file": StartFile,
    "start": Start,
    "request_key": RequestKey,
    "request_use": RequestUse,
}
