"""Descriptors ran out, or will. Both this and a full /dev/shm end in ConnectionResetError: the other is ruled out."""

from __future__ import annotations

from collections.abc import Iterator

from trainprobe.causes import groups
from trainprobe.causes.situation import FAILED, Notice, Situation, figures, used_share
from trainprobe.causes.spec import CauseSpec, OrderedCheck
from trainprobe.model.cause import Cause, Kind
from trainprobe.model.event import CallFailed
from trainprobe.model.message import Message, template
from trainprobe.model.report import Evidence
from trainprobe.model.sample import DescriptorSample
from trainprobe.model.vocabulary import DESCRIPTOR_ERRORS

COMING = template(
    "fd_exhaustion.coming",
    "{who} has {used} of {limit} file descriptors open and opens {per_second:.3g} more a second: "
    "none is left in {left:span}{most}",
)
HAPPENED = template("fd_exhaustion.happened", "{who} ran out of file descriptors: {what}{open}")
CUT_OFF = template(
    "fd_exhaustion.cut_off", "a tensor's descriptor could not be received (recvmsg cut it off, MSG_CTRUNC)"
)
CALL_FAILED = template("fd_exhaustion.call_failed", "{call} failed with {error}")
A_CALL = template("fd_exhaustion.a_call", "a call")
OPEN = template("fd_exhaustion.open", ": {count}{limit} file descriptors are open{most}")
OF_LIMIT = template("fd_exhaustion.of_limit", " of {limit}")
MOST = template("fd_exhaustion.most", ", {percent} % of them {kind}")
OPEN_COUNT = template("fd_exhaustion.open_count", "open file descriptors")
LIMIT = template("fd_exhaustion.limit", "limit (RLIMIT_NOFILE)")
OF_THESE = template("fd_exhaustion.of_these", "of these {kind}")
SHM_IS_NOT = template("fd_exhaustion.shm_is_not", "/dev/shm is not the reason: {used:bytes} of {limit:bytes} used")
SHM_FULL_TOO = template("fd_exhaustion.shm_full_too", "/dev/shm is full too: {used:bytes} of {limit:bytes}")
KEEP_COPIES = template(
    "fd_exhaustion.keep_copies",
    "each tensor of a batch that is kept holds a descriptor: keep copies (.clone()) or numbers (.item()), "
    "not the batches themselves",
)
SHARING_STRATEGY = template(
    "fd_exhaustion.sharing_strategy",
    'torch.multiprocessing.set_sharing_strategy("file_system") needs no descriptor per tensor; with spawn or '
    "forkserver call it in worker_init_fn too",
)
CLOSE_SOCKETS = template(
    "fd_exhaustion.close_sockets",
    "sockets are not closed: look for clients, loggers or queues that are made anew each step",
)
CLOSE_FILES = template(
    "fd_exhaustion.close_files", "files are not closed: open them with `with`, or open each once per worker and keep it"
)
CLOSE_PIPES = template(
    "fd_exhaustion.close_pipes",
    "pipes are not closed: DataLoaders or pools that are made anew; use persistent_workers=True",
)
RAISE = template(
    "fd_exhaustion.raise", "ulimit -n 65536 before the start (LimitNOFILE= in a unit, --ulimit nofile= in docker)"
)
FULL = 0.9
"""A message may be cut off for want of room in its own buffer too; with fewer descriptors in use it was that."""


def check(s: Situation) -> Iterator[Notice]:
    """One notice per process that ran out, one for the process that will first."""
    seen: set[int] = set()
    for failure in s.failures:
        if failure.pid not in seen and _is_ours(s, failure):
            seen.add(failure.pid)
            yield _happened(s, failure)
    for limit, forecast in [one for one in s.limits.coming("fds") if one[0].pid not in seen][:1]:
        kinds = s.descriptors.get(limit.pid)
        yield Notice(
            f"fds-{limit.pid}",
            Cause.FD_EXHAUSTION,
            s.now_ns,
            COMING(who=s.who(limit.pid), most=_most(kinds), **figures(limit, forecast)),
            eta_seconds=forecast.eta_seconds,
            evidence=_evidence(s, limit.pid, kinds, limit.used),
            advice=advice(kinds),
            pid=limit.pid,
        )


