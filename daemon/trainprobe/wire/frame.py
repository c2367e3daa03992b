"""A frame as one line of JSON: compact (defaults left out, cells sparse), readable by every later version.

Unknown fields are ignored and events of an unknown kind are skipped, so that a recording of a newer version still
shows what this one understands. File names that are no Unicode come back exactly (as ``\\udcXX`` escapes).
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from trainprobe.model.event import (
    CallFailed,
    Event,
    FileEvent,
    GpuXid,
    MarkRow,
    OomTold,
    ProcessEvent,
    RankSeen,
    RunEnded,
    RunStarted,
    StackSeen,
    ThreadSample,
)
from trainprobe.model.frame import Frame
from trainprobe.model.kept import RunKept
from trainprobe.model.moment import Moment
from trainprobe.model.sample import (
    CostSample,
    CountSample,
    DescriptorSample,
    FileSizeSample,
    GpuSample,
    HostSample,
    Inspection,
    LimitSample,
    MemorySample,
    OrphanSample,
    ProcessSample,
    QuotaSample,
    RivalSample,
    SharedSample,
    SourceState,
    SpaceSample,
)
from trainprobe.wire import codec
from trainprobe.wire.codec import WireError

_EVENTS: dict[str, type[Any]] = {
    "mark": MarkRow,
    "file": FileEvent,
    "process": ProcessEvent,
    "run": RunStarted,
    "rank": RankSeen,
    "kept": RunKept,
    "run_end": RunEnded,
    "stack": StackSeen,
    "failed": CallFailed,
    "oom": OomTold,
    "xid": GpuXid,
}
_TAGS = {kind: tag for tag, kind in _EVENTS.items()}
_SPARSE = frozenset({"cells", "pool"})
_SPARSE_LIMIT = 1024  # values that a sparse list may say it stands for


def encode(frame: Frame) -> str:
    """One line, without its newline."""
    line: dict[str, Any] = {"at": [frame.at.monotonic_ns, frame.at.wall_ns]}
    if frame.events:
        line["events"] = [{"e": _TAGS[type(event)], **_compact(event)} for event in frame.events]
    for name, values in (
        ("threads", frame.threads),
        ("processes", frame.processes),
        ("memory", frame.memory),
        ("quotas", frame.quotas),
        ("rivals", frame.rivals),
        ("inspections", frame.inspections),
        ("counted", frame.counted),
        ("limits", frame.limits),
        ("descriptors", frame.descriptors),
        ("shared", frame.shared),
        ("spaces", frame.spaces),
        ("sizes", frame.sizes),
        ("gpus", frame.gpus),
        ("sources", frame.sources),
    ):
        if values:
            line[name] = [_compact(value) for value in values]
    if frame.orphans is not None:
        line["orphans"] = [_compact(value) for value in frame.orphans]
    for name, value in (("host", frame.host), ("cost", frame.cost)):
        if value is not None:
            line[name] = _compact(value)
    if frame.events_lost:
        line["events_lost"] = frame.events_lost
    try:
        return json.dumps(line, allow_nan=False, separators=(",", ":"))
    except ValueError:
        return json.dumps(codec.finite(line), separators=(",", ":"))


def decode(line: str | bytes) -> Frame:
    """The frame of a line. Raises WireError: malformed, or a value that no version may have written."""
    value = codec.loads(line)
    if not isinstance(value, dict):
        raise WireError("expected an object")
    return Frame(
        at=_moment(value.get("at")),
        events=_events(value.get("events", [])),
        threads=_values(value, "threads", ThreadSample),
        processes=_values(value, "processes", ProcessSample),
        memory=_values(value, "memory", MemorySample),
        quotas=_values(value, "quotas", QuotaSample),
        rivals=_values(value, "rivals", RivalSample),
        inspections=_values(value, "inspections", Inspection),
        counted=_values(value, "counted", CountSample),
        limits=_values(value, "limits", LimitSample),
        descriptors=_values(value, "descriptors", DescriptorSample),
        shared=_values(value, "shared", SharedSample),
        spaces=_values(value, "spaces", SpaceSample),
        sizes=_values(value, "sizes", FileSizeSample),
        gpus=_values(value, "gpus", GpuSample),
        orphans=_values(value, "orphans", OrphanSample) if value.get("orphans") is not None else None,
        host=_value(value, "host", HostSample),
        sources=_values(value, "sources", SourceState),
        cost=_value(value, "cost", CostSample),
        events_lost=codec.decoder(dict[str, int])(value.get("events_lost", {})),
    )


def _compact(value: Any) -> dict[str, Any]:
    """Fields that differ from their default."""
    line = {}
    for name, absent in _fields(value.__class__):
        item = getattr(value, name)
        if item != absent():
            line[name] = _sparse(item) if name in _SPARSE else _plain(item)
    return line


def _plain(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if dataclasses.is_dataclass(value):
        return _compact(value)
    return value


@cache
def _fields(kind: Any) -> tuple[tuple[str, Callable[[], Any]], ...]:
    return tuple((field.name, _default(field)) for field in dataclasses.fields(kind))


def _default(field: dataclasses.Field[Any]) -> Callable[[], Any]:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory
    default = field.default  # MISSING equals nothing, so a field without a default is always written
    return lambda: default


def _sparse(values: Sequence[int]) -> list[int]:
    """[how many, index, value, index, value …]: a ledger has a dozen cells in use of 128."""
    flat = [len(values)]
    for index, value in enumerate(values):
        if value:
            flat += (index, value)
    return flat


def _dense(flat: Any) -> list[int]:
    numbers: list[int] = codec.decoder(list[int])(flat)
    if len(numbers) % 2 == 0 or not 0 <= numbers[0] <= _SPARSE_LIMIT:
        raise WireError("no sparse list")
    values = [0] * numbers[0]
    for index, value in zip(numbers[1::2], numbers[2::2], strict=True):
        if not 0 <= index < numbers[0]:
            raise WireError(f"index {index} of {numbers[0]}")
        values[index] = value
    return values


def _moment(value: Any) -> Moment:
    clocks: list[int] = codec.decoder(list[int])(value)
    if len(clocks) < 2:
        raise WireError("expected two clocks", "at")
    return Moment(clocks[0], clocks[1])


def _events(values: Any) -> tuple[Event, ...]:
    events = []
    for index, value in enumerate(codec.decoder(list[Any])(values)):
        tag = value.get("e") if isinstance(value, dict) else None
        if isinstance(tag, str) and (kind := _EVENTS.get(tag)) is not None:
            events.append(_read(kind, value, f"events.{index}"))
    return tuple(events)


def _values(line: dict[str, Any], name: str, kind: type[Any]) -> tuple[Any, ...]:
    values = codec.decoder(list[Any])(line.get(name, []))
    return tuple(_read(kind, value, f"{name}.{index}") for index, value in enumerate(values))


def _value(line: dict[str, Any], name: str, kind: type[Any]) -> Any:
    value = line.get(name)
    return None if value is None else _read(kind, value, name)


def _read(kind: type[Any], value: Any, path: str) -> Any:
    try:
        if isinstance(value, dict):
            value = {name: _dense(item) if name in _SPARSE else item for name, item in value.items()}
        return codec.decode(kind, value)
    except WireError as error:
        raise error.within(path) from None
