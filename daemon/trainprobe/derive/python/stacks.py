"""What several Python stacks have in common: the function that delays a training, and how often it was seen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import repeat

from trainprobe.derive.python.frameworks import is_loop, is_own, library
from trainprobe.model.dataclass import dataclass
from trainprobe.model.message import Message, template

WHERE = template("where", "{frame}{within}{seen}")
WITHIN = template("where.within", ", there in {frame}")
SEEN = template("where.seen", ", in {hits} of {samples} samples")
IN_STALLS = template("where.in_stalls", ", in {hits} of {stalls} sampled stalls")
MOST = 0.51
"""The least part of several stalls that share the named function."""
SHARE = 0.75
"""The least part of the stacks that have the named function: three of four."""
QUEUES = ("connection.py", "queue.py", "queues.py", "selectors.py", "synchronize.py", "threading.py")
"""Files of the standard library in which a worker without work waits."""
_SOCKETS = ("socket.py", "ssl.py")
"""Files of the standard library, and of clients that name theirs so, in which a socket is waited for …"""
_SERVES = ("accept", "send", "listen")
"""… and functions there that answer, or send."""
_ENVIRONMENTS = frozenset({"gymnasium", "gym", "pettingzoo", "stable_baselines3", "torchrl", "tianshou", "ray"})
"""Libraries of reinforcement learning."""
_OUTERMOST = frozenset({"<module>", "_run_module_as_main", "_bootstrap"})
_TEARDOWN = frozenset({"_exit_function", "_shutdown", "_python_exit", "_run_exitfuncs"})
"""Functions of the standard library in which a process waits for its threads and children at its end."""
COMPREHENSIONS = ("<genexpr>", "<listcomp>", "<dictcomp>", "<setcomp>")
"""Functions that CPython makes of an expression; a reader knows the function whose code the expression is."""


@dataclass(frozen=True, slots=True)
class Where:
    """A function and its most frequent line; ``hits`` of ``samples`` stacks have it. ``own``: the user's own function
    that is in it, where the function is a library's; not one that only calls a framework's loop."""

    frame: str  # "name (file:line)"
    hits: int
    samples: int
    own: str = ""
    stalls: bool = False  # what is counted is stalls, not samples

    def message(self, *, counted: bool = True) -> Message:
        """For people; ``counted``: with how often it was seen."""
        seen = None
        if self.samples > 1 and counted:
            several = IN_STALLS(hits=self.hits, stalls=self.samples)
            seen = several if self.stalls else SEEN(hits=self.hits, samples=self.samples)
        return WHERE(frame=self.own or self.frame, within=WITHIN(frame=self.frame) if self.own else None, seen=seen)


def innermost(stack: Sequence[str]) -> Message | None:
    """The innermost function of one stack, for people; None without frames."""
    where = common([stack])
    return where.message() if where is not None else None


def of_worker(stack: Sequence[str]) -> bool:
    """Whether it is a worker's: of a DataLoader, or of another loader's process."""
    return any(frame.startswith("_worker_loop (") or _is_process(frame) for frame in stack)


def _is_process(frame: str) -> bool:
    """Whether ``multiprocessing`` began a process there."""
    name, _, place = frame.partition(" (")
    return name.rpartition(".")[2] == "_bootstrap" and place.rpartition("/")[2].startswith("process.py:")


def waits_for_work(stack: Sequence[str]) -> bool:
    """Whether it is a worker's that waits for its next batch: its loop called a queue, no code of a batch."""
    inside = inside_loop(stack)
    return bool(inside) and _is_queue(inside[0])


def is_idle_worker(stack: Sequence[str]) -> bool:
    """Whether it is a worker's that waits for work: of one whose loop is not known, where its innermost function
    waits."""
    return waits_for_work(stack) if inside_loop(stack) else is_idle(stack)


def inside_loop(stack: Sequence[str]) -> Sequence[str]:
    """What a worker's loop has called; nothing where it is not in its loop."""
    loops = [at for at, frame in enumerate(stack) if frame.startswith(("_worker_loop (", "worker ("))]
    return stack[loops[-1] + 1 :] if loops else ()


def in_backward(stack: Sequence[str]) -> bool:
    """Whether torch's engine runs a backward."""
    return any(frame.startswith("_engine_run_backward (") for frame in stack)


def runs_program(stack: Sequence[str]) -> bool:
    """Whether it is the main thread's in the program's code: an interpreter that ends has left that."""
    names = [*map(function_name, stack)]
    return names[:1] == ["<module>"] and _TEARDOWN.isdisjoint(names)


def is_whole(stack: Sequence[str]) -> bool:
    """Whether it begins where Python programs and threads do. One that is read while its thread runs may be torn."""
    return bool(stack) and function_name(stack[0]) in _OUTERMOST


def is_idle(stack: Sequence[str]) -> bool:
    """Whether its innermost function waits in a queue, a pipe or a lock of Python's own."""
    return _is_queue(stack[-1])


