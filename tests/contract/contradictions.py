"""Finds statements of a report, of its text and of the advice that contradict each other: pure, from what users read.

Each check yields sentences that name both statements. A report that closes and agrees with itself yields none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from statistics import median
from typing import Any

from trainprobe.causes.registry import DECLARED

Json = Mapping[str, Any]
LISTED = 200
HEALTHY_LOST = 0.02
FIRST = ("worker_death", "shm_exhaustion", "fd_exhaustion")
SHARE = 1e-6  # of the wall time, that sums may differ by: floats
THREE_DIGITS, THREE_PLACES = 0.01, 0.001  # as `alike` of model/message.py takes figures for the same
ROUND = 0.0051  # seconds: two decimals
COSTS_NOTHING, DEAR = 0.01, 0.03  # of the wall time
PERCENT = re.compile(r"(\d+(?:\.\d+)?) ?%")
FAILED = ("exception", "killed", "watchdog", "oom")
BATCHES = {key for key, spec in DECLARED.items() if spec.is_input}
STARVED = 0.2
OTHERS = "cpu_contention"  # other programs make it: a cause of the training itself goes before it from half of it on


def contradictions(report: Json, text: str = "", advice: Json | None = None) -> list[str]:
    """``text``: as the report command prints it, in English; ``advice``: of ``advise --json``, of an only rank."""
    found = [f"{run['run']} rank {rank['name']}: {what}" for run, rank in _ranks(report) for what in of_rank(rank)]
    found += [f"{run['run']}: {what}" for run in report["runs"] for what in of_goodput(run)]
    found += [f"text: {what}" for what in of_text(report, text)]
    ranks = list(_ranks(report))
    if advice is not None and len(ranks) == 1:
        found += [f"advise: {what}" for what in of_advice(ranks[0][1], advice)]
    return found


def _ranks(report: Json) -> Iterator[tuple[Json, Json]]:
    return ((run, rank) for run in report["runs"] for rank in run["ranks"])


def of_goodput(run: Json) -> Iterator[str]:
    """The job's account against itself and against the ranks of a first attempt."""
    told = run["goodput"]
    wall = told["productive_seconds"] + sum(told["badput"].values())
    yield from (f"{name} of the job is {seconds} s" for name, seconds in told["badput"].items() if seconds < 0)
    if told["productive_seconds"] < 0 or sum(told["earlier"].values()) > wall * (1 + SHARE):
        yield f"goodput: {told['productive_seconds']} s productive, {told['earlier']} before, of {wall:.3f} s"
    longest = max((rank["wall_seconds"] for rank in run["ranks"]), default=0.0)
    if wall < longest * (1 - SHARE):
        yield f"the job has {wall:.3f} s, a rank of it {longest:.3f} s"
    if (told["attempt"] == 1) != (told["between_attempts_seconds"] is None):
        yield f"attempt {told['attempt']}, and {told['between_attempts_seconds']} s between attempts"


def of_rank(rank: Json) -> Iterator[str]:
    """All that one entry of a report says against itself."""
    yield from _account(rank)
    yield from _verdict(rank)
    yield from _shutdown(rank)
    yield from _steps(rank)
    yield from _stalls(rank)
    yield from _bottlenecks(rank)
    yield from _exit(rank)
    yield from _named(rank)
    yield from _workers(rank)


def _account(rank: Json) -> Iterator[str]:
    wall, lost = rank["wall_seconds"], rank["lost"]
    phases = rank["counters"]["phase_seconds"]
    both = rank["productive_seconds"] + sum(phases.values()) + sum(lost.values())
    if abs(both - wall) > SHARE * max(1.0, wall):
        yield f"productive, phases and lost are {both:.6f} s of {wall:.6f} s"
    ledger = sum(rank["ledger"].values())
    if rank["ledger"] and abs(ledger - wall) > 0.01 * max(1.0, wall):
        yield f"the ledger has {ledger:.3f} s of {wall:.3f} s"
    parts = {"productive": rank["productive_seconds"], **phases, **lost, **rank["ledger"]}
    yield from (f"{name} is {seconds} s" for name, seconds in parts.items() if seconds < 0)
    if len(rank["phases"]) < LISTED and all(span["end"] for span in rank["phases"]):
        for phase, seconds in phases.items():
            spans = sum(span["end"] - span["start"] for span in rank["phases"] if span["phase"] == phase)
            if abs(spans - seconds) > 0.01 * max(1.0, wall):
                yield f"{phase} is {seconds:.3f} s, its spans {spans:.3f} s"