def _is_ours(s: Situation, failure: CallFailed) -> bool:
    if failure.errno != 0:
        return failure.errno in DESCRIPTOR_ERRORS
    own = s.limits.of_process("fds", failure.pid)
    return own is None or used_share(own) >= FULL


def _happened(s: Situation, failure: CallFailed) -> Notice:
    kinds = s.descriptors.get(failure.pid)
    own = s.limits.of_process("fds", failure.pid)
    if failure.errno == 0:
        what = CUT_OFF()
    else:
        what = CALL_FAILED(call=failure.call or A_CALL(), error=DESCRIPTOR_ERRORS[failure.errno])
    count = kinds.open if kinds else own.used if own else None
    limit = OF_LIMIT(limit=own.limit) if own else None
    open_ = OPEN(count=count, limit=limit, most=_most(kinds)) if count is not None else None
    return Notice(
        f"fd-error-{failure.pid}",
        Cause.FD_EXHAUSTION,
        failure.at_ns,
        HAPPENED(who=s.who(failure.pid), what=what, open=open_),
        happened=True,
        evidence=[
            Evidence.of(FAILED(call=failure.call), DESCRIPTOR_ERRORS[failure.errno], "", failure.pid),
            *_evidence(s, failure.pid, kinds, count),
        ],
        advice=advice(kinds),
        pid=failure.pid,
    )


def _most(kinds: DescriptorSample | None) -> Message | None:
    if kinds is None or not kinds.counted:
        return None
    kind, count = max(kinds.kinds.items(), key=lambda pair: pair[1])
    return MOST(percent=count * 100 // kinds.counted, kind=_PLURAL.get(kind, kind))


_PLURAL = {
    "shared memory": template("fd_exhaustion.tensors", "tensors in shared memory")(),
    "socket": template("fd_exhaustion.sockets", "sockets")(),
    "file": template("fd_exhaustion.files", "files")(),
    "pipe": template("fd_exhaustion.pipes", "pipes")(),
    "event": template("fd_exhaustion.events", "events")(),
    "GPU": template("fd_exhaustion.gpus", "GPU devices")(),
}


def _evidence(s: Situation, pid: int, kinds: DescriptorSample | None, count: int | None) -> list[Evidence]:
    """``count``: open descriptors, as the sentence has them; what they are was looked at before or after."""
    own = s.limits.of_process("fds", pid)
    found = []
    if own is not None:
        found += [
            Evidence.of(OPEN_COUNT(), own.used if count is None else count, "", pid),
            Evidence.of(LIMIT(), own.limit, "", pid),
        ]
    if kinds is not None:
        scale = (kinds.open if count is None else count) / max(1, kinds.counted)
        found += [
            Evidence.of(OF_THESE(kind=_PLURAL.get(kind, kind)), round(number * scale), "", pid)
            for kind, number in sorted(kinds.kinds.items(), key=lambda pair: -pair[1])[:4]
        ]
    shm = s.limits.fullest("shm")
    if shm is not None:
        ruled_out = SHM_FULL_TOO if used_share(shm) >= 0.95 else SHM_IS_NOT
        found.append(Evidence.of(ruled_out(used=shm.used, limit=shm.limit), round(used_share(shm), 4), "of its size"))
    return found


def advice(kinds: DescriptorSample | None) -> list[Message]:
    """By what the descriptors are."""
    most = max(kinds.kinds, key=lambda kind: kinds.kinds[kind]) if kinds and kinds.kinds else ""
    out = []
    if most == "shared memory":
        out += [KEEP_COPIES(), SHARING_STRATEGY()]
    elif most == "socket":
        out.append(CLOSE_SOCKETS())
    elif most == "file":
        out.append(CLOSE_FILES())
    elif most == "pipe":
        out.append(CLOSE_PIPES())
    return [*out, RAISE()]


SPEC = CauseSpec(
    "fd_exhaustion",
    kinds=frozenset({Kind.EVENT, Kind.WARNING}),
    title="too many open files",
    colours=("#92400e", "#fbbf24"),
    group=groups.MEMORY,
    checks=(OrderedCheck(check, 40),),
)