def function_name(frame: str) -> str:
    """Without class and module: of "Optimizer.step (optim/sgd.py:3)" ``step``."""
    return frame.partition(" (")[0].rpartition(".")[2]


def takes_from_queue(stack: Sequence[str]) -> bool:
    """Whether it waits for what somebody puts into a queue of Python's own."""
    called = (frame for frame in stack if _file(frame).rpartition("/")[2] in ("queue.py", "queues.py"))
    return is_idle(stack) and any(function_name(frame) == "get" for frame in called)


def asks_iterator(stack: Sequence[str]) -> bool:
    """Whether it asks an iterator of Python code for what comes next, as of a loader."""
    return any(function_name(frame) == "__next__" for frame in stack)


def waits_for_result(stack: Sequence[str]) -> bool:
    """Whether it waits for the result of what a thread was given to do (concurrent.futures)."""
    return is_idle(stack) and any(_file(frame).rpartition("/")[2] == "_base.py" for frame in stack)


def at_socket(frame: str) -> bool:
    """Whether it is a function that waits for what another host is to send."""
    file, name = _file(frame).rpartition("/")[2], function_name(frame)
    return (file in _SOCKETS or "socket" in name) and not name.startswith(_SERVES)


def reads_network(stack: Sequence[str]) -> bool:
    """Whether it waits for data from a network: at a socket, or for the thread in which fsspec has its own. Who steps
    an environment asks a simulator."""
    packages = {library(frame) for frame in stack}
    if any(package.partition("/")[0] in _ENVIRONMENTS for package, _ in packages):
        return False
    return bool(stack) and (at_socket(stack[-1]) or (is_idle(stack) and ("fsspec", "asyn.py") in packages))


def _is_queue(frame: str) -> bool:
    return _file(frame).rpartition("/")[2].rstrip(")") in QUEUES


def shared(stalls: Sequence[Sequence[Sequence[str]]], weights: Sequence[float] = ()) -> Where | None:
    """The innermost function that most stalls share, each with the stacks that were taken in it: every stall counts
    by its weight (seconds; else alike), however often it was looked at. A single one, or none with stacks: as
    ``common``."""
    seen = [(stacks, weight) for stacks, weight in zip(stalls, weights or repeat(1.0)) if any(stacks)]
    if len(seen) < 2:
        return common(seen[0][0]) if seen else None
    where = common([_trunk(stacks) for stacks, _ in seen], MOST, [weight for _, weight in seen])
    return None if where is None else replace(where, stalls=True)


def _trunk(stacks: Sequence[Sequence[str]]) -> Sequence[str]:
    """Of one of the stacks: down to the function that they share."""
    where = common(stacks)
    stack = next(one for one in stacks if where is not None and where.frame in one)
    return stack[: len(stack) - list(reversed(stack)).index(where.frame)] if where is not None else stack


def common(stacks: Sequence[Sequence[str]], share: float = SHARE, weights: Sequence[float] = ()) -> Where | None:
    """The innermost function that such a share of the stacks (of their weight) has in common; None without stacks.
    Outermost first.

    With one stack it is the innermost frame. With several, frames below a function that differ from sample to sample
    belong to it.
    """
    kept = [(_named(stack), weight) for stack, weight in zip(stacks, weights or repeat(1.0)) if stack]
    if not kept:
        return None
    least = share * sum(weight for _, weight in kept)
    alike, depth, best, own = kept, 0, kept[0][0][0], -1
    while True:
        at: dict[str, float] = {}
        for stack, weight in alike:
            if len(stack) > depth:
                at[_function(stack[depth])] = at.get(_function(stack[depth]), 0.0) + weight
        name = max(at, key=lambda one: at[one], default="")
        if at.get(name, 0.0) < least or not at:
            break
        alike = [(stack, weight) for stack, weight in alike if len(stack) > depth and _function(stack[depth]) == name]
        best = Counter(stack[depth] for stack, _ in alike).most_common(1)[0][0]
        own = depth if is_own(best) else -1 if is_loop(best) else own
        depth += 1
    caller = "" if own < 0 else Counter(stack[own] for stack, _ in alike).most_common(1)[0][0]  # of those that are left
    return Where(best, len(alike), len(kept), caller if caller != best else "")


def _named(stack: Sequence[str]) -> Sequence[str]:
    """The stack without comprehensions that a function of the same file runs: they are that function's code."""
    return [
        frame for frame, caller in zip(stack, ["", *stack], strict=False)
        if not (frame.partition(" (")[0].endswith(COMPREHENSIONS) and _file(frame) == _file(caller))
    ]  # fmt: skip


def _file(frame: str) -> str:
    return _function(frame).partition(" (")[2]


def _function(frame: str) -> str:
    """A frame without its line: "name (file"."""
    return frame.rpartition(":")[0]