def _shutdown(rank: Json) -> Iterator[str]:
    for span in rank["phases"]:
        lasted, parts = (span["end"] or span["start"]) - span["start"], sum(span["states"].values())
        if span["states"] and abs(parts - lasted) > 0.02 * lasted + 0.01:
            yield f"{span['phase']} of {lasted:.3f} s has {parts:.3f} s in it"


def _verdict(rank: Json) -> Iterator[str]:
    verdict, lost, wall = rank["verdict"], rank["lost"], rank["wall_seconds"]
    total, cause, kind = sum(lost.values()), verdict["cause"], verdict["kind"]
    if _id(verdict) == "verdict.healthy":
        if total >= HEALTHY_LOST * wall > 0:
            yield f"healthy, and {total:.2f} s of {wall:.2f} s are lost"
        if rank["bound"]["by"] == "input":
            yield f"healthy, and input-bound: {rank['bound']['why']}"
        if rank["exit"] and rank["exit"]["ending"] in FAILED:
            yield f"healthy, and {rank['exit']['reason']}"
    if kind in ("stall", "bottleneck"):
        if abs(verdict["share"] * wall - verdict["seconds"]) > SHARE * max(1.0, wall):
            yield f"verdict: {verdict['share']:.4f} of {wall:.3f} s are not {verdict['seconds']:.3f} s"
        if not (cause in FIRST and "worker_hang" in lost):  # the hang is the death's, or the failure's
            if cause not in lost:
                yield f"verdict {cause}, which lost nothing"
            elif abs(lost[cause] - verdict["seconds"]) > SHARE * max(1.0, wall):
                yield f"verdict {cause} {verdict['seconds']:.3f} s, lost {lost[cause]:.3f} s"
            most = max((s / (2 if name == OTHERS else 1) for name, s in lost.items()), default=0.0)
            if cause != OTHERS and verdict["seconds"] < most - SHARE * max(1.0, wall):
                yield f"verdict {cause} {verdict['seconds']:.3f} s, and more is lost to another cause: {lost}"
    if kind == "end" and rank["exit"] and rank["exit"]["code"] == 0:
        yield f"ended by {cause}, and {rank['exit']['reason']}"
    if verdict["share"] > 1 + SHARE:
        yield f"verdict: a share of {verdict['share']:.3f}"
    train = wall - sum(rank["counters"]["phase_seconds"].values())
    waited = sum(seconds for name, seconds in lost.items() if name in BATCHES)
    if rank["bound"]["by"] == "compute" and waited > STARVED * train > 0:
        yield f"compute-bound, and {waited:.2f} s of {train:.2f} s of training are lost to data"


def _steps(rank: Json) -> Iterator[str]:
    steps = rank["steps"]
    if steps["count"] and _id(rank["verdict"]) in ("verdict.no_step", "verdict.no_step_yet"):
        yield f"no step was seen, and {steps['count']} steps"
    if steps["count"] and steps["source"] == "none":
        yield f"{steps['count']} steps, and no source of them"
    if not steps["count"] and steps["source"] in ("autograd", "gpu"):
        yield f"steps by {steps['source']}, and none"
    if steps["source"] == "none" and rank["stalls"]:
        yield f"no steps are known, and {len(rank['stalls'])} stalls"
    if _id(rank["verdict"]) == "verdict.no_step" and sum(rank["lost"].values()) > HEALTHY_LOST * rank["wall_seconds"]:
        yield f"no step was seen, and {rank['lost']} are lost"


def _stalls(rank: Json) -> Iterator[str]:
    stalls, wall = rank["stalls"], rank["wall_seconds"]
    if rank["totals"]["stalls"] < len(stalls):
        yield f"{rank['totals']['stalls']} stalls in all, {len(stalls)} of them listed"
    for stall in stalls:
        name, shares = f"stall {stall['cause']} at step {stall['first_step']}", stall["shares"]
        if abs(sum(shares.values()) - stall["seconds"]) > SHARE * max(1.0, stall["seconds"]):
            yield f"{name}: shares are {sum(shares.values()):.6f} s of {stall['seconds']:.6f} s"
        if shares and shares.get(stall["cause"], 0.0) < max(shares.values()) - SHARE:
            yield f"{name}: {shares}"
        if stall["seconds"] > wall * (1 + SHARE):
            yield f"{name}: {stall['seconds']:.3f} s of a run of {wall:.3f} s"
        if stall["end"] is None and ended(rank):
            yield f"{name} goes on, and the rank has ended: {rank['exit']['reason']}"
        if stall["end"] is not None and stall["end"] < stall["start"]:
            yield f"{name} ends before it starts"
    yield from _rhythms(rank)
    booked = rank["counters"]["stall_seconds"]
    found = {one["cause"]: one["seconds"] for one in rank["bottlenecks"]}
    for cause in {*booked, *found, *rank["lost"]}:
        both, lost = booked.get(cause, 0.0) + found.get(cause, 0.0), rank["lost"].get(cause, 0.0)
        if abs(both - lost) > SHARE * max(1.0, wall):
            yield f"{cause}: {both:.6f} s in stalls and ordinary steps, {lost:.6f} s lost"


