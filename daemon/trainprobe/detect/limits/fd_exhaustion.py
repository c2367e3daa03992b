"""Descriptors ran out, or will. Both this and a full /dev/shm end in ConnectionResetError: the other is ruled out."""

from __future__ import annotations

from collections.abc import Iterator

from trainprobe.detect.limits.base import Notice, Situation, size, span, used_share
from trainprobe.model.cause import Cause
from trainprobe.model.event import CallFailed
from trainprobe.model.report import Evidence
from trainprobe.model.sample import DescriptorSample

NAMES = {24: "EMFILE", 23: "ENFILE"}
FULL = 0.9
"""A message may be cut off for want of room in its own buffer too; with fewer descriptors in use it was that."""


def told(s: Situation) -> Iterator[Notice]:
    """One notice per process that ran out, one for the process that will first."""
    seen: set[int] = set()
    for failure in s.failures:
        if failure.pid not in seen and _is_ours(s, failure):
            seen.add(failure.pid)
            yield _happened(s, failure)
    for limit, forecast in s.of_kind("fds"):
        if forecast is not None and limit.pid not in seen:
            kinds = s.descriptors.get(limit.pid)
            yield Notice(
                f"fds-{limit.pid}",
                Cause.FD_EXHAUSTION,
                s.now_ns,
                f"{s.who(limit.pid)} has {limit.used} of {limit.limit} file descriptors open and opens "
                f"{forecast.slope:.3g} more a second: none is left in {span(forecast.eta_seconds)}{_most(kinds)}",
                eta_seconds=forecast.eta_seconds,
                evidence=_evidence(s, limit.pid, kinds),
                advice=advice(kinds),
                pid=limit.pid,
            )
            return


def _is_ours(s: Situation, failure: CallFailed) -> bool:
    if failure.errno in NAMES:
        return True
    if failure.errno != 0:
        return False
    own = next((one for key, one in s.limits.items() if key[0] == "fds" and key[2] == failure.pid), None)
    return own is None or used_share(own) >= FULL


def _happened(s: Situation, failure: CallFailed) -> Notice:
    kinds = s.descriptors.get(failure.pid)
    own = next((one for key, one in s.limits.items() if key[0] == "fds" and key[2] == failure.pid), None)
    if failure.errno == 0:
        what = "a tensor's descriptor could not be received (recvmsg cut it off, MSG_CTRUNC)"
    else:
        what = f"{failure.call or 'a call'} failed with {NAMES[failure.errno]}"
    count = kinds.open if kinds else own.used if own else None
    limit = f" of {own.limit}" if own else ""
    open_ = f": {count}{limit} file descriptors are open{_most(kinds)}" if count is not None else ""
    return Notice(
        f"fd-error-{failure.pid}",
        Cause.FD_EXHAUSTION,
        failure.at_ns,
        f"{s.who(failure.pid)} ran out of file descriptors: {what}{open_}",
        happened=True,
        evidence=[
            Evidence(f"{failure.call} failed", NAMES.get(failure.errno, "MSG_CTRUNC"), "", failure.pid),
            *_evidence(s, failure.pid, kinds),
        ],
        advice=advice(kinds),
        pid=failure.pid,
    )


def _most(kinds: DescriptorSample | None) -> str:
    if kinds is None or not kinds.counted:
        return ""
    kind, count = max(kinds.kinds.items(), key=lambda pair: pair[1])
    return f", {count * 100 // kinds.counted} % of them {_PLURAL.get(kind, kind)}"


_PLURAL = {"shared memory": "tensors in shared memory", "socket": "sockets", "file": "files", "pipe": "pipes",
           "event": "events", "GPU": "GPU devices"}  # fmt: skip


def _evidence(s: Situation, pid: int, kinds: DescriptorSample | None) -> list[Evidence]:
    own = next((one for key, one in s.limits.items() if key[0] == "fds" and key[2] == pid), None)
    found = []
    if own is not None:
        found += [
            Evidence("open file descriptors", kinds.open if kinds else own.used, "", pid),
            Evidence("limit (RLIMIT_NOFILE)", own.limit, "", pid),
        ]
    if kinds is not None:
        scale = kinds.open / max(1, kinds.counted)
        found += [
            Evidence(f"of these {_PLURAL.get(kind, kind)}", round(count * scale), "", pid)
            for kind, count in sorted(kinds.kinds.items(), key=lambda pair: -pair[1])[:4]
        ]
    shm = s.fullest("shm")
    if shm is not None:
        text = f"/dev/shm is not the reason: {size(shm.used)} of {size(shm.limit)} used"
        if used_share(shm) >= 0.95:
            text = f"/dev/shm is full too: {size(shm.used)} of {size(shm.limit)}"
        found.append(Evidence(text, round(used_share(shm), 4), "of its size"))
    return found


def advice(kinds: DescriptorSample | None) -> list[str]:
    """By what the descriptors are."""
    most = max(kinds.kinds, key=lambda kind: kinds.kinds[kind]) if kinds and kinds.kinds else ""
    out = []
    if most == "shared memory":
        out += [
            (
                "each tensor of a batch that is kept holds a descriptor: keep copies (.clone()) or numbers (.item()), "
                "not the batches themselves"
            ),
            'torch.multiprocessing.set_sharing_strategy("file_system") needs no descriptor per tensor',
        ]
    elif most == "socket":
        out.append("sockets are not closed: look for clients, loggers or queues that are made anew each step")
    elif most == "file":
        out.append("files are not closed: open them with `with`, or open each once per worker and keep it")
    elif most == "pipe":
        out.append("pipes are not closed: DataLoaders or pools that are made anew; use persistent_workers=True")
    return [*out, "ulimit -n 65536 before the start (LimitNOFILE= in a unit, --ulimit nofile= in docker)"]
