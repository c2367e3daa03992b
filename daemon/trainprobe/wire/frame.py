"""A frame as one line of JSON: compact (defaults left out, cells sparse), readable by every later version.

Unknown fields are ignored and events of an unknown kind are skipped, so that a recording of a newer version still
shows what this one understands. File names that are no Unicode come back exactly (as ``\\udcXX`` escapes).
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from functools import cache, partial
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from trainprobe.model.event import (
    CallFailed,
    Event,
    FileEvent,
    FileLooked,
    GpuXid,
    HostStoodStill,
    MarkRow,
    OomLogged,
    ProcessEvent,
    RankSeen,
    RunEnded,
    RunStarted,
    StackSeen,
    StartSeen,
)
from trainprobe.model.frame import Frame
from trainprobe.model.moment import Moment
from trainprobe.model.resume_state import ResumedJob, ResumedRun
from trainprobe.wire import codec
from trainprobe.wire.codec import WireError

_EVENTS: dict[str, type[Any]] = {
    "mark": MarkRow,
    "file": FileEvent,
    "process": ProcessEvent,
    "run": RunStarted,
    "rank": RankSeen,
    "kept": ResumedRun,
    "job": ResumedJob,
    "run_end": RunEnded,
    "stack": StackSeen,
    "failed": CallFailed,
    "looked": FileLooked,
    "start": StartSeen,
    "oom": OomLogged,
    "xid": GpuXid,
    "stood_still": HostStoodStill,
}
_TAGS = {kind: tag for tag, kind in _EVENTS.items()}
_OWN_FORM = frozenset({"at", "events"})
_SPARSE = frozenset({"cells", "pool"})
_SPARSE_LIMIT = 1024  # values that a sparse list may say it stands for


def encode(frame: Frame) -> str:
    """One line, without its newline."""
    line: dict[str, Any] = {"at": [frame.at.monotonic_ns, frame.at.wall_ns]}
    if frame.events:
        line["events"] = [{"e": _TAGS[type(event)], **_compact(event)} for event in frame.events]
    for name, absent in _fields(Frame):
        value = getattr(frame, name)
        if name not in _OWN_FORM and value != absent():
            line[name] = _plain(value)
    try:
        return json.dumps(line, allow_nan=False, separators=(",", ":"))
    except ValueError:
        return json.dumps(codec.finite(line), separators=(",", ":"))


def decode(line: str | bytes) -> Frame:
    """The frame of a line. Raises WireError: malformed, or a value that no version may have written."""
    value = codec.loads(line)
    if not isinstance(value, dict):
        raise WireError("expected an object")
    rest = {name: read(value[name], name) for name, read in _readers() if value.get(name) is not None}
    return Frame(_moment(value.get("at")), _events(value.get("events", [])), **rest)


@cache
def _readers() -> tuple[tuple[str, Callable[[Any, str], Any]], ...]:
    """Of each field that has no form of its own, by its type hint: one record, records, or plain values."""
    hints = get_type_hints(Frame)
    return tuple((name, _reader(hints[name])) for name, _ in _fields(Frame) if name not in _OWN_FORM)


def _reader(hint: Any) -> Callable[[Any, str], Any]:
    kinds = [one for one in get_args(hint) if one is not type(None)] if get_origin(hint) is UnionType else [hint]
    kind = kinds[0]
    if get_origin(kind) is tuple:
        return partial(_values, get_args(kind)[0])
    return partial(_read, kind)


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


def _values(kind: type[Any], value: Any, name: str) -> tuple[Any, ...]:
    values = codec.decoder(list[Any])(value)
    return tuple(_read(kind, one, f"{name}.{index}") for index, one in enumerate(values))


def _read(kind: Any, value: Any, path: str) -> Any:
    try:
        if isinstance(value, dict) and dataclasses.is_dataclass(kind):
            value = {name: _dense(item) if name in _SPARSE else item for name, item in value.items()}
        return codec.decode(kind, value)
    except WireError as error:
        raise error.within(path) from None