def _rhythms(rank: Json) -> Iterator[str]:
    """What is said of one occurrence is the median of the listed stalls, or the mean of the counted saves. A sentence
    stays while what it says hardly changes."""
    stalls, wall = rank["stalls"], rank["wall_seconds"]
    for stall in stalls:
        cause, rhythm = stall["cause"], (stall["message"] or {"params": {}})["params"].get("rhythm")
        if not isinstance(rhythm, Mapping):
            continue
        told, lost = rhythm["params"]["seconds"], rank["lost"].get(cause, 0.0)
        if abs(rhythm["params"]["share"] * wall - lost) > THREE_DIGITS * lost + THREE_PLACES * wall:
            yield f"{cause}: {rhythm['params']['share']:.4f} of {wall:.3f} s are not {lost:.3f} s"
        same = [one["shares"].get(cause, one["seconds"]) for one in stalls if one["cause"] == cause and one["end"]]
        saves = rank["counters"]["saves"]
        if (
            rhythm["id"] == "stall.of_saves"
            and saves
            and abs(told * saves - lost) > THREE_DIGITS * lost + THREE_PLACES * saves
        ):
            yield f"{cause}: {saves} saves of {told:.3f} s on average are not {lost:.3f} s"
        whole = len(stalls) == rank["totals"]["stalls"] and all(one["end"] for one in stalls)
        if rhythm["id"] == "stall.rhythm" and whole and abs(told - median(same)) > THREE_DIGITS * told + THREE_PLACES:
            yield f"{cause}: the median of {same} is not {told:.6f} s"


def _bottlenecks(rank: Json) -> Iterator[str]:
    for one in rank["bottlenecks"]:
        if not 0 <= one["share"] <= 1 + SHARE:
            yield f"{one['cause']} costs {one['share']:.0%} of each ordinary step"
    shares = sum(one["share"] for one in rank["bottlenecks"])
    if shares > 1 + SHARE:
        yield f"bottlenecks cost {shares:.0%} of each ordinary step"


def ended(rank: Json) -> bool:
    """Whether the rank's process has ended, as far as the report knows."""
    return rank["exit"] is not None and rank["exit"]["ending"] != "running"


def _exit(rank: Json) -> Iterator[str]:
    told = rank["exit"]
    if told is None:
        return
    if not ended(rank) and (told["code"] is not None or told["signal"] is not None):
        yield f"running, and {told['reason']}"
    if told["code"] is not None and told["signal"] is not None:
        yield f"exit code {told['code']} and signal {told['signal']}"
    if told["code"] == 0 and told["ending"] in FAILED:
        yield f"exit code 0, and {told['ending']}"


def _named(rank: Json) -> Iterator[str]:
    """A reference to something named elsewhere in the report has to have it."""
    advices = {
        _id(one)
        for item in (*rank["stalls"], *rank["bottlenecks"])
        for one in ({"message": m} for m in item.get("advice_messages", ()))
    }
    items = (*rank["stalls"], *rank["bottlenecks"])
    named = any(one in str(item) for one in ("collective_wait.late", "collective_wait.for_rank") for item in items)
    if "collective_wait.advice.faster_rank" in advices and not named:
        yield "advice on the rank named above, and none is named"


def _workers(rank: Json) -> Iterator[str]:
    workers = rank["workers"]
    if workers["ended"] > workers["started"] or workers["live"] > workers["started"] - workers["ended"]:
        yield f"{workers['started']} workers started, {workers['ended']} ended, {workers['live']} live"


def _saves(rank: Json) -> Iterator[str]:
    saves, wall = rank["checkpoints"], rank["wall_seconds"]
    whole = len(saves) == rank["totals"]["checkpoints"] < LISTED and all(save["end"] for save in saves)
    waited = sum(save["blocked_seconds"] for save in saves)
    lost = sum(rank["lost"].get(cause, 0.0) for cause in ("checkpoint", "storage_hang"))
    gpu = rank["gpus"]  # what it works on meanwhile is not lost
    if whole and not gpu and waited > HEALTHY_LOST * wall and lost < 0.5 * waited:
        yield f"the training waited {waited:.2f} s for saves, and {lost:.2f} s are lost to them"


def of_text(report: Json, text: str) -> Iterator[str]:
    """The text against itself and against the report."""
    if not text:
        return
    time = text.partition("Where the time went")[2].partition("\n\n")[0]
    for line in (text.splitlines()[0], *time.splitlines()):
        yield from (f"a share of {share} %: {line}" for share in PERCENT.findall(line) if float(share) > 100.05)
    for run, rank in _ranks(report):
        yield from _saves(rank)
        over = run["ended"] is not None or all(ended(other) for other in run["ranks"])
        if len(report["runs"]) == 1 and "still running" in text and over:
            yield f"still running, and the run has ended: {rank['exit'] and rank['exit']['reason']}"
    if "no training step was seen" in text and any(rank["steps"]["count"] for _, rank in _ranks(report)):
        yield "no training step was seen, and steps are counted"


def of_advice(rank: Json, advice: Json) -> Iterator[str]:
    """The proposed settings against the rank's losses."""
    wall, lost = rank["wall_seconds"], rank["lost"]
    if advice["gain_seconds"] > wall * (1 + SHARE):
        yield f"a gain of {advice['gain_seconds']:.1f} s in a run of {wall:.1f} s"
    evaluated = rank["counters"]["phase_seconds"].get("evaluation", 0.0)
    costs = {"checkpoint interval": "checkpoint", "log interval": "logging"}
    yield from _intervals(rank, advice, costs)
    for setting in advice["settings"]:
        name, cause = setting["name"], costs.get(setting["name"])
        if setting["gain"] > wall * (1 + SHARE):
            yield f"{name}: a gain of {setting['gain']:.1f} s in a run of {wall:.1f} s"
        if setting["proposed"] is not None and setting["proposed"] == setting["now"]:
            yield f"{name}: {setting['now']} is proposed in the place of itself"
        if cause and "costs nothing" in setting["reason"] and lost.get(cause, 0.0) > COSTS_NOTHING * wall:
            yield f"{name}: {setting['reason']!r}, and {lost[cause]:.2f} s are lost to {cause}"
        if name == "evaluation interval" and "no evaluation" in setting["reason"] and evaluated > COSTS_NOTHING * wall:
            yield f"{name}: {setting['reason']!r}, and {evaluated:.2f} s of evaluation"
        if name == "num_workers" and setting["now"].isdigit() and int(setting["now"]) > rank["workers"]["started"]:
            yield f"{name}: {setting['now']} now, and {rank['workers']['started']} workers were ever started"


def _intervals(rank: Json, advice: Json, costs: Mapping[str, str]) -> Iterator[str]:
    """An interval is the same wherever it is proposed, and takes what it is said to take."""
    proposed = {setting["name"]: setting["proposed"] for setting in advice["settings"]}
    said: dict[str, set[str]] = {"prefetch_factor": set(), **{name: set() for name in costs}}
    for item in (*rank["stalls"], *rank["bottlenecks"]):
        for message in item["advice_messages"]:
            params = message["params"]
            if message["id"] == "advice.made_ahead":
                said["prefetch_factor"].add(str(params["factor"]))
            elif "better" in params:
                share, better, every = params["share"], params["better"], params.get("every", 1)
                after = share * every / better  # of this run; its start and its end come once in a longer one, too
                if after / (1 - share + after) > 0.0101:
                    yield f"{item['cause']}: {share:.3f} of the run every {every} steps is more than 1 % every {better}"
                for name, cause in costs.items():
                    said[name] |= {str(better)} if cause == item["cause"] else set()
    reasons = {setting["name"]: setting["reason"] for setting in advice["settings"]}
    for name, values in said.items():
        if values and "hardly a stall" in reasons.get(name, ""):
            yield f"{name}: {reasons[name]!r}, and the report says {sorted(values)}"
        dear = rank["lost"].get(costs.get(name, ""), 0.0) > DEAR * rank["wall_seconds"]
        if values and dear and proposed.get(name) is None:
            yield f"{name}: {reasons[name]!r}, and the report says {sorted(values)}"
        if proposed.get(name) is not None and values and values != {proposed[name]}:
            yield f"{name}: {proposed[name]} is proposed, and the report says {sorted(values)}"


def _id(said: Json) -> str:
    message = said.get("message")
    return message["id"] if message else ""
